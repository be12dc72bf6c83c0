"""A heartbeat for processes that gevent has patched, where a thread of Python's is one greenlet among others.

A greenlet that computes without a pause would stop the office's thread, and the process would look dead. So
leases are also renewed by a thread of the system's. It shares nothing with the greenlets but the list of
what is held: sockets and locks of gevent's belong to the thread that made them.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import postroom
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from postroom.celery.office import Office

#: How long to wait for its end (seconds): as long as a call to a store that is away may take.
_PATIENCE = 10.0
#: How often it looks whether to beat (seconds).
_LOOK = 1.0


class Pulse:
    """The heartbeat of one office, if threads are greenlets here; otherwise nothing."""

    def __init__(self, office: Office) -> None:
        self._office = office
        monkey = sys.modules.get("gevent.monkey")
        patched = monkey is not None and monkey.is_module_patched("threading")
        # What is in the memory of this process is nobody else's to take.
        self._monkey: Any = monkey if patched and not office.url.startswith("memory:") else None
        self._running = False

    def start(self) -> None:
        if self._monkey is None or self._running:
            return
        start, lock = self._monkey.get_original("_thread", ["start_new_thread", "allocate_lock"])
        # Locks of the system's: one is released to stop the thread, the other when it has ended.
        self._stop, self._ended = lock(), lock()
        self._stop.acquire()
        self._ended.acquire()
        self._running = True
        start(self._run, ())

    def stop(self) -> None:
        """End it, and wait for that: it must not be in the middle of a call when Python ends."""
        if self._running:
            self._running = False
            self._stop.release()
            self._ended.acquire(timeout=_PATIENCE)

    def _run(self) -> None:
        beat_at = time.monotonic()
        try:
            while not self._stop.acquire(timeout=self._nap(beat_at)):
                if not self._nap(beat_at):
                    beat_at = time.monotonic()
                    self._beat()
        finally:
            sys.modules["gevent"].get_hub().destroy(destroy_loop=True)
            self._ended.release()

    def _nap(self, beat_at: float) -> float:
        """Until a third of the lease is over; a queue with a shorter one may come at any moment."""
        left = beat_at + self._office.lease / 3_000 - time.monotonic()
        return max(0.0, min(_LOOK, left))

    def _beat(self) -> None:
        """Renew, through connections of this thread's own; they are few and far between."""
        if not self._office.held:
            return
        try:
            office = self._office
            with postroom.open(office.url, config=office.room.config, declare=False) as room:
                self._office.renew(room.engine)
                self._office.show(room.engine)
        except PostroomError:
            pass  # the office's thread says so, and makes up for it
