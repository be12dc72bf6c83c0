"""A room that was open when its process forked works on both sides, at once, on one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import family
from tests.chaos.outside import PATIENCE, REPO, check_sound

ALL = 1 + (family.CHILDREN + 1) * family.PUTS


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ("put_together", f"0 0 0 0 {ALL} {ALL} 0"),
        ("fork_under_load", "0 0 0 0 0 0 0 0 0 0 True"),
        ("worker_in_child", "0 100 100"),
        ("child_outlives", "0 6"),
        ("threads_import_nothing", ""),
    ],
)
def test_both_sides_of_a_fork_go_on(tmp_path: Path, scene: str, said: str) -> None:
    path = tmp_path / "store.db"
    run = subprocess.run(
        [sys.executable, "-m", "tests.chaos.family", scene, str(path)],
        cwd=REPO, check=False, capture_output=True, text=True, timeout=3 * PATIENCE,
    )  # fmt: skip
    assert (run.stdout.strip(), run.stderr) == (said, "")
    assert run.returncode == 0
    check_sound(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.db"]
