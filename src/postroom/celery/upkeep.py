"""The office's own thread: sends acks that wait too long, reports starts, renews leases, hands back orphans.

It needs nothing from the main thread, so a task that computes for hours in a solo worker keeps its lease.
(A C call that holds the interpreter for longer than the lease does not. With gevent, see `pulse`.)
"""

from __future__ import annotations

import contextlib
import gc
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING

from postroom.celery.presence import begun_tags, known_tags
from postroom.celery.pulse import Pulse
from postroom.errors import Closed, EngineUnavailable

if TYPE_CHECKING:
    from postroom.celery.office import Office

log: logging.Logger = logging.getLogger(__name__)

#: How often it looks while something is under way, and when that has not changed for a while (seconds). Not
#: longer than an ack may wait: one that comes in during a nap does not end it.
_TICK = 0.012
_SLOW_TICK = 1.0
_WAKEFUL = 0.2
#: How often it looks whether the store still knows what was promised (seconds).
_LOOK_EVERY = 5.0
#: While there are orphans, Python's collector is run so often: at first, and at last (seconds).
_COLLECT_FIRST, _COLLECT_LAST = 1.0, 60.0
#: After a failure it tries again after this long (seconds).
_RETRY = 0.5
#: An office without anything to do ends its thread after this long (seconds).
_IDLE = 30.0


class Upkeep:
    """The thread of one office; runs while there is anything to do."""

    def __init__(self, office: Office) -> None:
        self._office = office
        #: No Event, which a signal handler must not set: it may have interrupted who was just setting it.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: Reentrant: Celery cancels tasks inside of a signal handler, whatever that has interrupted.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._dozing = False
        self._renewed_at = self._looked_at = time.monotonic()
        self._collected_at, self._collect_after = 0.0, _COLLECT_FIRST
        self._failing = False
        #: Whether the store is away, as far as this process knows. Nobody but this thread looks whether it is
        #: back: whoever else would wait for a store that does not answer has better things to do.
        self.away: bool = False
        self._pulse = Pulse(office)

    def stir(self) -> None:
        """Something came in or is to go."""
        if self._thread is None:
            self._start()
        elif self._dozing:
            self._dozing = False
            self._wake.put(None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                self._renewed_at = time.monotonic()
                self._thread = threading.Thread(target=self._run, name="postroom-office", daemon=True)
                self._thread.start()
                self._pulse.start()

    def ask_to_stop(self) -> None:
        """Begin nothing more; a call that is under way goes on."""
        with self._lock:
            self._stopped = True
        self._wake.put(None)

    def stop(self) -> None:
        self.ask_to_stop()
        self._pulse.stop()
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        nap, quiet_since = _TICK, time.monotonic()
        while not self._stopped:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=nap)
                quiet_since = time.monotonic()
            try:
                did = self._look()
            except Closed:
                break
            except Exception as error:  # whatever an engine raises, the office goes on
                self._failed(error)
                nap = _RETRY
                continue
            quiet_since = time.monotonic() if did else quiet_since
            nap = self._nap(time.monotonic() - quiet_since)
            if nap == 0.0 and self._end():
                break

    def note_outage(self, error: Exception) -> None:
        """A call failed: once the store is back there is something to make good."""
        self._failed(error)
        self.stir()

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            log.warning("the store is away: %s", error, extra={"event": "celery.away", "error": str(error)})
        self._failing = True
        self.away |= isinstance(error, EngineUnavailable)

    def _look(self) -> bool:
        """Do what is due; whether there was anything."""
        office, now = self._office, time.monotonic()
        if self._failing:
            office.came_back()
            self._failing = self.away = False
            self._renewed_at = now
            log.info("the store is back", extra={"event": "celery.back"})
        if now - self._renewed_at >= office.lease / 3_000 and office.held:
            office.renew()
            self._renewed_at = now
        if now - self._looked_at >= _LOOK_EVERY and office.held:
            office.promises.look_after()
            self._looked_at = now
        if office.orphans:
            # A worker that went to another broker has nobody else who would: we would renew them for ever.
            office.release_orphans(known_tags())
            self._uncover_orphans(now)
        did = False
        if (due := office.waits) is not None and now >= due:
            office.flush()
            did = True
        if office.unstarted and (begun := begun_tags() & office.unstarted):
            office.report(begun)
            did = True
        office.transients.look_after()
        return did

    def _uncover_orphans(self, now: float) -> None:
        """Have Python's collector find what nobody has any more and only a cycle holds, such as the traceback
        of the error that lost a connection. It may not run for hours in a worker with little to do.
        """
        if not self._office.orphans:
            self._collect_after = _COLLECT_FIRST
        elif now - self._collected_at >= self._collect_after:
            gc.collect()
            self._collected_at, self._collect_after = now, min(_COLLECT_LAST, 2 * self._collect_after)

    def _nap(self, quiet: float) -> float:
        """How long to sleep; 0: there is nothing to do any more."""
        office = self._office
        self._dozing = True  # before looking: what comes in from here on wakes us
        due = office.waits
        if due is not None or quiet < _WAKEFUL:
            self._dozing = False
            # Not 0, which would end the thread: what is due already goes in a moment.
            return _TICK if due is None else min(_TICK, max(0.001, due - time.monotonic()))
        if not office.held and not office.transients.ours and quiet > _IDLE:
            return 0.0
        slow = min(_SLOW_TICK, office.lease / 12_000)
        return min(slow, quiet / 4) if office.unstarted else slow

    def _end(self) -> bool:
        """Whether the thread may end. Given up before looking: what comes in from here on starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            if self._office.held or self._office.waits is not None:
                self._thread = thread
                return False
            self._dozing = False
            return True
