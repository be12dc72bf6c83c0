"""Roles: what one kind of worker does, and how much of itself it gives to each queue. Pure values.

A role belongs to no door: the Python worker and the Celery worker both start from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from postroom.limits import MAX_BATCH, check_between
from postroom.rotation import Order


@dataclass(frozen=True, slots=True)
class Share:
    """What one queue may have of one worker.

    concurrency   the most of its messages that a worker works on at once; None: as many as it has hands
    prefetch      the most that it holds unstarted beside them; None: none if there is a concurrency, so
                  that this is all that is in flight, and else as many as the worker holds anyway
    """

    concurrency: int | None = None
    prefetch: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            check_between("concurrency", self.concurrency, 1, MAX_BATCH)
        if self.prefetch is not None:
            check_between("prefetch", self.prefetch, 0, MAX_BATCH)

    def startable(self, free: int, started: int) -> int:
        """How many more may be started, by so many free hands while so many are."""
        return max(0, free if self.concurrency is None else min(free, self.concurrency - started))

    def claimable(self, startable: int, held: int) -> int:
        """How many more may be claimed: for free hands at once, to hold only when half of that is free."""
        if self == WHOLE:
            return MAX_BATCH
        ahead = self.prefetch or 0
        space = ahead - held
        return max(0, startable + space) if startable > 0 or space >= ahead / 2 else 0


#: What a queue has that nobody gave a share: everything.
WHOLE = Share()


@dataclass(frozen=True, slots=True)
class Role:
    """What one kind of worker does.

    queues        what it works on
    concurrency   the size of its pool: how many messages it works on at once, whatever their queue
    prefetch      how many it holds unstarted beside them; None: as many as will begin within a moment
    order         the order between its queues, by `weights` if weighted
    stop_timeout  how long a stop waits for what runs (ms)
    shares        what each queue may have of it; a queue without one may have all
    """

    name: str
    queues: tuple[str, ...]
    concurrency: int = 1
    prefetch: int | None = None
    order: Order = "round_robin"
    weights: Mapping[str, int] = field(default_factory=dict)
    stop_timeout: int = 30_000
    shares: Mapping[str, Share] = field(default_factory=dict)
