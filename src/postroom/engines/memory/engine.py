"""The memory engine: dicts and heaps under one lock, with an injectable clock.

Nothing survives the process, everything else is promised: it is the readable reference of the
contract and the oracle of the property tests.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from postroom.engine import Capabilities, QueueInfo
from postroom.engines.memory.journal import Journal
from postroom.engines.memory.records import MemoryRecords
from postroom.engines.memory.state import MemoryState
from postroom.engines.steps.bells import Bells, spread_of, topic_bell
from postroom.engines.steps.engine import Step, SteppedEngine, T, wall_clock
from postroom.engines.steps.state import QueueState
from postroom.errors import Closed, Conflict
from postroom.findings import Finding, worth_a_change
from postroom.limits import (
    AUDIT,
    MAX_BODY,
    MAX_TOPIC,
    TOPIC_LIMIT,
    check_after,
    check_limit,
    check_name,
    check_publish,
    topic_age,
)
from postroom.logs import Log, TopicEntry, TopicPage, drop_told
from postroom.policy import Policy
from postroom.records import Records
from postroom.waiter import Waiter

_DEFAULT = Policy()


class MemoryEngine(SteppedEngine):
    capabilities: ClassVar[Capabilities] = Capabilities(durable=False, shared=False, blocking=False)

    def __init__(self, clock: Callable[[], int] = wall_clock, *, max_body: int = MAX_BODY) -> None:
        self.max_body = max_body
        self._clock = clock
        self._latest = 0
        self._lock = threading.Lock()
        self._closed = ""
        self._users = 1
        self._queues: dict[str, MemoryState] = {}
        self._topics: dict[str, Journal[TopicEntry]] = {}
        self._bells = Bells(self._lock, self._hand_on)
        self.records: Records = MemoryRecords(self._now, self._lock)
        _engines.add(self)

    # --- queues -----------------------------------------------------------------------------

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        with self._lock:
            now = self._now()
            state = self._queues.get(queue)
            if state is None:
                return 0
            if not (force or state.empty()):
                raise Conflict(f"{queue}: there are still messages in it; purge it first, or force the drop")
            count = state.waiting + state.processing + state.dead
            if count:
                self._append(AUDIT, [drop_told(queue, count, by, why)], now)
            # `state` is freed when this returns, outside the lock: a million messages take a while.
            del self._queues[queue]
        return count

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        with self._lock:
            now = self._now()
            found = sorted(self._queues) if names is None else [n for n in names if n in self._queues]
            states = (self._queues[name] for name in found)
            return [state.info(now) for state in states]

    # --- steps ------------------------------------------------------------------------------

    def _change(self, queue: str, step: Step[T], *, make: bool = False) -> T:
        with self._lock:
            now = self._now()
            state = self._seen(queue, now)
            state.reached(now)
            result = step(state, now)
            if make:
                self._queues[queue] = state
            self._ring(state, now)
            return result

    def _look(self, queue: str, look: Step[T]) -> T:
        with self._lock:
            now = self._now()
            return look(self._seen(queue, now), now)

    def _ring(self, state: MemoryState, now: int) -> None:
        """After a step: tell what happened, and wake whom it concerns."""
        if state.announce(now):
            self._bells.ring_all(topic_bell("lifecycle"))
        if count := state.rings_wanted():
            self._bells.ring(state.name, count)

    def _spread(self, queue: str, waiter: Waiter) -> int:
        return spread_of(self._bells.rank(queue, waiter))

    # --- waiting, history, topics -----------------------------------------------------------

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        self._check_open()
        return self._bells.waiter(queues, topics)

    def ring(self, queues: Iterable[str]) -> None:
        with self._lock:
            self._check_open()
            for queue in queues:
                self._bells.ring(queue, 2)

    def _hand_on(self, queue: str, unused: bool) -> None:
        """A waiter left: somebody else gets its unused ring, or its watch over the next due time."""
        with self._lock:
            state = self._queues.get(queue)
            if state and ((unused and state.claimable) or state.scheduled):
                self._bells.ring(queue, 1)

    def _read_log(self, state: QueueState, after: str | None, limit: int) -> Log:
        assert isinstance(state, MemoryState)
        return Log(*state.log.read(after, limit))

    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        check_publish(topic, entries, keep)
        with self._lock:
            now = self._now()
            if entries:
                self._append(topic, entries, now, keep)

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        check_name(topic, "topic")
        check_limit(limit)
        with self._lock:
            self._now()
            journal: Journal[TopicEntry] = self._topics.get(topic) or Journal(MAX_TOPIC)
            return TopicPage(*journal.read(after, limit))

    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        check_after(after)
        check_limit(limit)
        with self._lock:
            self._now()
            return sorted(name for name in self._topics if name > after)[:limit]

    def _append(self, topic: str, entries: Sequence[bytes], now: int, keep: int = TOPIC_LIMIT) -> None:
        journal = self._topics.setdefault(topic, Journal(MAX_TOPIC))
        journal.drop_while(lambda entry: entry.at + topic_age(topic) <= now)
        for data in entries:
            journal.append(lambda id, data=data: TopicEntry(id, now, data))  # type: ignore[misc]
        journal.keep(keep)
        self._bells.ring_all(topic_bell(topic))

    # --- opening and closing ----------------------------------------------------------------

    def share(self) -> bool:
        """One more user, who will close it too; False if it is closed already."""
        with self._lock:
            if not self._closed:
                self._users += 1
            return not self._closed

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users <= 0 and not self._closed:
                self._closed = "the room is closed"
                self._queues.clear()
                self._topics.clear()
                self._bells.close()

    def now(self) -> int:
        with self._lock:
            return self._now()

    def inspect(self) -> list[Finding]:
        self.now()
        text = "messages end with this process"
        return [worth_a_change("durability", text, "for anything but tests use sqlite:/// or redis://")]

    def _now(self) -> int:
        """The time, which never goes back: a clock that does must not undo a deadline. With the lock held."""
        self._check_open()
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._closed)

    def _seen(self, queue: str, now: int) -> MemoryState:
        """The queue; an unknown one is empty."""
        return self._queues.get(queue) or MemoryState(check_name(queue), _DEFAULT, now)


_engines: weakref.WeakSet[MemoryEngine] = weakref.WeakSet()


def _after_fork() -> None:
    # The child has a copy, and working on it would run every message twice. The lock may be held by
    # a thread that does not exist here, so the child gets one that nobody holds.
    for engine in _engines:
        engine._lock._at_fork_reinit()  # type: ignore[attr-defined]  # as threading itself does it
        engine._closed = "the memory engine does not cross a fork: open a room in the child"


os.register_at_fork(after_in_child=_after_fork)
