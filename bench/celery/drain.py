"""How fast one worker works through tasks that do nothing, in each pool, and how often it asks Redis.

Beside the stock transport and one without a broker, turn about on a server each. Whoever begins changes.
"""

from __future__ import annotations

import itertools

from bench.celery.app import NULL, OURS, STOCK
from bench.celery.publish import fill
from bench.celery.workers import celery_worker
from bench.measure import Case
from bench.server import Books
from bench.stage import Stage

POOLS = {
    "solo": ("--pool", "solo"),
    "threads": ("--pool", "threads", "--concurrency", "10"),
    "prefork": ("--pool", "prefork", "--concurrency", "2"),
}


def cases(stage: Stage) -> list[Case]:
    return [*(_drains(stage, pool) for pool in POOLS), _round_trips(stage)]


def _drains(stage: Stage, pool: str) -> Case:
    turn = itertools.count()
    name = f"Celery drain, {pool}"
    figures = (
        *(stage.figure(f"{name}: {whose}", "/s") for whose in (OURS, STOCK, NULL)),
        stage.figure(f"{name}: {OURS} ÷ {STOCK}", "×"),
        stage.figure(f"{name}: {OURS} ÷ {NULL}", "×"),
    )

    def trial() -> list[float]:
        whose = [OURS, STOCK, NULL]
        shift = next(turn) % 3
        # Enough for a second or so of each: stock is the slowest.
        counts = {OURS: stage.size(5_000, 300), STOCK: stage.size(1_500, 300), NULL: stage.size(8_000, 300)}
        rates = {one: _drained(stage, one, pool, counts[one])[0] for one in whose[shift:] + whose[:shift]}
        ours, stock, null = (rates[one] for one in whose)
        return [ours, stock, null, ours / stock, ours / null]

    return Case(name, figures, trial)


def _round_trips(stage: Stage) -> Case:
    """By the server's own count, with the start of the worker in it."""
    name = "Celery round trips a task"
    shapes = [(OURS, 4), (OURS, 64), (STOCK, 4)]
    figures = tuple(stage.figure(f"{name}, prefetch {many}: {whose}", "×") for whose, many in shapes)

    def trial() -> list[float]:
        count = stage.size(3_000, 300)
        return [_drained(stage, whose, "solo", count, prefetch=many)[1] for whose, many in shapes]

    return Case(name, figures, trial)


def _drained(
    stage: Stage, whose: str, pool: str, count: int, prefetch: int | None = None
) -> tuple[float, float]:
    """Tasks a second, and round trips a task."""
    # The prefetch is a multiple of the concurrency, which also a pool without one has.
    exact = () if prefetch is None else ("--concurrency", "1", "--prefetch-multiplier", str(prefetch))
    with stage.url() as url:
        if whose != NULL:
            fill(whose, url, count)
        with Books(url) as books:
            before = books.round_trips()
            with celery_worker(whose, url, *POOLS[pool], *exact, bench_count=count) as worker:
                worker.next()
                rate: float = worker.next()["rate"]
                return rate, (books.round_trips() - before) / count
