"""How late delayed messages are when everybody is busy.

A worker drains no-ops as fast as it can, from a backlog that does not end, while messages of a higher
priority become due in the same queue, in front of many that are due much later.
"""

from __future__ import annotations

import random
import time

from bench.measure import Case, percentile, wait_until
from bench.stage import BODY, DATA, Stage, fill
from postroom import Delivery, Worker
from postroom.model import NewMessage
from postroom.queue import Queue

#: The first is due after so long (seconds), when the worker has its pace.
_LEAD = 0.5


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":
        return []
    delayed, backlog = stage.size(100_000, 5_000), stage.size(250_000, 100_000)
    count, spread = stage.size(1_000, 100), 2.0 if not stage.quick else 0.3
    name = "delay lateness under full load"
    figures = (
        stage.figure(f"{name} p50", "ms"),
        stage.figure(f"{name} p99", "ms"),
        stage.figure("the same: no-ops drained meanwhile", "/s"),
    )

    def trial() -> list[float]:
        with stage.queue() as queue:
            _delay(queue, delayed)
            fill(queue, backlog)
            late, drained = _late(queue, count, spread)
            assert queue.stats().ready > 0, "the backlog came to an end"
        return [percentile(late, 50), percentile(late, 99), drained]

    return [Case(name, figures, trial)]


def _delay(queue: Queue, count: int) -> None:
    for _ in range(0, count, 1_000):
        queue.room.engine.put(queue.name, [NewMessage(body=DATA, delay=3_600_000) for _ in range(1_000)])


def _late(queue: Queue, count: int, spread: float) -> tuple[list[float], float]:
    """Milliseconds from due to begun, and how many no-ops a second were done beside that."""
    late: list[float] = []
    no_ops: list[None] = []

    def handler(delivery: Delivery) -> None:
        if delivery.priority > 5:
            late.append(time.time_ns() / 1e6 - delivery.message.due)
        else:
            no_ops.append(None)

    delays = (_LEAD + random.uniform(0, spread) for _ in range(count))
    queue.put_many(queue.message(BODY, delay=delay, priority="high") for delay in delays)
    began = time.perf_counter()
    with Worker(queue.room, {queue.name: handler}):
        wait_until(lambda: len(late) == count, _LEAD + spread + 20)
        drained = len(no_ops) / (time.perf_counter() - began)
    return late, drained
