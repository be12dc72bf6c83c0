"""A battle that went wrong leaves its ledgers behind, and the report says where."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import LEDGERS, REPO

LOST = """
import pytest

@pytest.mark.parametrize("won", [True, False])
def test_battle(tmp_path, won):
    for name in ("worker-1.ledger", "worker-1.log", "history.txt", "store.db"):
        (tmp_path / name).write_text(name)
    assert won
"""


def test_a_failed_test_says_where_its_ledgers_are(tmp_path: Path) -> None:
    (tmp_path / "test_lost.py").write_text(LOST)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    run = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120, check=False)
    names = [f"{tmp_path.name}-test_battle-{won}" for won in (True, False)]
    won, lost = (LEDGERS / name for name in names)
    assert run.returncode == 1, run.stdout
    assert f"kept in build/ledgers/{names[1]}" in run.stdout
    assert {path.name for path in lost.iterdir()} == {"worker-1.ledger", "worker-1.log", "history.txt"}
    assert not won.exists()
    shutil.rmtree(lost)
