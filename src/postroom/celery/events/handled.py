"""What this process has handled: an event that arrives twice for the same attempt runs once.

Twice arrives what a publisher sent again because the first confirm was lost, a retry whose worker died before
its ack, and what RabbitMQ gives again after a lost connection. A process knows of its own only, and of
so many; what must never run twice has to ask a store.
"""

from __future__ import annotations

import threading

#: Attempts that are remembered, about 3 MB; the oldest go first.
MOST = 10_000

#: Event, handler, attempt; and which replay of it, as that is meant to run once more.
Attempt = tuple[str, str, int, int]


class Handled:
    """The attempts that ended here, in whichever way. For any number of threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._attempts: dict[Attempt, None] = {}

    def add(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts[attempt] = None
            if len(self._attempts) > self._most:
                del self._attempts[next(iter(self._attempts))]

    def absorbs(self, attempt: Attempt) -> bool:
        """Whether it was handled here before."""
        with self._lock:
            return attempt in self._attempts
