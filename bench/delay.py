"""How late delayed messages are: from the due time, kept by the engine, to the first line of the handler."""

from __future__ import annotations

import random
import time

from bench.measure import Case, percentile, wait_until
from bench.stage import BODY, Stage
from postroom import Delivery, Worker
from postroom.queue import Queue

#: The first is due after so long (seconds), when all are put and the worker sleeps.
_LEAD = 0.5


def cases(stage: Stage) -> list[Case]:
    count, spread = stage.size(2_000, 400), stage.size(5, 1)
    figures = (
        stage.figure("delay lateness p50", "ms"),
        stage.figure("delay lateness p99", "ms"),
        stage.figure("delayed messages begun early", "", summary=max),
    )

    def trial() -> list[float]:
        with stage.queue() as queue:
            begun = _begun(queue, count, spread)
        late = [now / 1e6 - due for now, due in begun]
        # As the engine sees it: in whole milliseconds. Every engine here has this machine's clock.
        early = sum(now // 1_000_000 < due for now, due in begun)
        return [percentile(late, 50), percentile(late, 99), early]

    return [Case("delay lateness", figures, trial)]


def _begun(queue: Queue, count: int, spread: float) -> list[tuple[int, int]]:
    """When each handler began (nanoseconds) and when its message was due (milliseconds)."""
    begun: list[tuple[int, int]] = []

    def handler(delivery: Delivery) -> None:
        begun.append((time.time_ns(), delivery.message.due))

    with Worker(queue.room, {queue.name: handler}):
        delays = (_LEAD + random.uniform(0, spread) for _ in range(count))
        queue.put_many(queue.message(BODY, delay=delay) for delay in delays)
        wait_until(lambda: len(begun) == count, _LEAD + spread + 10)
    return begun
