"""Whether a claim costs the same however much waits: the same batch beside 1 k and up to 1 M messages."""

from __future__ import annotations

import gc
import statistics
import time

from bench.measure import Case
from bench.stage import Stage, fill
from postroom.engine import ClaimRequest
from postroom.model import Settlement
from postroom.queue import Queue


def cases(stage: Stage) -> list[Case]:
    queues = _Queues(stage, _depths(stage))
    return [_case(stage, queues, batch) for batch in ((1, 100) if stage.kind.slow > 1 else (100,))]


def _depths(stage: Stage) -> tuple[int, ...]:
    if stage.kind.slow > 1:  # a third depth would take its time and say nothing new
        return 1_000, stage.size(1_000_000, 50_000)
    return (1_000, 10_000, 100_000) if stage.quick else (1_000, 100_000, 1_000_000)


def _case(stage: Stage, queues: _Queues, batch: int) -> Case:
    rounds = stage.size(100 if stage.kind.slow > 1 else 200, 50)
    least, *others = map(_short, queues.depths)
    costs = [stage.figure(f"claim+ack of {batch} with {depth} waiting", "µs") for depth in (least, *others)]
    ratios = [
        stage.figure(f"{what} of {batch}: {depth} ÷ {least}", "×")
        for what in ("claim+ack", "claim")
        for depth in others
    ]

    def trial() -> list[float]:
        claims, boths = _spent(queues.filled(), batch, rounds)
        return [*boths, *(cost / boths[0] for cost in boths[1:]), *(cost / claims[0] for cost in claims[1:])]

    name = f"claim cost by depth, {batch} at once"
    return Case(name, (*costs, *ratios), trial, prepare=queues.filled)


class _Queues:
    """One queue for each depth, filled when first asked for and kept that deep from then on.

    Each has a room of its own, so that nothing of the deep ones is in the way of the others.
    """

    def __init__(self, stage: Stage, depths: tuple[int, ...]) -> None:
        self.depths = depths
        self._stage = stage
        self._queues: list[Queue] = []

    def filled(self) -> list[Queue]:
        if not self._queues:
            stage = self._stage
            self._queues = [stage.kept.enter_context(stage.queue()) for _ in self.depths]
            for queue, depth in zip(self._queues, self.depths, strict=True):
                stage.say(f"for the depth: putting {depth:,} messages")
                fill(queue, depth, stage.say)
            gc.collect()
            gc.freeze()
        return self._queues


def _spent(queues: list[Queue], batch: int, rounds: int) -> tuple[list[float], list[float]]:
    """Microseconds for a claim, and for claim and ack: the medians of each queue.

    The queues take turns, and the collector is off.
    """
    times: list[list[tuple[float, float]]] = [[] for _ in queues]
    gc.disable()
    try:
        for _ in range(rounds):
            for queue, spent in zip(queues, times, strict=True):
                spent.append(_claim_and_ack(queue, batch))
                fill(queue, batch)
    finally:
        gc.enable()
    claims = [statistics.median(claim * 1e6 for claim, _ in spent) for spent in times]
    return claims, [statistics.median(both * 1e6 for _, both in spent) for spent in times]


def _claim_and_ack(queue: Queue, batch: int) -> tuple[float, float]:
    engine, name = queue.room.engine, queue.name
    began = time.perf_counter()
    leased = engine.claim(name, ClaimRequest(n=batch)).deliveries
    claimed = time.perf_counter()
    engine.settle(name, [Settlement(one.receipt) for one in leased])
    acked = time.perf_counter()
    assert len(leased) == batch
    return claimed - began, acked - began


def _short(count: int) -> str:
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1_000} k"
