"""How late tasks with a countdown begin, and what a worker holds of those that are not due yet."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import postroom
from bench.celery.app import OURS, STOCK, opened
from bench.celery.drain import POOLS
from bench.celery.null import message
from bench.celery.workers import celery_worker
from bench.measure import Case, percentile, wait_until
from bench.stage import Stage
from postroom.celery.wrapping import wrap
from postroom.model import NewMessage

#: The first is due when all are published, at so many a second, and so long after that (seconds).
_PUBLISHED, _LEAD = 700, 1


def cases(stage: Stage) -> list[Case]:
    return [_lateness(stage), _holding(stage)]


def _lateness(stage: Stage) -> Case:
    name = "Celery countdown lateness"
    figures = tuple(
        stage.figure(f"{name} {which}: {whose}", "ms") for whose in (OURS, STOCK) for which in ("p50", "p99")
    )

    def trial() -> list[float]:
        count, spread = stage.size(2_000, 100), stage.size(5, 1)
        late = [_late(stage, whose, count, spread) for whose in (OURS, STOCK)]
        return [percentile(of, percent) for of in late for percent in (50, 99)]

    return Case(name, figures, trial)


def _late(stage: Stage, whose: str, count: int, spread: float) -> list[float]:
    """Milliseconds, of each."""
    with stage.url() as url, celery_worker(whose, url, *POOLS["solo"], bench_count=count) as worker:
        worker.next()
        with opened(whose, url) as app:
            begin = time.time() + _LEAD + count / _PUBLISHED
            for _ in range(count):
                due = begin + random.uniform(0, spread)
                app.tasks["bench.late"].apply_async((due,), eta=datetime.fromtimestamp(due, UTC))
        late: list[float] = worker.next()["lateness"]
    assert len(late) == count
    assert min(late) > -1, "a task began before it was due"
    return late


def _holding(stage: Stage) -> Case:
    count = stage.size(100_000, 2_000)
    watched = stage.size(3, 1)  # seconds: there is nothing to wait for
    figure = stage.figure("Celery worker: growth by 100,000 pending countdowns", "MB")

    def trial() -> list[float]:
        with stage.url() as url, celery_worker(OURS, url, *POOLS["solo"]) as worker:
            worker.next()
            time.sleep(watched)
            before = worker.memory()
            _put_off(url, count)
            time.sleep(watched)
            return [(worker.memory() - before) / 1e6]

    return Case("Celery pending countdowns", (figure,), trial)


def _put_off(url: str, count: int) -> None:
    """So many tasks that are due in an hour, as `apply_async` makes them."""
    with postroom.open(url) as room:
        queue = room.queue("celery")
        for _ in range(0, count, 1_000):
            queue.put_many([_pending() for _ in range(1_000)])
        wait_until(lambda: queue.stats().depth >= count, 10)


def _pending() -> NewMessage:
    made = message("bench.noop", "[]")
    made["headers"]["eta"] = datetime.fromtimestamp(time.time() + 3_600, UTC).isoformat()
    return wrap("celery", made)
