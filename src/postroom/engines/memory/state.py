"""One queue as plain data, and the elementary steps between the states of a message.

Nothing here locks, waits or reads a clock: the engine holds its lock and passes `now`. A message is
in exactly one of `waiting` (ready or scheduled), `processing`, `dead` and `done`, and every step
takes it from one to another; the verbs (put, claim, settle, sweep, operate) are made of these steps.
"""

from __future__ import annotations

from postroom.engines.memory.books import Books
from postroom.engines.memory.indexes import RankIndex, TimeIndex
from postroom.engines.memory.slot import Slot
from postroom.limits import MAX_PRIORITY
from postroom.logs import Event
from postroom.model import Failure, Message, QueueStats, State
from postroom.policy import Policy, stamped


class QueueState(Books):
    """Where every message of one queue stands."""

    def __init__(self, name: str, policy: Policy, now: int) -> None:
        super().__init__(name, policy, now)
        self.processing: dict[str, Slot] = {}
        self.dead: dict[str, Slot] = {}
        self.done: dict[str, Slot] = {}
        self.deadlines = TimeIndex()
        self.deaths = TimeIndex()
        self.done_until = TimeIndex()
        self.remembered = TimeIndex()
        self.groups: dict[str, dict[str, None]] = {}
        self.clear_waiting()

    def clear_waiting(self) -> None:
        """Forget all that waits; the cost follows what is processing, not what waits."""
        self.waiting: dict[str, Slot] = {}
        self.ready = RankIndex()
        self.suspects = RankIndex()
        self.due = TimeIndex()
        self.expiries = TimeIndex()
        held = (slot.message for slot in self.processing.values())
        self.unique = {message.unique_key: message.id for message in held if message.unique_key}

    # --- looking ----------------------------------------------------------------------------

    def slot(self, id: str) -> Slot | None:
        """The message of this id, if it waits, is processing or is dead."""
        return self.waiting.get(id) or self.processing.get(id) or self.dead.get(id)

    def visible(self, id: str, now: int) -> Slot | None:
        """The message of this id, also while `keep_done` lets people look at it."""
        return self.slot(id) or (self.done[id] if _later(self.done_until.at(id), now) else None)

    def holder(self, unique_key: str) -> str | None:
        """The waiting or processing message that has this key."""
        id = self.unique.get(unique_key)
        return id if id in self.waiting or id in self.processing else None

    def empty(self) -> bool:
        return not (self.waiting or self.processing or self.dead)

    def stats(self, now: int) -> QueueStats:
        heads = (*self.ready.heads(), *self.suspects.heads())
        return QueueStats(
            queue=self.name,
            ready=len(self.ready) + len(self.suspects),
            scheduled=len(self.due),
            processing=len(self.processing),
            overdue=self.deadlines.count_until(now),
            dead=len(self.dead),
            next_priority=self._next_priority(),
            oldest=max((now - self.waiting[id].message.put_at for id in heads), default=0),
            paused=self.paused,
            counters=dict(self.counters),
        )

    def _next_priority(self) -> int | None:
        heads = [head for head in (self.ready.first(), self.suspects.first()) if head]
        return self.waiting[min(heads)[1]].message.priority if heads else None

    def knows(self, id: str, now: int) -> bool:
        """Whether the message exists, or is gone but still remembered."""
        if id in self.waiting or id in self.processing or id in self.dead:
            return True
        return (id in self.done and _later(self.done_until.at(id), now)) or _later(
            self.remembered.at(id), now
        )

    def next_wake(self, now: int, *others: int | None) -> int:
        return self.wake(now, self.deadlines.first(), *others)

    # --- waiting ----------------------------------------------------------------------------

    def enter(self, message: Message, now: int) -> None:
        """A new message joins those that wait."""
        if message.unique_key:
            self.unique[message.unique_key] = message.id
        if message.due > now:
            self.schedule(Slot(message, State.SCHEDULED, message.due), message.due)
            return
        # As `place` does it, but a new message is no suspect: this is the way of almost every message.
        order = self.new_order(message.priority, now)
        self.ready.add(message.id, message.priority, order)
        self.rings += 1
        self._keep_waiting(Slot(message, State.READY, message.due, order))

    def wait_until(self, slot: Slot, due: int, now: int) -> None:
        if due > now:
            self.schedule(slot, due)
        else:
            self.make_ready(slot, now, now)

    def schedule(self, slot: Slot, due: int) -> None:
        slot.state, slot.due, slot.order = State.SCHEDULED, due, None
        first = self.due.first()
        if first is None or due < first:
            # Three should know of an earlier due time: one to wake for it, two to stand by.
            self.alarms = 3
        self.due.set(slot.message.id, due, MAX_PRIORITY - slot.message.priority)
        self._keep_waiting(slot)

    def make_ready(self, slot: Slot, due: int, now: int) -> None:
        """Ready, at the place it would have had it been put when due."""
        slot.due = due
        self.place(slot, self.due_order(slot.message.priority, due, now))

    def place(self, slot: Slot, order: int) -> None:
        """Ready, at exactly this place."""
        slot.state, slot.order = State.READY, order
        suspect = self.policy.is_suspect(slot.ran_out, slot.strays)
        index = self.suspects if suspect else self.ready
        index.add(slot.message.id, slot.message.priority, order)
        self.rings += 1
        self._keep_waiting(slot)

    def _keep_waiting(self, slot: Slot) -> None:
        message = slot.message
        self.waiting[message.id] = slot
        if message.expires is not None:
            self.expiries.set(message.id, message.expires)

    def leave_waiting(self, slot: Slot) -> None:
        id = slot.message.id
        del self.waiting[id]
        self.ready.discard(id)
        self.suspects.discard(id)
        self.due.discard(id)
        self.expiries.discard(id)

    # --- leaving a consumer's hands ---------------------------------------------------------

    def take_back(self, slot: Slot) -> None:
        """Out of its consumer's hands; the caller says where to."""
        id = slot.message.id
        del self.processing[id]
        self.deadlines.discard(id)
        slot.lay_down()
        if self.policy.max_in_flight is not None and (self.ready or self.suspects):
            self.rings += 1

    def finish(self, slot: Slot, now: int) -> None:
        """Done; `keep_done` lets people look at it for a while."""
        if self.policy.keep_done:
            slot.state, slot.order, slot.ended_at = State.DONE, None, now
            self.done[slot.message.id] = slot
            self.done_until.set(slot.message.id, now + self.policy.keep_done)
        self.vanish(slot.message, now)

    def vanish(self, message: Message, now: int) -> None:
        """Gone for good; its id is still remembered for as long as was promised."""
        self._release_key(message)
        remember = self.policy.dedupe_window if message.remember is None else message.remember
        if remember:
            self.remembered.set(message.id, now + remember)

    def forget(self, now: int, limit: int) -> int:
        """Forget ids and finished messages whose time is over."""
        for id in (done := self.done_until.pop_until(now, limit)):
            del self.done[id]
        return max(len(done), len(self.remembered.pop_until(now, limit)))

    def bury(self, slot: Slot, failure: Failure, now: int) -> None:
        """Dead: kept, with its failure, until its retention ends."""
        message = slot.message
        self._release_key(message)
        slot.state, slot.order, slot.ended_at = State.DEAD, None, now
        slot.failure = stamped(failure, message.kind, now)
        self.dead[message.id] = slot
        self.deaths.set(message.id, now)
        self.groups.setdefault(slot.failure.fingerprint, {})[message.id] = None
        self.count("dead", Event.MOVE_TO_DLQ, message.id)
        limit = self.policy.dead_limit
        if limit is not None and len(self.dead) > limit:
            self.evict(1, now)

    def exhume(self, slot: Slot, now: int) -> None:
        """No dead letter any more, and nothing else either."""
        id = slot.message.id
        del self.dead[id]
        self.deaths.discard(id)
        group = slot.failure.fingerprint if slot.failure else ""
        self.groups.get(group, {}).pop(id, None)
        if not self.groups.get(group):
            self.groups.pop(group, None)
        self.vanish(slot.message, now)

    def evict(self, count: int, now: int) -> None:
        """Let go of the oldest dead letters: counted and announced."""
        for id in self.deaths.pop_until(now, count):
            self.exhume(self.dead[id], now)
            self.count("evicted", Event.EVICT, id)

    def _release_key(self, message: Message) -> None:
        if message.unique_key and self.unique.get(message.unique_key) == message.id:
            del self.unique[message.unique_key]


def _later(until: int | None, now: int) -> bool:
    return until is not None and until > now
