"""Queues that go by themselves: the reply queues of remote control and of rpc:// results.

Such a queue is noted in the store with a sign of life that expires, as its bindings do. Its consumer renews
them. Workers, also idle ones, look for notes without a sign, one worker at a time, and drop their queues. So
a client that was killed leaves nothing behind.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from postroom.celery.exchanges import Binding, Exchanges
from postroom.engine import Engine
from postroom.errors import PostroomError
from postroom.keeper import Lead
from postroom.limits import MAX_BATCH
from postroom.logs import Record

_NOTES = "celery.transient"
_SIGNS = "celery.alive"
#: Without an expiry of its own, an auto_delete queue goes so long after its consumer (ms).
DEFAULT = 600_000
#: What was left behind is looked for after so many sweeps: after a minute, unless it is configured otherwise.
_SWEEPS = 12


@dataclass(slots=True)
class _Queue:
    """One of ours: how long it may be unused (ms), and what is bound to it."""

    span: int
    bindings: list[tuple[str, Binding]] = field(default_factory=list)
    signed_at: float = -math.inf


class TransientQueues:
    """Those that this process made, and those it cleans up after others."""

    def __init__(self, engine: Engine, exchanges: Exchanges, stir: Callable[[], None]) -> None:
        """`stir` has somebody call `look_after` from now on, while there are any of `ours`."""
        self._engine = engine
        self._exchanges = exchanges
        self._stir = stir
        #: Held while a sign is given, so that none is given for a queue that is gone.
        self._lock = threading.Lock()
        #: Declared, but maybe only for broadcasts, which need no queue: name → span.
        self._expected: dict[str, int] = {}
        self.ours: dict[str, _Queue] = {}
        #: What had no sign when somebody last looked.
        self._unsigned: set[str] = set()

    def expect(self, queue: str, span: int) -> None:
        """The queue is declared; it is noted when something is bound to it or consumes it."""
        self._expected[queue] = span

    def ensure(self, queue: str, exchange: str | None = None, routing_key: str = "") -> int | None:
        """Note the queue if it is transient, with a binding of it; returns how long that lives (ms)."""
        span = self._expected.get(queue)
        if span is None:
            return None
        if queue not in self.ours:
            self.ours[queue] = _Queue(span)
            self._sign(queue)
            self._stir()
        if exchange is not None:
            self.ours[queue].bindings.append((exchange, Binding(routing_key, queue)))
        return span

    def _sign(self, queue: str) -> None:
        with self._lock:
            if (ours := self.ours.get(queue)) is None:
                return
            now = time.monotonic()
            self._engine.records.put(_SIGNS, queue, b"", ttl=ours.span)
            if now - ours.signed_at > ours.span / 1_000:
                # It is new, or we were silent for so long that somebody may have dropped it. The sign came
                # first, because a note without one is taken for left behind.
                self._engine.records.put(_NOTES, queue, b"")
            for exchange, binding in list(ours.bindings):
                self._exchanges.bind(exchange, binding, ours.span)
            ours.signed_at = now

    def disown(self, queue: str) -> list[tuple[str, Binding]]:
        """Give no more signs for this queue; what is bound to it, if it was ours."""
        with self._lock:
            ours = self.ours.pop(queue, None)
        return ours.bindings if ours else []

    def drop(self, queue: str) -> None:
        """The queue is not needed any more."""
        noted = self._expected.pop(queue, None) is not None
        self.disown(queue)
        self._engine.drop(queue, force=True)
        if noted:
            self._engine.records.delete(_SIGNS, queue)
            self._engine.records.delete(_NOTES, queue)

    def look_after(self) -> None:
        """Renew the signs of ours."""
        now = time.monotonic()
        for queue, ours in list(self.ours.items()):
            if now - ours.signed_at > ours.span / 3_000:
                self._sign(queue)

    def collect(self) -> int:
        """Drop what nobody shows signs of using, now as at the last look; how many there were.

        At the first look it may be that the store was away, and its users are just about to sign again.
        """
        before = self._unsigned
        unsigned = [note for after, notes in self._pages() for note in self._without_sign(notes, after)]
        left_behind = [note for note in unsigned if note.key in before]
        for note in left_behind:
            self._engine.drop(note.key, force=True)
            self._engine.records.delete(_NOTES, note.key, expect=note.version)
        self._unsigned = {note.key for note in unsigned}
        return len(left_behind)

    def _pages(self) -> Iterator[tuple[str, Sequence[Record]]]:
        """All notes, a bounded number at a time, each page with the key that it begins behind."""
        after = ""
        while notes := self._engine.records.list(_NOTES, after=after, limit=MAX_BATCH):
            yield after, notes
            after = notes[-1].key

    def _without_sign(self, notes: Sequence[Record], after: str) -> list[Record]:
        records = self._engine.records
        # One question about most of them. There may be more signs than fit a page: each of the rest is asked.
        signed = {sign.key for sign in records.list(_SIGNS, after=after, limit=MAX_BATCH)} | self.ours.keys()
        rest = [note for note in notes if note.key not in signed]
        return [note for note in rest if records.get(_SIGNS, note.key) is None]

    def drop_all(self) -> None:
        """At the end of the process: drop ours, as far as the store lets us."""
        try:
            for queue in list(self.ours):
                for exchange, binding in self.disown(queue):
                    self._exchanges.unbind(exchange, binding)
                self.drop(queue)
        except PostroomError:
            return  # they expire


class Collector:
    """A worker's chore: drops what clients left behind, unless another worker does."""

    def __init__(self, engine: Engine, transients: TransientQueues, sweep_interval: int) -> None:
        self._transients = transients
        self._every = _SWEEPS * sweep_interval
        self._lead = Lead(engine, 3 * self._every, _NOTES)
        self._due = time.monotonic() + self._every / 1_000

    def __call__(self) -> int:
        """Look, if it is time and our turn; returns when it is time again (ms)."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._every / 1_000
            if self._lead.hold():
                self._transients.collect()
        return math.ceil((self._due - now) * 1_000)
