"""What the guards cost: a look at a breaker, a handler that runs once, a put that is counted for its key.

On Redis also what each adds to the round trips of a message, by the server's own count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from bench.measure import Case, rate
from bench.server import Books
from bench.stage import BODY, Stage, queue_at
from postroom import Policy
from postroom.breaker import Breaker
from postroom.idempotency import idempotent
from postroom.queue import Queue


def cases(stage: Stage) -> list[Case]:
    once = (stage.figure("run once (idempotent), one after the other", "/s"),)
    again = (stage.figure("a duplicate of it", "/s"),)
    return [
        *([_breaker(stage)] if stage.engine == "memory" else []),
        *([_round_trips(stage)] if stage.engine == "redis" else []),
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


def _round_trips(stage: Stage) -> Case:
    # Every 64th put of a queue looks for what it may forget, which is a round trip more, key or not: of a
    # multiple of 64 puts as many do so with a key as without.
    count = stage.size(16 * 64, 2 * 64)
    guards = ("idempotent", "shared breaker", "rate_key")
    figures = tuple(stage.figure(f"round trips a message: {name}", "") for name in guards)

    def trial() -> list[float]:
        with stage.url() as url, queue_at(url) as queue, Books(url) as books:
            room = queue.room
            counted = room.queue(queue.name, Policy(put_rate="900000000/h"))
            once = idempotent(lambda key: key, room=room, name=queue.name)(abs)
            guarded = Breaker("bench", room=room)(abs)

            def used(work: Callable[[int], object]) -> float:
                # Asked for again every few seconds, key or not: a span of puts begins with it, and is over
                # before the next, so that it is in none of them.
                room.forget_policy(queue.name)
                return _trips(books, count, work)

            plain = used(lambda number: counted.put(BODY))
            keyed = used(lambda number: counted.put(BODY, rate_key="key"))
            # Rounded only now: two that were rounded would differ by more than they do.
            return [round(trips, 2) for trips in (used(once), used(guarded), keyed - plain)]

    return Case("round trips of guards", figures, trial)


def _trips(books: Books, count: int, work: Callable[[int], object]) -> float:
    work(-1)  # not counted: connections and scripts are new to it
    before = books.round_trips()
    for number in range(count):
        work(number)
    # One asks for the number; a look at the store once a second is not a message's.
    return (books.round_trips() - before - 1) / count


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
        return [
            median(_spent(counted, count // 5, "key") / _spent(counted, count // 5, None) for _ in range(5))
        ]


def _spent(queue: Queue, count: int, rate_key: str | None) -> float:
    began = time.perf_counter()
    for _ in range(count):
        queue.put(BODY, rate_key=rate_key)
    return time.perf_counter() - began
