"""What was settled lately: told again to a store that came back, which may have lost its last writes."""

from __future__ import annotations

from collections import deque

from postroom.engine import Engine
from postroom.limits import MAX_BATCH
from postroom.model import Settlement

#: Settles are repeated from so long before the last one (seconds): what Redis may lose with `everysec`.
_SPAN = 2.0


class RecentSettles:
    """The settles of one consumer, the newest 10,000 at most."""

    def __init__(self) -> None:
        self._settles: deque[tuple[float, Settlement]] = deque(maxlen=10 * MAX_BATCH)

    def note(self, settlement: Settlement, now: float) -> None:
        """This was answered; `now` is on the monotonic clock."""
        self._settles.append((now, settlement))

    def repeat(self, engine: Engine) -> None:
        """Settle again what was settled in the last 2 s. What the store still knows of is `gone`: no harm."""
        if not self._settles:
            return
        since = self._settles[-1][0] - _SPAN
        by_queue: dict[str, list[Settlement]] = {}
        for at, settlement in list(self._settles):
            if at >= since:
                by_queue.setdefault(settlement.receipt.queue, []).append(settlement)
        for queue, again in by_queue.items():
            for first in range(0, len(again), MAX_BATCH):
                engine.settle(queue, again[first : first + MAX_BATCH])
        self._settles.clear()
