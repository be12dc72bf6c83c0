"""Waking the sleepers: which waiter rings when something can be claimed or read."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterable
from itertools import islice

from postroom.limits import check_name
from postroom.waiter import Waiter

#: Extra wait of the first idle consumers, by rank: one wakes on time, two stand by for it.
_SPREAD = (0, 25, 50)
_STAND_BACK = 1_000


class Bells:
    """Who waits for which name, in the order in which they began to.

    All methods but those of a waiter itself are called with the engine's lock held.
    """

    def __init__(self, lock: threading.Lock, hand_on: Callable[[str, bool], None]) -> None:
        self.lock: threading.Lock = lock
        #: Called, without the lock, when a waiter leaves a queue: (name, whether it leaves a ring unused).
        self.hand_on = hand_on
        self._armed: dict[str, dict[BellWaiter, None]] = {}
        self._open: set[BellWaiter] = set()

    def waiter(self, queues: Iterable[str], topics: Iterable[str]) -> Waiter:
        waiter = BellWaiter(self, frozenset(queues), frozenset(topics))
        with self.lock:
            self._open.add(waiter)
        return waiter

    def ring(self, name: str, count: int) -> int:
        """Tell up to `count` of those who wait for this queue, sleepers before those awake already."""
        armed = self._armed.get(name)
        if not armed:
            return 0
        untold = sorted((waiter for waiter in armed if name not in waiter.rung), key=BellWaiter.is_awake)
        for waiter in untold[:count]:
            waiter.rouse(name)
        return min(count, len(untold))

    def ring_all(self, name: str) -> None:
        for waiter in list(self._armed.get(name, ())):
            waiter.rouse(name)

    def rank(self, name: str, waiter: Waiter) -> int:
        """How many began to wait for this name before this one; all beyond the first few are alike."""
        first = list(islice(self._armed.get(name, ()), len(_SPREAD)))
        return first.index(waiter) if waiter in first else len(_SPREAD)

    def arm(self, waiter: BellWaiter) -> None:
        for name in waiter.names:
            if name not in self._armed:
                self._armed[name] = {}
                self.first_armed(name)
            self._armed[name][waiter] = None

    def disarm(self, waiter: BellWaiter) -> list[tuple[str, bool]]:
        """Nothing rings for it any more. Returns the queues it leaves to others: with a ring unused?"""
        unused = waiter.rung & waiter.names
        waiter.rung -= unused  # what remains was rung from inside its process, for itself alone
        left = [name for name in waiter.names if waiter in self._armed.get(name, ())]
        for name in left:
            del self._armed[name][waiter]
            if not self._armed[name]:
                del self._armed[name]
                self.last_disarmed(name)
        return [(name, name in unused) for name in left if name in waiter.queues]

    def first_armed(self, name: str) -> None:
        """Somebody waits for this name from now on."""

    def last_disarmed(self, name: str) -> None:
        """Nobody waits for this name any more."""

    @property
    def anybody_armed(self) -> bool:
        return bool(self._armed)

    def armed(self) -> list[str]:
        """What somebody waits for."""
        return list(self._armed)

    def forget(self, waiter: BellWaiter) -> list[tuple[str, bool]]:
        self._open.discard(waiter)
        return self.disarm(waiter)

    def reset(self, lock: threading.Lock) -> None:
        """In a forked child: every waiter belongs to the parent, and the lock may be held by nobody."""
        self.lock = lock
        self._armed.clear()
        self._open.clear()

    def close(self) -> None:
        """The engine ends: everybody wakes."""
        for waiter in self._open:
            waiter.rouse("")


class BellWaiter(Waiter):
    """A socket pair: the engine writes one byte to whoever it wakes."""

    def __init__(self, bells: Bells, queues: frozenset[str], topics: frozenset[str]) -> None:
        for name in queues:
            check_name(name)
        for name in topics:
            check_name(name, "topic")
        self._bells = bells
        self.queues = queues
        # A topic and a queue may share a name; a waiter hears both.
        self.names: frozenset[str] = queues | frozenset(map(topic_bell, topics))
        self.rung: set[str] = set()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def is_awake(self) -> bool:
        return bool(self.rung)

    def fileno(self) -> int:
        return self._reader.fileno()

    def arm(self) -> None:
        with self._bells.lock:
            self._bells.arm(self)

    def disarm(self) -> None:
        with self._bells.lock:
            left = self._bells.disarm(self)
            if not self.rung:
                self._drain()
        self._hand_on(left)

    def _hand_on(self, left: list[tuple[str, bool]]) -> None:
        for name, unused in left:
            self._bells.hand_on(name, unused)

    def clear(self) -> frozenset[str]:
        with self._bells.lock:
            rung, self.rung = self.rung, set()
            self._drain()
        return frozenset(map(_plain, rung))

    def wait(self, timeout: float | None = None) -> frozenset[str]:
        self._poll.poll(None if timeout is None else max(0.0, timeout) * 1_000)
        return self.clear()

    def ring(self, name: str = "") -> None:
        with self._bells.lock:
            self.rouse(name)

    def rouse(self, name: str) -> None:
        if not self.rung:
            with contextlib.suppress(OSError):  # closed, or a byte is pending already: awake either way
                self._writer.send(b"\0")
        self.rung.add(name)

    def close(self) -> None:
        with self._bells.lock:
            if self._reader.fileno() < 0:
                return
            left = self._bells.forget(self)
            self._reader.close()
            self._writer.close()
        self._hand_on(left)

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            self._reader.recv(64)


def spread_of(rank: int) -> int:
    """How much later than the first a waiter of this rank need wake."""
    return _SPREAD[rank] if rank < len(_SPREAD) else _STAND_BACK


def topic_bell(topic: str) -> str:
    # No queue name holds a control character, so no queue has this name.
    return f"\0{topic}"


def is_topic(bell: str) -> bool:
    return bell.startswith("\0")


def _plain(name: str) -> str:
    return name.removeprefix("\0")
