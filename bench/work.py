"""A `Worker` that drains a queue: what it costs itself, and whether it keeps its hands busy."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.measure import Case, rate
from bench.stage import Stage, fill
from postroom import Delivery, Worker


def cases(stage: Stage) -> list[Case]:
    return [_no_ops(stage, 1), _no_ops(stage, 4), _waiting(stage)]


def _no_ops(stage: Stage, concurrency: int) -> Case:
    count = stage.size(10_000 if stage.kind.durable else 20_000, 3_000)
    name = f"Worker drain of no-ops, concurrency {concurrency}"
    figures = (stage.figure(name, "/s"),)
    return Case(name, figures, lambda: [_drain(stage, count, concurrency, lambda: None)])


def _waiting(stage: Stage) -> Case:
    """Handlers that wait, as most do: at best 4,000 a second, and the less processor time the better."""
    count = stage.size(2_000, 500)
    name = "Worker drain of 1 ms waits, concurrency 4"

    def trial() -> list[float]:
        before = time.process_time()
        speed = _drain(stage, count, 4, lambda: time.sleep(0.001))
        return [speed, (time.process_time() - before) / count * 1e6]

    figures = stage.figure(name, "/s"), stage.figure("the same: processor time a message", "µs")
    return Case(name, figures, trial)


def _drain(stage: Stage, count: int, concurrency: int, work: Callable[[], None]) -> float:
    handled: list[None] = []  # append is atomic, counting is not

    def handler(delivery: Delivery) -> None:
        work()
        handled.append(None)

    with stage.queue() as queue:
        fill(queue, count)
        worker = Worker(queue.room, {queue.name: handler}, concurrency=concurrency)
        speed = rate(count, lambda: worker.run(drain=True))
    assert len(handled) == count, f"{len(handled)} of {count} were handled"
    return speed
