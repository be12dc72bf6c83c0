"""The same with the oldest Celery that we support, in a venv of its own (made by `tools/setup celery56`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PYTHON = REPO / ".venv-celery56" / "bin" / "python"

pytestmark = pytest.mark.timeout(600)


def older(*arguments: str) -> str:
    """What a program says under that interpreter; it must succeed."""
    assert PYTHON.exists(), "run `tools/setup celery56`"
    ran = subprocess.run(
        [PYTHON, *arguments], cwd=REPO, capture_output=True, text=True, timeout=590, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout[-6_000:]}\n{ran.stderr[-2_000:]}"
    return ran.stdout


def test_it_is_the_older_one() -> None:
    versions = older("-c", "import celery, kombu; print(celery.__version__, kombu.__version__)")
    assert [version[:4] for version in versions.split()] == ["5.6.", "5.6."]


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_kombu.py", ""),
        ("test_workers.py", "redis and ((early and gevent) or ((warm or groups) and threads))"),
        ("test_outages.py", "restart-always-threads"),
        ("test_matrix_options.py", ""),
        ("test_matrix.py", "redis and (rejected or acked_early)"),
        ("test_guards.py", "redis and prefork and duplicate_gets"),
        ("test_beat.py", "not sqlite"),
    ],
)
def test_the_tests_pass_with_it(file: str, chosen: str) -> None:
    """All of them are run by `make oldest`."""
    told = older("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/celery/{file}", "-k", chosen)
    assert " passed" in told
