"""Queues that go by themselves: the reply queues of remote control and of rpc:// results.

Such a queue is noted in the store with a sign of life that expires, as its bindings do. Its consumer renews
them; whoever finds a note without a sign drops the queue. So a client that was killed leaves nothing behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.celery.exchanges import Binding, Exchanges
from postroom.engine import Engine
from postroom.errors import PostroomError
from postroom.limits import MAX_BATCH

_NOTES = "celery.transient"
_SIGNS = "celery.alive"
#: Without an expiry of its own, an auto_delete queue goes so long after its consumer (ms).
DEFAULT = 600_000
#: How often one office looks for queues that were left behind (seconds).
_LOOK_EVERY = 60.0


@dataclass(slots=True)
class _Queue:
    """One of ours: how long it may be unused (ms), and what is bound to it."""

    span: int
    bindings: list[tuple[str, Binding]] = field(default_factory=list)
    signed_at: float = 0.0


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
        # Not at once: most processes that open a store are short.
        self._looked_at = time.monotonic()

    def expect(self, queue: str, span: int) -> None:
        """The queue is declared; it is noted when something is bound to it or consumes it."""
        self._expected[queue] = span

    def ensure(self, queue: str, exchange: str | None = None, routing_key: str = "") -> int | None:
        """Note the queue if it is transient, with a binding of it; returns how long that lives (ms)."""
        span = self._expected.get(queue)
        if span is None:
            return None
        if queue not in self.ours:
            self._engine.records.put(_NOTES, queue, b"")
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
            self._engine.records.put(_SIGNS, queue, b"", ttl=ours.span)
            for exchange, binding in list(ours.bindings):
                self._exchanges.bind(exchange, binding, ours.span)
            ours.signed_at = time.monotonic()

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
        """Renew the signs of ours; from time to time, drop what others left behind."""
        now = time.monotonic()
        for queue, ours in list(self.ours.items()):
            if now - ours.signed_at > ours.span / 3_000:
                self._sign(queue)
        if now - self._looked_at > _LOOK_EVERY:
            self._looked_at = now
            self.collect()

    def collect(self) -> int:
        """Drop what nobody shows signs of using; how many there were."""
        records, dropped = self._engine.records, 0
        for note in records.list(_NOTES, limit=MAX_BATCH):
            if note.key not in self.ours and records.get(_SIGNS, note.key) is None:
                self._engine.drop(note.key, force=True)
                records.delete(_NOTES, note.key, expect=note.version)
                dropped += 1
        return dropped

    def drop_all(self) -> None:
        """At the end of the process: drop ours, as far as the store lets us."""
        try:
            for queue in list(self.ours):
                for exchange, binding in self.disown(queue):
                    self._exchanges.unbind(exchange, binding)
                self.drop(queue)
        except PostroomError:
            return  # they expire
