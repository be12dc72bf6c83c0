"""What was settled lately: told again to a store that came back, which may have lost its last writes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from postroom.engine import Engine
from postroom.limits import MAX_BATCH
from postroom.model import Settlement

#: Settles are repeated from so long before the last one (seconds): what Redis may lose with `everysec`.
_SPAN = 2.0


class RecentSettles:
    """The settles of one consumer in its last 2 s, the newest 10,000 at most."""

    def __init__(self) -> None:
        self._settles: deque[tuple[float, Settlement]] = deque(maxlen=10 * MAX_BATCH)
        #: Reentrant: a signal handler may settle, whatever it has interrupted.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._settles)

    def note(self, settlements: Iterable[Settlement], now: float) -> None:
        """These were answered; `now` is on the monotonic clock. What is too old to be repeated goes."""
        with self._lock:
            self._settles.extend((now, settlement) for settlement in settlements)
            while self._settles and self._settles[0][0] < now - _SPAN:
                self._settles.popleft()

    def repeat(self, engine: Engine) -> None:
        """Settle again what was settled in the last 2 s. What the store still knows of is `gone`: no harm."""
        with self._lock:
            recent = list(self._settles)
        by_queue: dict[str, list[Settlement]] = {}
        for at, settlement in recent:
            if at >= recent[-1][0] - _SPAN:
                by_queue.setdefault(settlement.receipt.queue, []).append(settlement)
        for queue, again in by_queue.items():
            for first in range(0, len(again), MAX_BATCH):
                engine.settle(queue, again[first : first + MAX_BATCH])
        self._settles.clear()
