"""How things stand, in numbers."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

#: What every queue counts, since it came into being.
COUNTERS = (
    "put", "claimed", "acked", "retried", "released", "reclaimed", "dead",
    "expired", "evicted", "cancelled", "replayed", "discarded", "purged",
)  # fmt: skip


class Memory(NamedTuple):
    """What a store has used of its memory, in bytes; `maxmemory` None: it has no limit of its own."""

    used: int
    maxmemory: int | None = None


class Tally(NamedTuple):
    """How many there are from each moment until the next. Unless `whole`, the last are not counted."""

    counts: list[int]
    whole: bool = True


class Backlog(NamedTuple):
    """What waits in a queue: ready messages by priority, the most urgent level first and none that is empty,
    and how many scheduled ones were tried before. Where it does not say `whole`, there are at least so many.
    """

    levels: dict[int, int]
    retrying: int
    levels_whole: bool = True
    retrying_whole: bool = True


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How one queue stands. `oldest` is the age of the oldest message at the head of its level (with
    aging, where levels mix: of the next ones), `next_priority` that of the message to be claimed next,
    `paused_until` when a pause ends by itself, `throttled` how long (ms) until its rate lets the next claim
    through; 0: it does, or there is no rate.
    """

    queue: str
    ready: int = 0
    scheduled: int = 0
    processing: int = 0
    overdue: int = 0
    dead: int = 0
    oldest: int = 0
    next_priority: int | None = None
    paused: bool = False
    paused_until: int | None = None
    throttled: int = 0
    counters: dict[str, int] = {}

    @property
    def depth(self) -> int:
        return self.ready + self.scheduled
