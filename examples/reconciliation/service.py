"""The service: reports come in, jobs are put, a worker reconciles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Engine as Database
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from examples.reconciliation.fetcher import Fetcher, RateLimited, adaptive_delay
from postroom import Delivery, Policy, Retry, Worker
from postroom.room import Room

QUEUE = "reconciliation"
#: Half an hour in production; shorter where an example wants to be seen.
MISSING_AFTER = timedelta(minutes=30)
LIMIT_FIRST, LIMIT_MOST = timedelta(minutes=1), timedelta(hours=1)
#: More clicks for a sale than anybody has: to be looked at first.
_SUSPICIOUS = 0.5


class Base(DeclarativeBase):
    pass


class Report(Base):
    """What an affiliate says, and what became of it."""

    __tablename__ = "report"

    id: Mapped[int] = mapped_column(primary_key=True)
    platform: Mapped[str]
    post: Mapped[str]
    clicks: Mapped[int]
    sales: Mapped[int]
    status: Mapped[str] = mapped_column(default="PENDING")
    attempts: Mapped[int] = mapped_column(default=0)


def database(url: str) -> Database:
    made = create_engine(url)
    Base.metadata.create_all(made)
    return made


def declare(room: Room) -> None:
    """What the queue promises: a job that fails is tried five times, and starts within two seconds."""
    room.queue(QUEUE, policy=Policy(max_attempts=5, backoff="2^n * 1s", capacity=10_000, sla_p95="2s"))


def submit(room: Room, db: Database, report: Report) -> int:
    """Keep a report and put its job: the id of the report is the job's, so that a repetition is one job."""
    with Session(db, expire_on_commit=False) as session:
        session.add(report)
        session.commit()
    room.queue(QUEUE).put(
        {"report_id": report.id},
        kind="reconcile",
        priority="high" if report.sales > _SUSPICIOUS * report.clicks else "normal",
        unique_key=f"report-{report.id}",
        correlation_id=f"submission-{report.id}",
    )
    return report.id


class Reconciler:
    """The work on one report."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        missing_after: timedelta = MISSING_AFTER,
        limit_first: timedelta = LIMIT_FIRST,
        limit_most: timedelta = LIMIT_MOST,
    ) -> None:
        self._fetcher = fetcher
        self._missing_after = missing_after
        self._limit = {"first": limit_first.total_seconds(), "most": limit_most.total_seconds()}

    def __call__(self, delivery: Delivery) -> None:
        session: Session = delivery.context
        report = session.get_one(Report, delivery.body["report_id"])
        report.attempts = delivery.attempt + 1
        try:
            numbers = self._fetcher.fetch(report.platform, report.post)
        except (RateLimited, ConnectionError) as error:
            after = error.after if isinstance(error, RateLimited) else None
            raise Retry(adaptive_delay(delivery.attempt, after, **self._limit)) from error
        if numbers is None:
            raise Retry(self._missing_after, reason="the platform has no numbers yet")
        said = (report.clicks, report.sales)
        report.status = "MATCHED" if said == numbers else "MISMATCH"


def worker(room: Room, db: Database, reconciler: Reconciler) -> Worker:
    """One thread, as the service began; more are a number, because every job has a session of its own."""

    @contextmanager
    def session(delivery: Delivery) -> Iterator[Session]:
        with Session(db) as session, session.begin():
            yield session

    return Worker(room, {QUEUE: reconciler}, around=session, concurrency=1)
