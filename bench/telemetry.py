"""What telemetry costs: a Worker that drains no-ops with and without it, turn about."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import postroom
from bench.measure import Case
from bench.stage import Stage, fill
from postroom import Delivery, Worker

#: Drains of a trial, with and without turn about. Those that follow each other are compared, and the median
#: of these ratios counts: what disturbs the machine for longer disturbs both. A drain in memory is over in a
#: quarter of a second, and how the threads of a worker meet in it makes two of them differ by a fifth.
_PAIRS, _PAIRS_IN_MEMORY = 11, 41


def cases(stage: Stage) -> list[Case]:
    count = stage.size(20_000, 3_000)
    figures = (
        stage.figure("Worker drain, telemetry off", "/s"),
        stage.figure("Worker drain, telemetry on", "/s"),
        stage.figure("telemetry on ÷ off, drain", "×"),
        stage.figure("telemetry on ÷ off, processor time", "×"),
    )
    return [Case("telemetry: Worker drain", figures, lambda: _trial(stage, count))]


def _trial(stage: Stage, count: int) -> Sequence[float]:
    spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    pairs = stage.size(_PAIRS if stage.kind.shared else _PAIRS_IN_MEMORY, _PAIRS)
    for number in range(pairs):
        for on in (number % 2 == 0, number % 2 == 1):
            spent[on].append(_drain(stage, count, on=on))
    both = list(zip(spent[False], spent[True], strict=True))
    rates = [count / median(wall for wall, _ in spent[on]) for on in (False, True)]
    return [*rates, median(off[0] / on[0] for off, on in both), median(on[1] / off[1] for off, on in both)]


def _drain(stage: Stage, count: int, *, on: bool) -> tuple[float, float]:
    """Seconds, and seconds of processor time."""
    handled: list[None] = []

    def handler(delivery: Delivery) -> None:
        handled.append(None)

    with stage.url() as url, postroom.open(url, telemetry=on) as room:
        queue = room.queue("bench")
        fill(queue, count)
        wall, cpu = time.perf_counter(), time.process_time()
        Worker(room, {"bench": handler}).run(drain=True)
        spent = time.perf_counter() - wall, time.process_time() - cpu
    assert len(handled) == count, f"{len(handled)} of {count} were handled"
    return spent
