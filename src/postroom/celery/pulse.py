"""A heartbeat for processes that gevent has patched, where a thread of Python's is one greenlet among others.

A greenlet that computes without a pause would stop the office's thread, and the process would look dead. So
leases are also renewed by a thread of the system's. It shares nothing with the greenlets but the list of
what is held: sockets and locks of gevent's belong to the thread that made them.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import postroom
from postroom.engine import Engine
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from postroom.celery.office import Office

#: How long it sleeps at most (seconds): as long as it takes to notice that it is to stop.
_NAP = 1.0


class Pulse:
    """The heartbeat of one office."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._stopped = False

    def start(self) -> None:
        """Begin, if threads are greenlets here; otherwise the office's own thread is enough."""
        monkey = sys.modules.get("gevent.monkey")
        if monkey is not None and monkey.is_module_patched("threading"):
            monkey.get_original("_thread", "start_new_thread")(self._run, ())

    def stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        while not self._stopped:
            try:
                with postroom.open(self._office.url) as room:
                    self._beat(room.engine)
            except PostroomError:  # the office's thread says so, and makes up for it
                time.sleep(_NAP)

    def _beat(self, engine: Engine) -> None:
        third = self._office.options.lease / 3_000
        renewed_at = time.monotonic()
        while not self._stopped:
            time.sleep(min(third, _NAP))
            if time.monotonic() - renewed_at >= third:
                renewed_at = time.monotonic()
                self._office.renew(engine)
