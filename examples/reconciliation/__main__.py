"""Plays the timelines of the service: a report that matches, one whose data comes late, a rate limit, and a
platform that is down for a moment."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine as Database
from sqlalchemy.orm import Session

import postroom
from examples.reconciliation.fetcher import Fetcher, Numbers, Platform, RateLimited
from examples.reconciliation.service import QUEUE, Reconciler, Report, database, declare, submit, worker
from postroom.breaker import Breakers, changes
from postroom.room import Room

#: What takes minutes in production takes so long here.
SHORT = timedelta(seconds=0.3)
PATIENCE = 60.0


def amazon() -> Platform:
    """Knows 101 at once, 102 when asked again, 103 after two rate limits, and 104 otherwise than reported."""
    return Platform(
        {
            "post-101": [Numbers(100, 7)],
            "post-102": [None, Numbers(50, 2)],
            "post-103": [RateLimited(after=0.2), RateLimited(), Numbers(10, 1)],
            "post-104": [Numbers(100, 1)],
        }
    )


def etsy() -> Platform:
    """Is down when it is asked for the first time about 201, 202 and 203."""
    posts = ("post-201", "post-202", "post-203")
    down: dict[str, list[Numbers | Exception | None]] = {
        post: [ConnectionError("etsy is down"), Numbers(20, 1)] for post in posts
    }
    return Platform({**down, "post-204": [Numbers(20, 1)]})


REPORTS = [
    Report(platform="amazon", post="post-101", clicks=100, sales=7),
    Report(platform="amazon", post="post-102", clicks=50, sales=2),
    Report(platform="amazon", post="post-103", clicks=10, sales=1),
    Report(platform="amazon", post="post-104", clicks=100, sales=90),
    Report(platform="etsy", post="post-201", clicks=20, sales=1),
    Report(platform="etsy", post="post-202", clicks=20, sales=1),
    Report(platform="etsy", post="post-203", clicks=20, sales=1),
    Report(platform="etsy", post="post-204", clicks=20, sales=1),
]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="reconciliation-") as folder:
        play(Path(folder))


def play(folder: Path) -> None:
    db = database(f"sqlite:///{folder}/business.db")
    platforms = {"amazon": amazon(), "etsy": etsy()}
    with postroom.open(f"sqlite:///{folder}/jobs.db", telemetry=True) as room:
        breakers = Breakers(room, threshold=3, cooldown=SHORT)
        fetcher = Fetcher(platforms, guard=breakers.__getitem__)
        reconciler = Reconciler(fetcher, missing_after=SHORT, limit_first=SHORT)
        declare(room)
        for report in REPORTS:
            submit(room, db, report)
        with worker(room, db, reconciler):
            wait_until_done(room)
        for name, platform in platforms.items():
            print(f"{name} was asked: {', '.join(platform.asked)}")
        print(f"etsy's breaker: {', '.join(change.after for change in changes(room.engine, 'etsy'))}")
        tell(db)
    with postroom.open(f"sqlite:///{folder}/jobs.db") as room:
        (sla,) = room.sla()
        print(f"first attempts: {sla.count}, p95 within 2 s: {'yes' if sla.met else 'no'}")
    db.dispose()


def wait_until_done(room: Room) -> None:
    deadline = time.monotonic() + PATIENCE
    while room.queue(QUEUE).stats().counters["acked"] < len(REPORTS):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done: {room.queue(QUEUE).stats()}")
        time.sleep(0.05)


def tell(db: Database) -> None:
    with Session(db) as session:
        for report in session.query(Report).order_by(Report.id):
            print(f"{report.post}  {report.status:8}  attempts {report.attempts}")


if __name__ == "__main__":
    main()
