"""The memory engine: dicts and heaps under one lock, with an injectable clock.

Nothing survives the process, everything else is promised: it is the readable reference of the
contract and the oracle of the property tests.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence

from postroom.engine import Capabilities, ClaimRequest, Engine, QueueInfo, Waiter, check_receipts, check_turn
from postroom.engines.memory import claim, operate, put, settle, sweep
from postroom.engines.memory.bells import Bells, topic_bell
from postroom.engines.memory.journal import Journal
from postroom.engines.memory.records import MemoryRecords
from postroom.engines.memory.state import QueueState
from postroom.errors import Closed, Conflict, InvalidInput
from postroom.limits import (
    MAX_BODY,
    TOPIC_AGE,
    TOPIC_LIMIT,
    check_batch,
    check_checkpoint,
    check_limit,
    check_name,
    check_publish,
    check_span,
    cut_text,
)
from postroom.logs import Event, Log, TopicEntry, TopicPage
from postroom.model import (
    Accepted,
    Claimed,
    Entry,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Page,
    QueueStats,
    Receipt,
    Settlement,
    State,
    Swept,
    Turned,
)
from postroom.policy import Policy

_DEFAULT = Policy()
_FORGET = 1_000


_wall_at_start = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wall_clock() -> int:
    """The time of day as it was when this process began, and counted on from there.

    A wall clock that is set wrong for a moment must not move every deadline; and unlike a monotonic
    clock this one also counts while the machine sleeps.
    """
    return (_wall_at_start + time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000


class MemoryEngine(Engine):
    capabilities = Capabilities(durable=False, shared=False, blocking=False)

    def __init__(self, clock: Callable[[], int] = wall_clock, *, max_body: int = MAX_BODY) -> None:
        self.max_body = max_body
        self._clock = clock
        self._latest = 0
        self._lock = threading.Lock()
        self._closed = ""
        self._users = 1
        self._queues: dict[str, QueueState] = {}
        self._topics: dict[str, Journal[TopicEntry]] = {}
        self._bells = Bells(self._lock, self._hand_on)
        self.records = MemoryRecords(self._now, self._lock)
        _engines.add(self)

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: str, policy: Policy) -> None:
        with self._lock:
            now = self._now()
            state = self._made(queue, now)
            if policy.aging != state.policy.aging and (state.waiting or state.processing):
                raise Conflict(f"{queue}: aging cannot change while messages wait or are processing")
            state.adopt(policy, now)
            # What the old policy held back may be claimable now.
            state.rings = len(state.ready) + len(state.suspects)
            self._done(state, now)

    def drop(self, queue: str, *, force: bool = False) -> int:
        with self._lock:
            now = self._now()
            state = self._queues.get(queue)
            if state is None:
                return 0
            if not (force or state.empty()):
                raise Conflict(f"{queue}: there are still messages in it; purge it first, or force the drop")
            count = len(state.waiting) + len(state.processing) + len(state.dead)
            if count:
                event = {"event": "drop", "queue": queue, "count": count}
                self._append("audit", [json.dumps(event).encode()], now)
            # `state` is freed when this returns, outside the lock: a million messages take a while.
            del self._queues[queue]
        return count

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        with self._lock:
            self._now()
            found = sorted(self._queues) if names is None else [n for n in names if n in self._queues]
            states = (self._queues[name] for name in found)
            return [QueueInfo(s.name, s.policy, s.paused, s.pause_reason) for s in states]

    def stats(self, queue: str) -> QueueStats:
        with self._lock:
            now = self._now()
            return self._seen(queue, now).stats(now)

    # --- the way of a message ---------------------------------------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        self.check_put(messages)
        with self._lock:
            now = self._now()
            state = self._queues.get(queue)
            if state is None:
                state = self._new(queue, now)
            state.reached(now)
            state.forget(now, _FORGET)
            puts = put.put(state, messages, now)
            self._queues[queue] = state
            self._done(state, now)
            return Accepted(puts, len(state.waiting))

    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        return self.turn(queue, (), (), request).claimed

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        check_turn(queue, settlements, starts, request)
        with self._lock:
            now = self._now()
            state = self._reached(queue, now)
            settled = settle.settle(state, settlements, now)
            started = settle.start(state, starts, now)
            claimed = self._claim(state, request, now) if request else Claimed([])
            self._done(state, now)
            return Turned(settled, started, claimed)

    def _claim(self, state: QueueState, request: ClaimRequest, now: int) -> Claimed:
        claimed = claim.claim(state, request, now)
        if request.waiter and not claimed.deliveries:
            later = claimed.next_wake + self._bells.spread(state.name, request.waiter)
            return claimed._replace(next_wake=min(later, state.policy.lease // 3))
        return claimed

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        return self.turn(queue, settlements, (), None).settled

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        check_receipts(queue, receipts)
        check_span("lease", lease)
        with self._lock:
            now = self._now()
            return settle.renew(self._reached(queue, now), receipts, lease, now)

    def extend(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        span: int | None = None,
        lease: int | None = None,
        checkpoint: bytes | None = None,
    ) -> list[Outcome]:
        check_receipts(queue, receipts)
        check_checkpoint(checkpoint)
        check_span("span", span)
        check_span("lease", lease)
        with self._lock:
            now = self._now()
            return settle.extend(self._reached(queue, now), receipts, span, lease, checkpoint, now)

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        check_limit(limit)
        triggered_by = cut_text(triggered_by, "triggered_by")
        with self._lock:
            now = self._now()
            state = self._reached(queue, now)
            swept = sweep.sweep(state, now, limit, triggered_by)
            self._done(state, now)
            return swept

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        self._check_open()
        return self._bells.waiter(queues, topics)

    # --- looking and operating --------------------------------------------------------------

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        check_batch(ids)
        with self._lock:
            now = self._now()
            state = self._seen(queue, now)
            state.forget(now, _FORGET)
            slots = (state.visible(id, now) for id in ids)
            return [slot.entry() if slot else None for slot in slots]

    def find(
        self,
        queue: str,
        state: State,
        *,
        cursor: str | None = None,
        limit: int = 100,
        group: str | None = None,
        correlation_id: str | None = None,
    ) -> Page:
        check_limit(limit)
        if state is not State.DEAD and (group is not None or correlation_id is not None):
            raise InvalidInput("find: only dead letters are found by group or correlation_id")
        with self._lock:
            now = self._now()
            seen = self._seen(queue, now)
            seen.forget(now, _FORGET)
            return operate.find(seen, state, cursor, limit, group, correlation_id, now)

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        self.check_moves(moves)
        with self._lock:
            now = self._now()
            state = self._reached(queue, now)
            moved = operate.move(state, moves, now)
            self._done(state, now)
            return moved

    def pause(self, queue: str, reason: str = "") -> None:
        reason = cut_text(reason, "reason")
        with self._lock:
            now = self._now()
            state = self._made(queue, now)
            state.paused, state.pause_reason = True, reason
            state.tell(now, Event.PAUSE, [], {"reason": reason}, count=0)
            self._done(state, now)

    def resume(self, queue: str) -> None:
        with self._lock:
            now = self._now()
            state = self._queues.get(queue)
            if state and state.paused:
                state.paused, state.pause_reason = False, ""
                state.tell(now, Event.RESUME, [], count=0)
                state.rings = len(state.ready) + len(state.suspects)
                self._done(state, now)

    def purge(self, queue: str) -> int:
        with self._lock:
            now = self._now()
            state = self._reached(queue, now)
            # Freed when this returns, outside the lock: a million messages take a while.
            doomed = (state.waiting, state.ready, state.suspects, state.due, state.expiries)
            state.clear_waiting()
            count = len(doomed[0])
            state.counters["purged"] += count
            if count:
                state.tell(now, Event.PURGE, [], count=count)
            self._done(state, now)
        return count

    # --- history, topics --------------------------------------------------------------------

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        check_limit(limit)
        with self._lock:
            read = self._seen(queue, self._now()).log.read(after, limit)
            return Log(read.entries, read.cursor, read.missed)

    def publish(self, topic: str, entries: Sequence[bytes]) -> None:
        check_publish(topic, entries)
        with self._lock:
            self._append(topic, entries, self._now())

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        check_name(topic, "topic")
        check_limit(limit)
        with self._lock:
            self._now()
            journal: Journal[TopicEntry] = self._topics.get(topic) or Journal(TOPIC_LIMIT)
            read = journal.read(after, limit)
            return TopicPage(read.entries, read.cursor, read.missed)

    def _append(self, topic: str, entries: Sequence[bytes], now: int) -> None:
        journal = self._topics.setdefault(topic, Journal(TOPIC_LIMIT))
        journal.drop_while(lambda entry: entry.at + TOPIC_AGE <= now)
        for data in entries:
            journal.append(lambda id, data=data: TopicEntry(id, now, data))  # type: ignore[misc]
        self._bells.ring_all(topic_bell(topic))

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

    # --- the lock is held in all of these ---------------------------------------------------

    def _now(self) -> int:
        """The time, which never goes back: a clock that does must not undo a deadline."""
        self._check_open()
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._closed)

    def _new(self, queue: str, now: int) -> QueueState:
        return QueueState(check_name(queue), _DEFAULT, now)

    def _seen(self, queue: str, now: int) -> QueueState:
        """The queue as a reader sees it; an unknown one is empty, and stays unknown."""
        return self._queues.get(queue) or self._new(queue, now)

    def _made(self, queue: str, now: int) -> QueueState:
        if queue not in self._queues:
            self._queues[queue] = self._new(queue, now)
        return self._reached(queue, now)

    def _reached(self, queue: str, now: int) -> QueueState:
        state = self._seen(queue, now)
        state.reached(now)
        return state

    def _done(self, state: QueueState, now: int) -> None:
        """After a step: tell what happened, and wake whom it concerns."""
        if state.announce(now):
            self._bells.ring_all(topic_bell("lifecycle"))
        if count := max(state.alarms, min(2, state.rings)):
            self._bells.ring(state.name, count)
            state.rings = state.alarms = 0

    def _hand_on(self, queue: str, unused: bool) -> None:
        """A waiter left: somebody else gets its unused ring, or its watch over the next due time."""
        state = self._queues.get(queue)
        if state and ((unused and (state.ready or state.suspects)) or state.due):
            self._bells.ring(queue, 1)


_engines: weakref.WeakSet[MemoryEngine] = weakref.WeakSet()


def _after_fork() -> None:
    # The child has a copy, and working on it would run every message twice. The lock may be held by
    # a thread that does not exist here, so the child gets one that nobody holds.
    for engine in _engines:
        engine._lock._at_fork_reinit()  # type: ignore[attr-defined]  # as threading itself does it
        engine._closed = "the memory engine does not cross a fork: open a room in the child"


os.register_at_fork(after_in_child=_after_fork)
