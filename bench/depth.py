"""Whether a claim costs the same however much waits: the same batch beside 1 k, 100 k and 1 M messages."""

from __future__ import annotations

import gc
import secrets
import statistics
import time

import postroom
from bench.measure import Case, Figure, Target
from bench.stage import Stage, fill
from postroom.engine import ClaimRequest
from postroom.model import Settlement
from postroom.queue import Queue

_BATCH = 100


def cases(stage: Stage) -> list[Case]:
    depths = (1_000, 10_000, 100_000) if stage.quick else (1_000, 100_000, 1_000_000)
    batches = stage.size(200, 50)
    queues = _Queues(stage.url, depths)
    least, *others = map(_short, depths)
    costs = [Figure(f"claim+ack of {_BATCH} with {depth} waiting", "µs") for depth in (least, *others)]
    ratios = [
        Figure(f"the same: {depth} ÷ {least}", "×", None if stage.quick else Target(1.5)) for depth in others
    ]

    def trial() -> list[float]:
        spent = _spent(queues.filled(), batches)
        return [*spent, *(cost / spent[0] for cost in spent[1:])]

    return [Case("claim cost by depth", (*costs, *ratios), trial)]


class _Queues:
    """One queue for each depth, filled when first asked for and kept that deep from then on."""

    def __init__(self, url: str, depths: tuple[int, ...]) -> None:
        self._url = url
        self._depths = depths
        self._queues: list[Queue] = []

    def filled(self) -> list[Queue]:
        if not self._queues:
            room = postroom.open(self._url)
            self._queues = [room.queue(f"bench-{secrets.token_hex(8)}") for _ in self._depths]
            for queue, depth in zip(self._queues, self._depths, strict=True):
                fill(queue, depth)
            gc.collect()
            gc.freeze()
        return self._queues


def _spent(queues: list[Queue], batches: int) -> list[float]:
    """The median microseconds for a batch of each queue, the queues in turn and without the collector."""
    times: list[list[float]] = [[] for _ in queues]
    gc.disable()
    try:
        for _ in range(batches):
            for queue, spent in zip(queues, times, strict=True):
                spent.append(_claim_and_ack(queue) * 1e6)
                fill(queue, _BATCH)
    finally:
        gc.enable()
    return [statistics.median(spent) for spent in times]


def _claim_and_ack(queue: Queue) -> float:
    engine, name = queue.room.engine, queue.name
    began = time.perf_counter()
    leased = engine.claim(name, ClaimRequest(n=_BATCH)).deliveries
    engine.settle(name, [Settlement(one.receipt) for one in leased])
    spent = time.perf_counter() - began
    assert len(leased) == _BATCH
    return spent


def _short(count: int) -> str:
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1_000} k"
