"""The thread that looks for the return of Redis, and moves what is in the spool.

While Redis is away it is asked every half second, by a write: a server that only reads, because it is a
replica or its disk is full, is not back. A return that does not last makes the next one wait: 0.5 s first,
doubled up to 30 s. Before the line is opened again Redis is told what it is owed and gets what is in the
spool, so that order is kept; if that takes long, the rest follows behind.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable

from postroom.engine import Engine
from postroom.engines.spool.debts import Debts
from postroom.engines.spool.gate import Gate
from postroom.engines.spool.line import Line, Switch
from postroom.engines.spool.mover import Fill, Mover
from postroom.errors import Closed, ConfigError, EngineUnavailable, PostroomError, QueueFull
from postroom.limits import MAX_BATCH

log: logging.Logger = logging.getLogger(__name__)

#: How often Redis is asked while it is away, and how often the spool is looked at: busy, empty (seconds).
PROBE, LOOK_BUSY, LOOK_IDLE = 0.5, 1.0, 5.0
#: How long the move may hold up the return (seconds).
_CATCH_UP = 10.0
#: With so few to move, those who put can wait for it.
_FEW = 100
#: The topic on which each switch is told.
TOPIC = "spool"
#: How long the note of a probe is kept (ms).
_NOTE = 60_000


class Watch:
    """Starts when first needed; one a process."""

    def __init__(
        self, line: Line, debts: Debts, mover: Mover, gate: Gate, restore: Callable[[Engine], None]
    ) -> None:
        self.fill: Fill = Fill()
        self._line = line
        self._debts = debts
        self._mover = mover
        self._gate = gate
        self._restore = restore
        self._untold: list[Switch] = []
        self._wake = threading.Event()
        self._complaint = ""
        self._closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def ensure(self) -> None:
        """See to it that the thread runs."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._run, name="postroom-spool", daemon=True)
                    self._thread.start()

    def forked(self) -> None:
        """In a child: the thread stayed in the parent, and is replaced when the child does something."""
        self._wake, self._starting = threading.Event(), threading.Lock()
        self._untold = []
        self._mover.forked()
        self._thread = None

    def hurry(self) -> None:
        """There is something to do."""
        self._wake.set()

    def note(self, switch: Switch) -> None:
        """To be told on the topic, when there is somebody to tell."""
        self._untold.append(switch)
        del self._untold[:-MAX_BATCH]
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def join(self) -> None:
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join(2.0)

    def is_closed(self) -> bool:
        return self._closed

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                pause = self._look()
            except Closed:
                return
            except EngineUnavailable as error:  # away again before it was quite back
                log.info("%s", error, extra={"event": "spool.failed", "error": str(error)})
                pause = PROBE
            except Exception:
                log.exception("the spool's watch failed", extra={"event": "spool.failed"})
                pause = LOOK_BUSY
            if self._wake.wait(pause * random.uniform(0.8, 1.2)):
                self._wake.wait(0.01)  # who hurries often is seen to all at once

    def _look(self) -> float:
        """One look; how long to wait for the next."""
        self.fill = self._mover.fill()
        if self._line.active:
            return self._go_on()
        left = self._line.hold_until - time.monotonic()
        if left > 0:
            return min(left, PROBE)
        if self._answers():
            self._return()
            return 0.0
        return PROBE

    def _answers(self) -> bool:
        try:
            primary = self._line.engine()
            primary.records.put("spool", os.uname().nodename, b"", ttl=_NOTE)
        except EngineUnavailable:
            return False
        except Closed:
            raise
        except PostroomError as error:  # such as ConfigError: a server came back that will not do
            if str(error) != self._complaint:
                self._complaint = str(error)
                kind = "spool.config" if isinstance(error, ConfigError) else "spool.failed"
                log.error("Redis cannot be used: %s", error, extra={"event": kind, "error": str(error)})
            return False
        return True

    def _return(self) -> None:
        """Tell Redis what it is owed, give it what is here, and open the line."""
        primary = self._line.engine()
        self._restore(primary)
        end, moved = time.monotonic() + _CATCH_UP, 0
        while not self._closed:
            self._debts.pay(primary)
            moved = self._mover.move(primary)
            if moved <= _FEW or time.monotonic() > end:
                break
        with self._gate.shut():
            if moved <= _FEW:
                self._debts.pay(primary)
                self._mover.move(primary)
            if not self._closed:
                self._line.back()

    def _go_on(self) -> float:
        """The line is open: what is left here, or came in from another process, follows."""
        primary = self._line.engine()
        try:
            if self._debts.pending:
                self._debts.pay(primary)
            if self.fill.waiting:
                self._mover.move(primary)
                self.fill = self._mover.fill()
            self._tell(primary)
        except EngineUnavailable as error:
            self._line.away(error)
        return LOOK_BUSY if self.fill.total else LOOK_IDLE

    def _tell(self, primary: Engine) -> None:
        """Each switch as an event, once there is somebody to tell."""
        while self._untold:
            switches = list(self._untold)
            host = os.uname().nodename
            events = [json.dumps({"host": host, **switch._asdict()}).encode() for switch in switches]
            try:
                primary.publish(TOPIC, events)
            except QueueFull:  # its memory is for messages; told when there is some
                return
            del self._untold[: len(switches)]
