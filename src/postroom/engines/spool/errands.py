"""Calls that nobody waits for longer than agreed.

A client's own timeouts bound each of its steps, and a call may take several: look at an idle connection,
connect, greet, send, read. So the call is made on a thread of its own, and whoever waits for it leaves in
time. The call goes on; it ends when the client gives up, and what it brings then is late.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from postroom.errors import PostroomError

T = TypeVar("T")

#: A thread that had nothing to do for this long ends (seconds).
_IDLE = 30.0


class _Errand(Generic[T]):
    def __init__(self, work: Callable[[], T], on_late: Callable[[T], object] | None) -> None:
        self.work = work
        self.on_late = on_late
        self.done = threading.Lock()
        self.done.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.finished = False
        self.left = False


class Errands:
    """Threads that make calls for others; as many as there are calls under way."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Errand[Any] | None] = queue.SimpleQueue()
        self._idle = 0

    def run(self, work: Callable[[], T], on_late: Callable[[T], object] | None = None) -> T:
        """What the work gives or raises; TimeoutError if that takes too long.

        What it gives after that is handed to `on_late`.
        """
        errand = _Errand(work, on_late)
        self._hand_out(errand)
        try:
            errand.done.acquire(timeout=self.timeout)
        finally:
            with self._lock:
                errand.left = not errand.finished
        if errand.left:
            raise TimeoutError(f"no answer within {self.timeout:g} s")
        if errand.error is not None:
            try:
                raise errand.error
            finally:
                errand.error = None  # it holds this frame, which holds it
        return errand.result  # type: ignore[return-value]

    def start(self, work: Callable[[], object]) -> None:
        """Have it done, and wait for nothing."""
        errand = _Errand(work, None)
        errand.left = True
        self._hand_out(errand)

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._waiting.put(None)

    def _hand_out(self, errand: _Errand[Any]) -> None:
        with self._lock:
            ready = self._idle > 0
            self._idle -= ready
        if not ready:
            threading.Thread(target=self._serve, name="postroom-errand", daemon=True).start()
        self._waiting.put(errand)

    # --- on a thread of its own -------------------------------------------------------------

    def _serve(self) -> None:
        while errand := self._next():
            self._do(errand)
            del errand  # while nothing is to be done, nothing is kept

    def _next(self) -> _Errand[Any] | None:
        while True:
            try:
                return self._waiting.get(timeout=_IDLE)
            except queue.Empty:
                with self._lock:
                    if self._idle > 0:  # else an errand is on its way to us
                        self._idle -= 1
                        return None

    def _do(self, errand: _Errand[Any]) -> None:
        try:
            errand.result = errand.work()
        except BaseException as error:  # whoever waits has to hear of it, whatever it is
            errand.error = error
        with self._lock:
            errand.finished = True
            late = errand.left
            self._idle += not late  # before its caller goes on, who may have the next errand at once
        errand.done.release()
        if late:
            self._hand_over(errand)
            with self._lock:
                self._idle += 1

    def _hand_over(self, errand: _Errand[Any]) -> None:
        """What came when nobody waited for it any more."""
        if errand.on_late and errand.error is None:
            with contextlib.suppress(PostroomError):  # nobody is there to hear of it
                errand.on_late(errand.result)
        errand.error = None
