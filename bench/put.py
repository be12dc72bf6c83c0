"""Putting, through the Python door: every body is made JSON, checked and kept."""

from __future__ import annotations

from bench.measure import Case, Figure, Target, rate
from bench.stage import BODY, Stage
from postroom.queue import Queue


def cases(stage: Stage) -> list[Case]:
    one, many = stage.size(20_000, 5_000), stage.size(100_000, 20_000)

    def one_by_one() -> list[float]:
        with stage.queue() as queue:
            return [rate(one, lambda: _one_by_one(queue, one))]

    def put_many() -> list[float]:
        with stage.queue() as queue:
            return [rate(many, lambda: queue.put_many([BODY] * many))]

    return [
        Case("put one by one", (Figure("put, one by one", "/s"),), one_by_one),
        Case("put_many", (Figure("put_many", "/s", Target(100_000, at_least=True)),), put_many),
    ]


def _one_by_one(queue: Queue, count: int) -> None:
    put = queue.put
    for _ in range(count):
        put(BODY)
