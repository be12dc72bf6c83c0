"""examples/reconciliation runs, and does what the specification's timelines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
MODULE = "examples.reconciliation"


def run(code: str = f"from {MODULE}.__main__ import main; main()") -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, check=False, cwd=REPO, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_timelines_end_as_they_should() -> None:
    asked, *reports, waits = run().splitlines()
    posts = asked.removeprefix("asked: ").split(", ")
    assert posts[0] == "post-104", "the suspicious one comes first"
    assert {post: posts.count(post) for post in posts} == {
        "post-104": 1, "post-101": 1, "post-102": 2, "post-103": 3,
    }  # fmt: skip
    assert reports == [
        "post-101  MATCHED   attempts 1",
        "post-102  MATCHED   attempts 2",
        "post-103  MATCHED   attempts 3",
        "post-104  MISMATCH  attempts 1",
    ]
    assert waits.startswith("first attempts: 4,")


def test_a_rate_limit_delays_as_long_as_it_says_and_longer_when_it_says_nothing() -> None:
    delays = run(
        f"from {MODULE}.fetcher import adaptive_delay as d;"
        "print([d(n, None, first=1, most=60) for n in range(8)], d(3, 17.0, first=1, most=60))"
    )
    assert delays == "[1, 2, 4, 8, 16, 32, 60, 60] 17.0\n"


FAILING = """
import postroom, tempfile
from examples.reconciliation.fetcher import Fetcher, Platform
from examples.reconciliation.service import Reconciler, Report, Session, database, declare, submit, worker
folder = tempfile.mkdtemp()
db = database(f"sqlite:///{folder}/business.db")
with postroom.open(f"sqlite:///{folder}/jobs.db") as room:
    declare(room)
    submit(room, db, Report(platform="amazon", post="p", clicks=1, sales=1))
    worker(room, db, Reconciler(Fetcher({"amazon": Platform({"p": [ValueError("boom")]})}))).run(drain=True)
    with Session(db) as session:
        report = session.get_one(Report, 1)
        print(report.status, report.attempts, room.queue("reconciliation").stats().scheduled)
db.dispose()
import shutil; shutil.rmtree(folder)
"""


def test_a_job_that_fails_leaves_nothing_in_the_database_and_is_tried_again() -> None:
    assert run(FAILING) == "PENDING 0 1\n"
