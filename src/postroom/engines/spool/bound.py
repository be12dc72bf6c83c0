"""How much the spool may hold, and how much it does: counted every second, and what was put since."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from postroom.engines.spool.mover import Fill
from postroom.errors import QueueFull
from postroom.model import NewMessage

#: As many as a host may keep for a Redis that is away, and as many bytes of bodies.
CAPACITY = 100_000
MAX_BYTES = 512 * 2**20


class Bound:
    """Bytes are about right: the number of messages by the mean size of what this process has put."""

    def __init__(self, capacity: int, max_bytes: int, counted: Callable[[], Fill]) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._counted = counted
        self._lock = threading.Lock()
        self._last: Fill | None = None
        self._since = 0
        self._count = self._bytes = 0

    def admit(self, messages: Sequence[NewMessage]) -> None:
        """Refuse what would be too much: QueueFull."""
        size = sum(len(message.body) for message in messages)
        if self.messages + len(messages) > self._capacity or self.bytes + size > self._max_bytes:
            raise QueueFull(
                f"Redis is away, and the spool is full: {self.messages:,} of {self._capacity:,} messages,"
                f" about {self.bytes:,} of {self._max_bytes:,} bytes",
                reason="spool",
            )

    def add(self, messages: Sequence[NewMessage]) -> None:
        """These were put."""
        with self._lock:
            self._since += len(messages)
            self._count += len(messages)
            self._bytes += sum(len(message.body) for message in messages)

    @property
    def messages(self) -> int:
        fill = self._counted()
        with self._lock:
            if fill is not self._last:
                self._last, self._since = fill, 0
            return fill.total + self._since

    @property
    def bytes(self) -> int:
        return self.messages * self._bytes // self._count if self._count else 0

    def forked(self) -> None:
        self._lock = threading.Lock()
