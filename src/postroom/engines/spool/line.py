"""The way to Redis: whether it is open, since when, and every call over it bounded."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from postroom.engine import Engine
from postroom.engines.spool.errands import Errands
from postroom.errors import Closed, EngineUnavailable

log: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

#: How long to stay away at least, first and at most (seconds): doubled when the last return did not last.
HOLD_FIRST, HOLD_LAST = 0.5, 30.0
#: A return that lasted for this long was a good one (seconds).
CALM = 60.0


class Side(NamedTuple):
    """Which side is active, since when (epoch seconds) and why, and what waits here for Redis.

    `spooled` messages are in the spool in whatever state, with about `spooled_bytes` of bodies, of which
    other processes may have moved some in the last second. `owed` settles wait for Redis in this process.
    """

    redis_active: bool
    since: float
    reason: str = ""
    spooled: int = 0
    spooled_bytes: int = 0
    owed: int = 0


class Switch(NamedTuple):
    """From one side to the other. `lasted` is how long the side before was active (seconds)."""

    redis_active: bool
    at: float
    lasted: float
    reason: str = ""


class Line:
    """Open until a call fails; opened again by `back`, which only `watch` decides."""

    def __init__(
        self,
        connect: Callable[[], Engine],
        errands: Errands,
        uncertain: Callable[[BaseException], bool],
        on_switch: Callable[[Switch], None],
    ) -> None:
        self.errands: Errands = errands
        self.active: bool = False
        self.since: float = time.time()
        self.reason: str = "not connected yet"
        #: When to try to return at the earliest (monotonic seconds).
        self.hold_until: float = 0.0
        self._connect = connect
        self._uncertain = uncertain
        self._on_switch = on_switch
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._stretch = 0
        self._hold = 0.0
        self._changed_at = time.monotonic()
        self._returned = False
        self._closed = False

    def open(self) -> None:
        """At the start: open if Redis answers in time. Raises what is not an outage, as ConfigError."""
        try:
            self.errands.run(self.engine)
        except (EngineUnavailable, TimeoutError) as error:
            self.reason = str(error)
            self._tell(Switch(False, self.since, 0.0, self.reason))
        else:
            self.active, self.reason = True, ""

    def engine(self) -> Engine:
        """The engine at the other end, connected if it never was. For whoever may wait."""
        with self._connecting:
            if self._engine is None:
                engine = self._connect()
                with self._lock:
                    if not self._closed:
                        self._engine = engine
                if self._closed:
                    engine.close()
                    raise Closed("the room is closed")
        assert self._engine is not None
        return self._engine

    # --- calls ------------------------------------------------------------------------------

    def ask(self, call: Callable[[Engine], T], on_late: Callable[[T], object] | None = None) -> T:
        """The answer of the other end, in time; else EngineUnavailable, and Redis is away."""
        engine, stretch = self._engine, self._stretch
        if self._closed:
            raise Closed("the room is closed")
        if not self.active or engine is None:
            raise EngineUnavailable(f"Redis is away: {self.reason}")
        try:
            return self.errands.run(lambda: call(engine), on_late)
        except TimeoutError as timeout:
            error = EngineUnavailable(f"{timeout}; whether it was done is not known")
            error.__cause__ = timeout
        except EngineUnavailable as failed:
            error = failed
        self.away(error, stretch)
        raise error

    def ask_long(self, call: Callable[[Engine], T]) -> T:
        """The same without a bound, for calls whose work has none."""
        engine, stretch = self._engine, self._stretch
        if not self.active or engine is None:
            return self.ask(call)
        try:
            return call(engine)
        except EngineUnavailable as error:
            self.away(error, stretch)
            raise

    def is_uncertain(self, error: BaseException) -> bool:
        """Whether the call that this error ended may have been done, or may still be."""
        return isinstance(error.__cause__, TimeoutError) or self._uncertain(error)

    # --- switching --------------------------------------------------------------------------

    def away(self, error: EngineUnavailable, stretch: int | None = None) -> None:
        """Redis did not answer. A call from before the last return says nothing about now."""
        with self._lock:
            if not self.active or stretch not in (None, self._stretch):
                return
            lasted = self._change(False, str(error))
            flapping = self._returned and lasted < CALM
            self._hold = min(2 * self._hold, HOLD_LAST) if flapping else HOLD_FIRST
            self.hold_until = time.monotonic() + self._hold
        self._tell(Switch(False, self.since, lasted, self.reason))

    def back(self) -> None:
        """Redis answers again, and has been told what it had to know."""
        with self._lock:
            if self.active or self._closed:
                return
            lasted = self._change(True, "")
            self._returned = True
        self._tell(Switch(True, self.since, lasted))

    def _change(self, active: bool, reason: str) -> float:
        now = time.monotonic()
        lasted, self._changed_at = now - self._changed_at, now
        self.active, self.reason, self.since = active, reason, time.time()
        self._stretch += 1
        return lasted

    def _tell(self, switch: Switch) -> None:
        if switch.redis_active:
            extra = {"event": "spool.back", "lasted": round(switch.lasted, 3)}
            log.warning("Redis is back after %.1f s; the spool is moved over", switch.lasted, extra=extra)
        else:
            extra = {"event": "spool.away", "lasted": round(switch.lasted, 3)}
            log.warning("Redis is away, the spool takes over: %s", switch.reason, extra=extra)
        self._on_switch(switch)

    # --- the end, and forks -----------------------------------------------------------------

    def close(self) -> None:
        """Calls under way end with an error."""
        with self._lock:
            self._closed = True
            engine = self._engine
        if engine:
            engine.close()
        self.errands.close()

    def forked(self) -> None:
        """In a child: whoever held a lock is not there."""
        self._lock, self._connecting = threading.Lock(), threading.Lock()
        self.errands = Errands(self.errands.timeout)

    @property
    def is_closed(self) -> bool:
        return self._closed


def quietly(call: Callable[[], object]) -> None:
    """For hints: whether it works out is of no matter."""
    with contextlib.suppress(EngineUnavailable, Closed):
        call()
