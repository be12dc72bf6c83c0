"""examples/reconciliation runs, and does what the specification's timelines say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

REPO = Path(__file__).parents[2]
MODULE = "examples.reconciliation"


def run(code: str = f"from {MODULE}.__main__ import main; main()") -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, check=False, cwd=REPO, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_timelines_end_as_they_should() -> None:
    amazon, etsy, breaker, *reports, waits = run().splitlines()
    posts = amazon.removeprefix("amazon was asked: ").split(", ")
    assert posts[0] == "post-104", "the suspicious one comes first"
    assert Counter(posts) == {"post-104": 1, "post-101": 1, "post-102": 2, "post-103": 3}
    down = etsy.removeprefix("etsy was asked: ").split(", ")
    assert down[:3] == ["post-201", "post-202", "post-203"]
    assert Counter(down) == {"post-201": 2, "post-202": 2, "post-203": 2, "post-204": 1}
    assert breaker == "etsy's breaker: open, half_open, closed"
    assert reports == [
        "post-101  MATCHED   attempts 1",
        "post-102  MATCHED   attempts 2",
        "post-103  MATCHED   attempts 3",
        "post-104  MISMATCH  attempts 1",
        "post-201  MATCHED   attempts 2",
        "post-202  MATCHED   attempts 2",
        "post-203  MATCHED   attempts 2",
        "post-204  MATCHED   attempts 1",
    ]
    (measured,) = re.findall(r"^first attempts: (\d+),", waits)
    assert int(measured) >= 8  # who was handed back waits again


def test_a_rate_limit_delays_as_long_as_it_says_and_longer_when_it_says_nothing() -> None:
    delays = run(
        f"from {MODULE}.fetcher import adaptive_delay as d;"
        "print([d(n, None, first=1, most=60) for n in range(8)], d(3, 17.0, first=1, most=60))"
    )
    assert delays == "[1, 2, 4, 8, 16, 32, 60, 60] 17.0\n"


PLAYED = """
import postroom, tempfile
from examples.reconciliation.fetcher import Fetcher, Numbers, Platform
from examples.reconciliation.service import Reconciler, Report, Session, database, declare, submit, worker
from postroom.breaker import Breakers
folder = tempfile.mkdtemp()
db = database(f"sqlite:///{folder}/business.db")
with postroom.open(f"sqlite:///{folder}/jobs.db") as room:
    breakers = Breakers(room)
    declare(room)
    submit(room, db, Report(platform="amazon", post="p", clicks=1, sales=1))
    amazon = Platform({"p": [ANSWER]})
    PREPARE
    worker(room, db, Reconciler(Fetcher({"amazon": amazon}, guard=breakers.__getitem__))).run(drain=True)
    queue = room.queue("reconciliation")
    (entry,) = queue.find("scheduled").entries
    with Session(db) as session:
        report = session.get_one(Report, 1)
        print(report.status, report.attempts, len(amazon.asked), entry.attempt)
db.dispose()
import shutil; shutil.rmtree(folder)
"""


def test_a_job_that_fails_leaves_nothing_in_the_database_and_is_tried_again() -> None:
    failing = PLAYED.replace("ANSWER", "ValueError('boom')").replace("PREPARE", "")
    assert run(failing) == "PENDING 0 1 1\n"


def test_a_platform_whose_breaker_is_open_is_not_asked_and_no_attempt_is_used_up() -> None:
    open = PLAYED.replace("ANSWER", "Numbers(1, 1)").replace("PREPARE", "breakers['amazon'].open('a test')")
    assert run(open) == "PENDING 0 0 0\n"
