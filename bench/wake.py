"""How soon an idle worker begins: from just before `put` to the first line of the handler."""

from __future__ import annotations

import random
import time

from bench.measure import Case, Figure, Target, percentile, wait_until
from bench.stage import BODY, Stage
from postroom import Delivery, Worker
from postroom.queue import Queue

#: Not measured: the first messages meet a worker that is still starting.
_WARM_UP = 20
#: Between two puts, evenly (seconds): long enough for the worker to fall asleep again.
_SPACING = 0.004, 0.006


def cases(stage: Stage) -> list[Case]:
    samples = stage.size(500, 150)
    figures = Figure("wake p50", "ms"), Figure("wake p99", "ms", Target(2))

    def trial() -> list[float]:
        with stage.queue() as queue:
            waits = _waits(queue, _WARM_UP + samples)[_WARM_UP:]
        return [percentile(waits, 50), percentile(waits, 99)]

    return [Case("wake", figures, trial)]


def _waits(queue: Queue, count: int) -> list[float]:
    """Milliseconds from each put to its handler."""
    put_at: dict[str, int] = {}
    began_at: dict[str, int] = {}

    def handler(delivery: Delivery) -> None:
        began_at[delivery.id] = time.perf_counter_ns()

    with Worker(queue.room, {queue.name: handler}):
        for _ in range(count):
            time.sleep(random.uniform(*_SPACING))
            now = time.perf_counter_ns()
            put_at[queue.put(BODY).id] = now
        wait_until(lambda: len(began_at) == count, 10)
    return [(began_at[id] - now) / 1e6 for id, now in put_at.items()]
