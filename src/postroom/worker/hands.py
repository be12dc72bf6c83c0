"""The hands of a worker: how many are free, and so how much of each queue may be started and claimed."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.delivery import Delivery
from postroom.limits import MAX_BATCH
from postroom.role import Share
from postroom.worker.held import Held
from postroom.worker.pace import Pace

Starts = dict[str, list[Delivery]]


class Hands:
    """What has begun, in all and of each queue with a share, and what may."""

    def __init__(
        self, count: int, prefetch: int | None, shares: Mapping[str, Share], pace: Pace, held: Held
    ) -> None:
        self._count = count
        self._prefetch = prefetch
        self._shares = shares
        self._pace = pace
        self._held = held
        self._begun = 0
        #: The same of each queue with a share.
        self._of_share = dict.fromkeys(shares, 0)

    def take(self, queue: str) -> None:
        self._begun += 1
        if self._shares and queue in self._shares:
            self._of_share[queue] += 1

    def leave(self, queue: str) -> None:
        self._begun -= 1
        if self._shares and queue in self._shares:
            self._of_share[queue] -= 1

    @property
    def are_busy(self) -> bool:
        """Whether what begins now has to wait for a hand."""
        return self._begun >= self._count

    @property
    def are_behind(self) -> bool:
        """Whether something that has begun waits: what was given to a free hand does not, taken up or not."""
        return self._begun > self._count

    def free(self) -> int:
        """How many more may be started."""
        return self._pace.all_started(self._count) - self._begun

    def ahead(self) -> int:
        """How many may be held unstarted."""
        return self._pace.held(self._count) if self._prefetch is None else self._prefetch

    def space(self, starting: int = 0) -> int:
        """What to claim: enough for the free hands, and more only when half of what may be held is free."""
        free, ahead = self.free() - starting, self.ahead()
        space = free + ahead - len(self._held)
        return space if free > 0 or space >= ahead / 2 else 0

    def startable(self, queue: str, starts: Starts) -> int:
        """How many more of this queue may be started: by free hands, and within its share."""
        free = max(0, self.free() - sum(map(len, starts.values())))
        share = self._shares.get(queue)
        if share is None:
            return free
        return share.startable(free, self._of_share[queue] + len(starts.get(queue, ())))

    def claimable(self, queue: str, startable: int) -> int:
        """How many more of this queue may be claimed, by its share alone."""
        share = self._shares.get(queue)
        if share is None:
            return MAX_BATCH
        space = share.claimable(startable, len(self._held.of(queue)))
        if startable == 0 or self._prefetch is not None:
            # What waits for its share must not take the place of what a free hand could begin.
            space = min(space, startable + max(0, self.ahead() - len(self._held)))
        return space
