"""What the guards cost: a look at a breaker, a handler that runs once, a put that is counted for its key."""

from __future__ import annotations

import time

from bench.measure import Case, rate
from bench.stage import BODY, Stage
from postroom import Policy
from postroom.breaker import Breaker
from postroom.idempotency import idempotent
from postroom.queue import Queue


def cases(stage: Stage) -> list[Case]:
    once = (stage.figure("run once (idempotent), one after the other", "/s"),)
    again = (stage.figure("a duplicate of it", "/s"),)
    return [
        *([_breaker(stage)] if stage.engine == "memory" else []),
        Case("idempotent", (*once, *again), lambda: _idempotent(stage)),
        Case("put by rate_key", (stage.figure("put with a rate_key ÷ without", "×"),), lambda: _put(stage)),
    ]


def _breaker(stage: Stage) -> Case:
    """A closed breaker of this process, as a `with` around nothing, less the loop."""
    calls = stage.size(200_000, 20_000)
    guard = Breaker("bench")

    def trial() -> list[float]:
        began = time.perf_counter()
        for _ in range(calls):
            with guard:
                pass
        guarded = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(calls):
            pass
        return [(guarded - (time.perf_counter() - began)) / calls * 1e6]

    return Case("breaker", (stage.figure("a call through a closed breaker", "µs"),), trial)


def _idempotent(stage: Stage) -> list[float]:
    count = stage.calls(10_000, 2_000)
    with stage.queue() as queue:
        work = idempotent(lambda key: key, room=queue.room, name=queue.name)(abs)

        def run() -> None:
            for number in range(1, count + 1):
                work(number)

        return [rate(count, run), rate(count, run)]


def _put(stage: Stage) -> list[float]:
    count = stage.calls(10_000, 2_000)
    with stage.queue() as queue:
        counted = queue.room.queue(queue.name, Policy(put_rate="900000000/h"))
        return [_spent(counted, count, "key") / _spent(counted, count, None)]


def _spent(queue: Queue, count: int, rate_key: str | None) -> float:
    began = time.perf_counter()
    for _ in range(count):
        queue.put(BODY, rate_key=rate_key)
    return time.perf_counter() - began
