"""Claiming and acking through the engine contract: as two calls, and fused by `turn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.measure import Case, rate
from bench.stage import Stage, fill
from postroom.engine import ClaimRequest
from postroom.model import Settlement
from postroom.queue import Queue

Drain = Callable[[Queue, int], None]


def cases(stage: Stage) -> list[Case]:
    return [_case(stage, batch, how, drain) for batch in (1, 10, 100) for how, drain in _WAYS.items()]


def _case(stage: Stage, batch: int, how: str, drain: Drain) -> Case:
    count = min(batch * stage.calls(20_000, 5_000), stage.size(50_000, 5_000))

    def trial() -> Sequence[float]:
        with stage.queue() as queue:
            fill(queue, count)
            speed = rate(count, lambda: drain(queue, batch))
            acked = queue.stats().counters["acked"]
            assert acked == count, f"{acked} of {count} were acked"
            return [speed]

    name = f"claim+ack at batch {batch}, {how}"
    return Case(name, (stage.figure(name, "/s"),), trial)


def two_calls(queue: Queue, batch: int) -> None:
    engine, name = queue.room.engine, queue.name
    request = ClaimRequest(n=batch)
    while leased := engine.claim(name, request).deliveries:
        engine.settle(name, [Settlement(one.receipt) for one in leased])


def turns(queue: Queue, batch: int) -> None:
    engine, name = queue.room.engine, queue.name
    request = ClaimRequest(n=batch)
    leased = engine.claim(name, request).deliveries
    while leased:
        acks = [Settlement(one.receipt) for one in leased]
        leased = engine.turn(name, acks, (), request).claimed.deliveries


_WAYS: dict[str, Drain] = {"two calls": two_calls, "turn": turns}
