"""Waiting for both sides at once: one descriptor that is readable when either rings."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable

from postroom.engine import Engine
from postroom.engines.spool.line import Line, quietly
from postroom.errors import Closed, EngineUnavailable
from postroom.waiter import Waiter


class SpoolWaiter(Waiter):
    """A waiter of the spool and, while the line is open, one of Redis.

    Nothing is asked of Redis's waiter while Redis is away: that could take as long as any other call.
    """

    def __init__(self, line: Line, near: Waiter, make_far: Callable[[Engine], Waiter]) -> None:
        self.near = near
        self.far: Waiter | None = None
        self._line = line
        self._make_far = make_far
        self._armed = False
        self._attached = False
        self._attaching = False
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._epoll.register(near.fileno(), select.EPOLLIN)
        self.follow()

    def follow(self) -> None:
        """Listen to Redis if, and only if, the line is open."""
        while self._begin_to_attach():
            # Not under the lock: a call that fails switches, and a switch has every waiter follow.
            far = self._reach_far()
            with self._lock:
                self._attaching = False
                if far is None or self._epoll.closed:
                    return
                self._epoll.register(far.fileno(), select.EPOLLIN)
                self._attached = True

    def _begin_to_attach(self) -> bool:
        with self._lock:
            if self._epoll.closed or self._attaching:
                return False
            if not self._line.active and self._attached and self.far:
                self._attached = False
                self._epoll.unregister(self.far.fileno())
            self._attaching = self._line.active and not self._attached
            return self._attaching

    def _reach_far(self) -> Waiter | None:
        """Redis's waiter, armed if this one is; None: Redis is away again."""
        try:
            if self.far is None:
                self.far = self._line.ask(self._make_far, on_late=lambda late: late.close())
            far = self.far
            if self._armed:
                self._line.ask(lambda _: far.arm())
        except (EngineUnavailable, Closed):
            return None
        return far

    # --- the contract -----------------------------------------------------------------------

    def fileno(self) -> int:
        return self._epoll.fileno()

    def arm(self) -> None:
        self._armed = True
        self.near.arm()
        self._with_far(lambda far: far.arm())

    def disarm(self) -> None:
        self._armed = False
        self.near.disarm()
        self._with_far(lambda far: far.disarm())

    def _with_far(self, do: Callable[[Waiter], None]) -> None:
        far = self.far
        if far and self._line.active:
            quietly(lambda: self._line.ask(lambda _: do(far)))

    def clear(self) -> frozenset[str]:
        return self._take(self._poll(0))

    def wait(self, timeout: float | None = None) -> frozenset[str]:
        return self._take(self._poll(timeout))

    def _poll(self, timeout: float | None) -> set[int]:
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            return {fd for fd, _ in self._epoll.poll(None if timeout is None else max(0.0, timeout))}
        return set()

    def _take(self, rung: set[int]) -> frozenset[str]:
        names = self.near.clear()
        far = self.far
        if far and self._attached and far.fileno() in rung:
            with contextlib.suppress(EngineUnavailable, Closed):
                names |= self._line.ask(lambda _: far.clear())
        return names

    def ring(self, name: str = "") -> None:
        self.near.ring(name)

    def close(self) -> None:
        with self._lock:
            if self._epoll.closed:
                return
            self._epoll.close()
            self.near.close()
            far = self.far
        if far and self._line.active:
            quietly(lambda: self._line.ask(lambda _: far.close()))
        elif far:
            # It may want to hand its ring on, and nobody has the time to wait for that.
            self._line.errands.start(far.close)
