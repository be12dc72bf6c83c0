"""What telemetry costs: a Worker that drains no-ops with and without it, turn about."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import postroom
from bench.measure import Case, rate
from bench.stage import Stage, fill
from postroom import Delivery, Worker

#: Pairs of one trial: which of a pair comes first changes, and their ratios are what counts.
_PAIRS = 5


def cases(stage: Stage) -> list[Case]:
    count = stage.size(20_000, 3_000)
    names = "Worker drain, telemetry off", "Worker drain, telemetry on", "telemetry on ÷ off, drain"
    figures = tuple(stage.figure(name, unit) for name, unit in zip(names, ("/s", "/s", "×"), strict=True))
    return [Case("telemetry: Worker drain", figures, lambda: _trial(stage, count))]


def _trial(stage: Stage, count: int) -> Sequence[float]:
    speeds: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(_PAIRS):
        for on in (pair % 2 == 0, pair % 2 == 1):
            speeds[on].append(_drain(stage, count, on))
    ratios = [on / off for on, off in zip(speeds[True], speeds[False], strict=True)]
    without, within = (statistics.median(speeds[which]) for which in (False, True))
    return [without, within, statistics.median(ratios)]


def _drain(stage: Stage, count: int, on: bool) -> float:
    handled: list[None] = []

    def handler(delivery: Delivery) -> None:
        handled.append(None)

    with stage.url() as url, postroom.open(url, telemetry=on) as room:
        queue = room.queue("bench")
        fill(queue, count)
        speed = rate(count, lambda: Worker(room, {"bench": handler}).run(drain=True))
        measured = {sla.queue: sla.count for sla in room.sla()}
    assert len(handled) == count, f"{len(handled)} of {count} were handled"
    assert on or not measured["bench"], "telemetry was on"
    return speed
