"""How soon the messages of a dead consumer are taken back, with one live consumer: from the deadline to the
step that reclaims, both by the engine's clock, and to the first line of the handler.

Once in a queue where nothing else happens, and once where a worker drains a long backlog while many others
are in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.measure import Case, wait_until
from bench.stage import Stage, fill
from postroom import Delivery, Policy, Worker
from postroom.engine import ClaimRequest
from postroom.queue import Queue

#: The dead consumer held so many of each claim; their deadlines begin after a lead, so far apart (ms).
_EACH, _LEAD, _SPACING = 5, 700, 40
_DAY = 86_400_000


def cases(stage: Stage) -> list[Case]:
    return [_idle(stage), _busy(stage)] if stage.engine == "redis" else []


def _case(stage: Stage, how: str, trial: Callable[[], list[float]], **options: Any) -> Case:
    reclaimed = stage.figure(f"overdue, {how}: reclaimed after at most", "ms")
    begun = stage.figure(f"overdue, {how}: begun after at most", "ms")
    return Case(f"overdue, {how}", (reclaimed, begun), trial, **options)


def _idle(stage: Stage) -> Case:
    claims = stage.size(50, 10)

    def trial() -> list[float]:
        with stage.queue() as queue:
            fill(queue, claims * _EACH)
            return _lateness(queue, claims)

    return _case(stage, "idle", trial)


def _busy(stage: Stage) -> Case:
    """The queue is loaded once; a round uses up some of it, which the next one puts in again."""
    claims = stage.size(50, 10)
    ready, in_flight = stage.size(1_000_000, 50_000), stage.size(100_000, 2_000)
    loaded: list[Queue] = []

    def prepare() -> None:
        queue = stage.kept.enter_context(stage.queue())
        # With a short lease the silence between two rounds would count as an outage (promise 11).
        queue.room.queue(queue.name, Policy(lease=_DAY))
        stage.say(f"for the overdue: putting {ready + in_flight:,} messages")
        fill(queue, in_flight)
        for _ in range(0, in_flight, 1_000):
            queue.room.engine.claim(queue.name, ClaimRequest(n=1_000, lease=_DAY, start=0))
        fill(queue, ready, stage.say)
        loaded.append(queue)

    def trial() -> list[float]:
        (queue,) = loaded
        fill(queue, ready - queue.stats().ready)
        return _lateness(queue, claims)

    return _case(stage, "busy", trial, prepare=prepare)


def _lateness(queue: Queue, claims: int) -> list[float]:
    """Milliseconds from the deadline to the reclaim, and to the handler; the most of each."""
    engine, name = queue.room.engine, queue.name
    cursor = engine.log(name).cursor
    deadlines = _abandon(queue, claims)
    begun = _begun(queue, deadlines)
    reclaimed: dict[str, int] = {}
    while (found := engine.log(name, after=cursor, limit=1_000)).entries:
        cursor = found.cursor
        reclaimed |= {id: entry.at for entry in found.entries if entry.event == "requeue" for id in entry.ids}
    assert reclaimed.keys() >= deadlines.keys(), "not everything was reclaimed"
    late = max(reclaimed[id] - deadline for id, deadline in deadlines.items())
    return [late, max(begun[id] - deadline for id, deadline in deadlines.items())]


def _abandon(queue: Queue, claims: int) -> dict[str, int]:
    """The deadlines of messages whose consumer does not live, by id."""
    deadlines: dict[str, int] = {}
    for number in range(claims):
        request = ClaimRequest(n=_EACH, lease=_LEAD + number * _SPACING, start=0)
        claimed = queue.room.engine.claim(queue.name, request).deliveries
        deadlines |= {leased.message.id: leased.deadline for leased in claimed}
    assert len(deadlines) == claims * _EACH
    return deadlines


def _begun(queue: Queue, deadlines: dict[str, int]) -> dict[str, float]:
    """When each of them was begun (milliseconds); everything else is a no-op."""
    begun: dict[str, float] = {}

    def handler(delivery: Delivery) -> None:
        if delivery.id in deadlines:
            begun[delivery.id] = time.time_ns() / 1e6

    with Worker(queue.room, {queue.name: handler}):
        wait_until(lambda: len(begun) == len(deadlines), 60)
    return begun
