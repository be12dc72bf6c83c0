"""What an operator should know of a room: what its engine finds, and what the keeper and the queues tell."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from postroom.engine import QueueInfo
from postroom.findings import Finding, bad, fine, worth_a_change
from postroom.keeper import leader
from postroom.limits import MAX_BATCH
from postroom.room import Room
from postroom.stats import QueueStats
from postroom.version import __version__

#: From this part of a limit on it is worth a change.
_NEARLY = 0.9


def examine(room: Room) -> list[Finding]:
    """Everything that was looked at; changes nothing. Raises EngineUnavailable if the store is away."""
    release = f"Postroom {__version__}, Python {platform.python_version()}"
    return [fine("release", release), *room.engine.inspect(), _keeper(room), *_queues(room), *_sla(room)]


def _keeper(room: Room) -> Finding:
    leads = leader(room.engine)
    if leads is not None:
        return fine("keeper", f"one leads: {leads.name}" if leads.name else "one leads")
    text = "none leads: queues that nobody consumes are not swept"
    advice = "start a worker: each is a candidate"
    if room.config.schedules:
        return bad("keeper", f"{text}, and {len(room.config.schedules)} schedules do not run", advice)
    return worth_a_change("keeper", text, advice)


def _queues(room: Room) -> Iterator[Finding]:
    infos = room.queues()[:MAX_BATCH]
    found = [finding for info in infos for finding in _queue(info, room.engine.stats(info.name))]
    yield from found or [fine("queues", f"{len(infos)} queues, none near a limit")]


def _queue(info: QueueInfo, stats: QueueStats) -> Iterator[Finding]:
    name, policy = f"queue {info.name}", info.policy
    if info.paused:
        reason = f": {info.pause_reason}" if info.pause_reason else ""
        yield worth_a_change(name, f"paused{reason}", "resume it when it may go on")
    if policy.capacity is not None and stats.depth >= _NEARLY * policy.capacity:
        text = f"{stats.depth:,} wait, and its capacity is {policy.capacity:,}"
        yield worth_a_change(name, text, "add workers: beyond it puts are refused")
    if policy.dead_limit is not None and stats.dead >= _NEARLY * policy.dead_limit:
        text = f"{stats.dead:,} dead letters, and {policy.dead_limit:,} are kept"
        yield worth_a_change(name, text, "replay or discard some: beyond that the oldest are let go of")
    if stats.overdue:
        text = f"{stats.overdue:,} deliveries are overdue"
        yield worth_a_change(name, text, "their workers died or are too slow; a keeper takes them back")


def _sla(room: Room) -> Iterator[Finding]:
    for sla in room.sla():
        if sla.met is False and sla.p95 is not None and sla.target is not None:
            text = f"p95 of the wait is {sla.p95 / 1_000:.1f} s, promised are {sla.target / 1_000:g} s"
            yield worth_a_change(f"queue {sla.queue}", text, "add workers, or promise less")
