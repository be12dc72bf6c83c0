"""How a breaker stands, and where that is kept: in this process, or in a record that all processes share."""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from postroom.errors import PostroomError
from postroom.logs import Record

if TYPE_CHECKING:
    from postroom.room import Room

log: logging.Logger = logging.getLogger(__name__)

#: The kind of the records that shared breakers are.
KIND = "breaker"
#: A shared breaker asks the store at most this often how it stands (seconds).
_LOOK = 1.0
#: Another process changed it at the same moment: try so often, then leave it to the others.
_TRIES = 8
#: A breaker that nobody has changed for this long is forgotten, unless a person opened it (ms).
_KEPT = 30 * 86_400_000


class State(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(enum.StrEnum):
    """How a call through a breaker ended; refused: it was open, and nothing was called."""

    OK = "ok"
    FAILURE = "failure"
    REFUSED = "refused"


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call through a breaker: when (epoch milliseconds with a fraction), how it ended, what it said."""

    at: float
    outcome: Outcome
    text: str = ""


#: So many calls are known of a breaker.
CALLS = 20


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a breaker stands: what a shared one keeps in the store. Times are epoch milliseconds.

    failures  when those counted so far happened
    forced    opened by a person: only a person closes it, or its time
    lasts     forced: so long (ms), by the clock of the store, which then forgets it; 0: until it is closed
    since     when it came into this state; for people to read, as are the next two
    until     open: when it will be tried again, by the clock of who opened it
    threshold so many failures open it; 0: nobody has counted any yet
    prober    the process whose probes decide, while it is half open
    calls     the last ones before it changed, oldest first: who changes it tells those it knows of. A call
              that changes nothing must cost nothing, so those since the last change are not here
    """

    state: State = State.CLOSED
    failures: tuple[int, ...] = ()
    forced: bool = False
    lasts: int = 0
    since: int = 0
    until: int = 0
    threshold: int = 0
    reason: str = ""
    prober: str = ""
    calls: tuple[Call, ...] = ()

    def calls_with(self, own: Iterable[Call]) -> tuple[Call, ...]:
        """The newest calls of all: those that are written down, and those that a process has seen."""
        known = dict.fromkeys((*self.calls, *own))  # at the same moment in the order in which they are told
        return tuple(sorted(known, key=lambda call: call.at)[-CALLS:])


Step = Callable[[Standing], Standing]


def standings(room: Room, limit: int = 1_000) -> dict[str, Standing]:
    """How the shared breakers of a room stand, by name."""
    return {record.key: _standing(record) for record in room.engine.records.list(KIND, limit=limit)}


class Here:
    """A standing of this process alone, which tells its metrics as long as somebody holds it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._standing = Standing()
        self._lock = threading.Lock()
        self.seen_at: float = time.monotonic()
        #: What ended by itself when it was looked at; for who tells of changes.
        self.lapsed: Standing | None = None
        _HERE[name] = self

    def look(self) -> Standing:
        standing = self._standing
        if standing.lasts and time.monotonic() >= self.seen_at + standing.lasts / 1_000:
            before, after = self.change(lambda now: _over() if now is standing else now)
            if after is not before:
                self.lapsed = before
        return self._standing

    def doubt(self) -> None:
        """Nobody else can have changed it."""

    def change(self, step: Step) -> tuple[Standing, Standing]:
        with self._lock:
            before = self._standing
            after = step(before)
            if after is not before:
                self.seen_at = time.monotonic()
                self._standing = after
            return before, after


#: The newest of each name: a process is meant to have one for a name.
_HERE: weakref.WeakValueDictionary[str, Here] = weakref.WeakValueDictionary()


def states_here() -> dict[str, str]:
    """The states of this process's own breakers, by name. Other threads may make some meanwhile."""
    held = (reference() for reference in _HERE.valuerefs())
    return {own.name: own.look().state.value for own in held if own is not None}


class Shared:
    """A standing in a record, changed by compare-and-set; looked at once a second, else from memory.

    While the store is away the process goes on by what it knows, and the next change tells the store.
    """

    def __init__(self, name: str, room: Room) -> None:
        self._name = name
        self._records = room.engine.records
        self._standing = Standing()
        self._version = 0
        self._looked_at = float("-inf")
        self._lock = threading.Lock()
        self.seen_at: float = time.monotonic()
        #: As of one of this process alone; of all processes, one has it.
        self.lapsed: Standing | None = None

    def look(self) -> Standing:
        if time.monotonic() - self._looked_at > _LOOK and self._lock.acquire(blocking=False):
            try:
                self._looked_at = time.monotonic()
                with self._despite_the_store():
                    self._refresh()
            finally:
                self._lock.release()
        return self._standing

    def doubt(self) -> None:
        """It may stand otherwise: have the next look ask the store, however soon it is."""
        self._looked_at = float("-inf")

    def change(self, step: Step) -> tuple[Standing, Standing]:
        with self._lock:
            before = self._standing
            with self._despite_the_store():
                for _ in range(_TRIES):
                    before = self._standing
                    if (after := step(before)) is before or self._swap(after):
                        return before, after
                    self._refresh()
            after = step(before)
            self._keep(after, self._version)
            return before, after

    def _swap(self, standing: Standing) -> bool:
        value = msgspec.json.encode(standing)
        ttl = (standing.lasts or None) if standing.forced else _KEPT
        version = self._records.put(KIND, self._name, value, ttl=ttl, expect=self._version)
        if version is not None:
            self._keep(standing, version)
        return version is not None

    def _refresh(self) -> None:
        record = self._records.get(KIND, self._name)
        if record is None:
            # Shown to people from its first use on; if another is faster, the next look finds it.
            before, self._version = self._standing, 0
            if self._swap(_over() if before.lasts else Standing()) and before.lasts:
                self.lapsed = before
        elif record.version != self._version:
            self._keep(_standing(record), record.version)

    def _keep(self, standing: Standing, version: int) -> None:
        if standing != self._standing:
            self.seen_at = time.monotonic()
        self._standing, self._version = standing, version

    @contextlib.contextmanager
    def _despite_the_store(self) -> Iterator[None]:
        try:
            yield
        except PostroomError as error:
            extra = {"event": "breaker.store_failed", "breaker": self._name, "error": str(error)}
            log.warning("breaker %r cannot reach its store: %s", self._name, error, extra=extra)


def _over() -> Standing:
    """Of one that a person had opened for a while."""
    return Standing(since=time.time_ns() // 1_000_000, reason="it was open for as long as it should be")


def _standing(record: Record) -> Standing:
    try:
        return msgspec.json.decode(record.value, type=Standing)
    except msgspec.DecodeError:  # written by a newer release: it lets calls pass rather than none
        return Standing()
