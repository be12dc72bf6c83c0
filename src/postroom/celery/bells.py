"""The bells of one connection: one for each queue it consumes, one for all broadcasts, one of its own.

A queue's bell is armed while the queue has nothing to give, and only then: a busy consumer asks anyway, and
rings that it does not need would cost every producer a token. Broadcasts are always listened for.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterable
from typing import Any

from postroom.engine import Engine
from postroom.waiter import Waiter


class Bells:
    """Waiters for these queues and topics, in an event loop if there is one. Use from one thread."""

    def __init__(
        self,
        engine: Engine,
        queues: Iterable[str],
        topics: Iterable[str],
        loop: Any,
        heard: Callable[[frozenset[str]], None],
    ) -> None:
        self._loop = loop
        self._heard = heard
        self._topics = engine.waiter((), topics)
        self._queues = {queue: engine.waiter([queue]) for queue in queues}
        self._armed: set[str] = set()
        self._by_fd = {waiter.fileno(): waiter for waiter in (self._topics, *self._queues.values())}
        # Its own bell, which a busy worker rings with every batch. No waiter: that would cost more.
        self._hand, self._clapper = socket.socketpair()
        self._hand.setblocking(False)
        self._clapper.setblocking(False)
        self._rung = False
        self._poll = select.poll()
        for fd in (self._clapper.fileno(), *self._by_fd):
            self._poll.register(fd, select.POLLIN)
            if loop is not None:
                loop.add_reader(fd, self._rang, fd)
        self._topics.arm()

    def armed(self, queue: str) -> Waiter | None:
        """The bell of this queue, if it would ring."""
        return self._queues[queue] if queue in self._armed else None

    def arm(self, queue: str) -> None:
        """Listen for this queue. Whatever came in before rang for nobody: ask once more."""
        self._armed.add(queue)
        self._queues[queue].arm()

    def disarm(self, queue: str) -> None:
        if queue in self._armed:
            self._armed.discard(queue)
            self._queues[queue].disarm()

    def disarm_all(self) -> None:
        """Nothing more can be taken: rings go to others."""
        for queue in list(self._armed):
            self.disarm(queue)

    def ring(self) -> None:
        """Wake whoever waits here; from any thread."""
        if not self._rung:
            self._rung = True
            with contextlib.suppress(OSError):  # closed, or full of rings: awake either way
                self._hand.send(b"\0")

    def wait(self, seconds: float) -> None:
        """Sleep until something rings, and tell what it was."""
        for fd, _ in self._poll.poll(max(0.0, seconds) * 1_000):
            self._rang(fd)

    def _rang(self, fd: int) -> None:
        if waiter := self._by_fd.get(fd):
            self._heard(waiter.clear())
        elif fd == self._clapper.fileno():
            with contextlib.suppress(OSError):
                self._clapper.recv(64)
            # Last: who rings before this is served by the round that follows, without another byte.
            self._rung = False

    def close(self) -> None:
        if self._loop is not None:
            for fd in (self._clapper.fileno(), *self._by_fd):
                self._loop.remove(fd)
        for waiter in self._by_fd.values():
            waiter.close()
        self._hand.close()
        self._clapper.close()
        self._by_fd = {}
