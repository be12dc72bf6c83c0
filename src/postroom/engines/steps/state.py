"""One queue, and the elementary steps between the states of its messages.

Nothing here locks, waits or reads a clock: the engine sees to that and passes `now`. The verbs (put,
claim, settle, sweep, operate) are made of these steps, and these of what an engine must provide.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from postroom.engines.steps.books import Books
from postroom.engines.steps.slot import Slot
from postroom.logs import Event, Group
from postroom.model import (
    Failure,
    Message,
    NewMessage,
    Receipt,
    State,
)
from postroom.policy import Policy, stamped
from postroom.stats import Backlog, QueueStats, Tally

#: Kept here because Python 3.11 takes 0.1 µs to find the member of an enumeration: not once a message.
_READY, _SCHEDULED = State.READY, State.SCHEDULED


class Drawn(NamedTuple):
    """What a claim found: the messages to lease, and those that turned out to be expired."""

    slots: list[Slot]
    expired: list[Slot]


class Ripe(NamedTuple):
    """What time demands: whether anything is overdue, due, or expired."""

    overdue: bool
    due: bool
    expired: bool


class QueueState(Books):
    """Where every message of one queue stands."""

    #: How many messages there are in each state; `suspects` are ready too, but counted apart.
    ready: int
    suspects: int
    scheduled: int
    processing: int
    dead: int
    seq: int
    rings: int
    alarms: int

    def __init__(self, name: str, policy: Policy, now: int) -> None:
        super().__init__(name, policy, now)
        self.ready = self.suspects = self.scheduled = self.processing = self.dead = 0
        #: Whether max_in_flight held claims back when the present step began.
        self._was_full = False

    # --- what an engine provides: to keep and find messages ---------------------------------

    @abc.abstractmethod
    def add(self, slots: Sequence[Slot]) -> None:
        """Keep new messages, none of them known, where their states say."""

    def add_new(self, slots: Sequence[Slot], now: int) -> bool:
        """Keep these unless an id is known or comes twice; then none of them."""
        ids = {slot.message.id for slot in slots}
        if len(ids) < len(slots) or self.known(list(ids), now):
            return False
        self.add(slots)
        return True

    @abc.abstractmethod
    def take(self, slot: Slot) -> None:
        """Out of where its state says; `lay` or `let_go` follows."""

    @abc.abstractmethod
    def lay(self, slot: Slot) -> None:
        """Keep a taken message where its state says now."""

    @abc.abstractmethod
    def let_go(self, slot: Slot) -> None:
        """A taken message is no more."""

    @abc.abstractmethod
    def update(self, slot: Slot) -> None:
        """Keep what has changed about a message that stays in its state."""

    @abc.abstractmethod
    def draw(self, n: int, suspects: bool, now: int) -> Drawn:
        """Take the next ready messages: n at most, one suspect if wanted, 4 MB but at least one."""

    @abc.abstractmethod
    def lease(self, slots: Sequence[Slot]) -> None:
        """Lay these drawn messages down as processing."""

    @abc.abstractmethod
    def slot(self, id: str) -> Slot | None:
        """The message of this id, with its body, whatever its state."""

    @abc.abstractmethod
    def held(self, receipt: Receipt) -> Slot | None:
        """The message that exactly this delivery holds."""

    @abc.abstractmethod
    def exists(self, id: str) -> bool:
        """Whether a message of this id waits, is processing or is dead."""

    @abc.abstractmethod
    def known(self, ids: Sequence[str], now: int) -> set[str]:
        """Those that exist, or are gone but still remembered or kept for people to look at."""

    @abc.abstractmethod
    def holder(self, unique_key: str) -> str | None:
        """The waiting or processing message that has this key."""

    @abc.abstractmethod
    def remember(self, id: str, until: int) -> None:
        """Know this id after its message is gone."""

    @abc.abstractmethod
    def forget(self, now: int, limit: int) -> int:
        """Let go of ids and finished messages whose time is over; how many of one kind at most."""

    @abc.abstractmethod
    def clear_waiting(self) -> tuple[int, object]:
        """Forget all that waits: how many, and what should be freed only outside of the step."""

    # --- what an engine provides: to find by time and order ---------------------------------

    @abc.abstractmethod
    def ripe(self, now: int) -> Ripe:
        """What there is to do before a claim: asked often, so in one look."""

    @abc.abstractmethod
    def overdue(self, now: int, limit: int) -> list[Slot]:
        """Processing messages whose deadline has come, earliest first."""

    @abc.abstractmethod
    def due(self, now: int, limit: int) -> list[Slot]:
        """Scheduled messages whose time has come, earliest first, then most urgent first."""

    @abc.abstractmethod
    def expired(self, now: int, limit: int) -> list[Slot]:
        """Waiting messages that nobody took in time, earliest first."""

    @abc.abstractmethod
    def oldest_dead(self, until: int, limit: int) -> list[Slot]:
        """The dead letters that died first, up to that moment."""

    @abc.abstractmethod
    def first_deadline(self) -> int | None: ...

    @abc.abstractmethod
    def first_due(self) -> int | None: ...

    @abc.abstractmethod
    def first_expiry(self) -> int | None: ...

    @abc.abstractmethod
    def count_overdue(self, now: int) -> int: ...

    @abc.abstractmethod
    def next_priority(self) -> int | None:
        """The priority of the message to be claimed next."""

    @abc.abstractmethod
    def heads(self) -> Iterable[int]:
        """When the first ready message of each level was put; with aging levels mix, and it is one."""

    @abc.abstractmethod
    def groups(self, after: str, limit: int) -> list[Group]:
        """The groups of the dead letters, by fingerprint, behind `after`."""

    @abc.abstractmethod
    def tally(self, state: State, edges: Sequence[int], group: str | None) -> Tally:
        """How many scheduled messages are due, or letters died, between each two edges."""

    @abc.abstractmethod
    def backlog(self) -> Backlog:
        """Ready messages by priority, and how many scheduled ones were tried before."""

    @abc.abstractmethod
    def page(
        self,
        state: State,
        after: tuple[int, str] | None,
        limit: int,
        group: str | None,
        correlation_id: str | None,
        now: int,
    ) -> list[tuple[int, str]]:
        """The next (key, id) of one state in its order, behind `after`."""

    # --- looking ----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return self.ready + self.suspects + self.scheduled

    @property
    def claimable(self) -> int:
        return self.ready + self.suspects

    def visible(self, id: str, now: int) -> Slot | None:
        """The message of this id; a done one only while `keep_done` lets people look at it."""
        slot = self.slot(id)
        return slot if slot and (slot.state is not State.DONE or slot.kept_until > now) else None

    def empty(self) -> bool:
        return not (self.waiting or self.processing or self.dead)

    def stats(self, now: int) -> QueueStats:
        return QueueStats(
            queue=self.name,
            ready=self.claimable,
            scheduled=self.scheduled,
            processing=self.processing,
            overdue=self.count_overdue(now),
            dead=self.dead,
            next_priority=self.next_priority(),
            oldest=max((now - put_at for put_at in self.heads()), default=0),
            paused=self.is_paused(now),
            paused_until=self.paused_until if self.is_paused(now) else None,
            throttled=self.refill_in(now),
            counters=dict(self.counters),
        )

    def next_wake(self, now: int, *others: int | None) -> int:
        return self.wake(now, self.first_deadline(), *others)

    def end_pause(self, now: int) -> None:
        """A pause whose time is over is none; somebody may claim again."""
        if self.paused and not self.is_paused(now):
            self.unpause(now, {"triggered_by": "time"})
            self.unblock()

    # --- rings ------------------------------------------------------------------------------

    def unblock(self) -> None:
        """Claims are not held back any more.

        Nobody who asked meanwhile was told what is due next: as with an earlier due time, one should know
        it and two stand by.
        """
        self.rings = self.claimable
        if self.first_due() is not None:
            self.alarms = 3

    def rings_wanted(self) -> int:
        limit, was_full, self._was_full = self.policy.max_in_flight, self._was_full, False
        if was_full and limit is not None and self.processing < limit and self.first_due() is not None:
            self.alarms = 3  # see `unblock`
        return super().rings_wanted()

    # --- waiting ----------------------------------------------------------------------------

    def enter(self, messages: Sequence[Message], now: int) -> None:
        """New messages join those that wait."""
        self.add([self._entering(message, now) for message in messages])

    def enter_plain(self, messages: Sequence[NewMessage], now: int) -> bool | None:
        """The same, by a shorter way that an engine may have for messages of which nothing is said, and which
        are ready at once. None if it has none for these; then, as if one is known, nothing has happened."""
        return None

    def enter_new(self, messages: Sequence[Message], now: int) -> bool:
        """The same if all of them are new; else it is as if nobody had asked."""
        before = self.seq, self.rings, self.alarms
        if self.add_new([self._entering(message, now) for message in messages], now):
            return True
        self.seq, self.rings, self.alarms = before
        return False

    def _entering(self, message: Message, now: int) -> Slot:
        if message.due > now:
            self._watch(message.due)
            return Slot(message, _SCHEDULED, message.due)
        self.rings += 1
        return Slot(message, _READY, message.due, self.new_order(message.priority, now))

    def wait_until(self, slot: Slot, due: int, now: int) -> None:
        if due > now:
            slot.state, slot.due, slot.order = State.SCHEDULED, due, None
            self._watch(due)
            self.lay(slot)
        else:
            self.make_ready(slot, now, now)

    def _watch(self, due: int) -> None:
        first = self.first_due()
        if first is None or due < first:
            # Three should know of an earlier due time: one to wake for it, two to stand by.
            self.alarms: int = 3

    def make_ready(self, slot: Slot, due: int, now: int) -> None:
        """Ready, at the place it would have had it been put when due."""
        slot.due = due
        self.place(slot, self.due_order(slot.message.priority, due, now))

    def place(self, slot: Slot, order: int) -> None:
        """Ready, at exactly this place."""
        slot.state, slot.order = State.READY, order
        slot.suspect = self.policy.is_suspect(slot.ran_out, slot.strays)
        self.rings += 1
        self.lay(slot)

    # --- leaving a consumer's hands ---------------------------------------------------------

    def take_back(self, slot: Slot) -> None:
        """Out of its consumer's hands; the caller says where to."""
        self.take(slot)
        slot.lay_down()
        self.free_hand()

    def free_hand(self) -> None:
        """One less is processing; with a limit on that, somebody may claim again."""
        limit = self.policy.max_in_flight
        if limit is None:
            return
        self._was_full = self._was_full or self.processing + 1 >= limit
        if self.claimable:
            self.rings += 1

    def ack(self, receipts: Sequence[Receipt], now: int) -> set[str]:
        """End exactly these deliveries for good; the ids of those that held their message."""
        acked = set()
        for receipt in receipts:
            if slot := self.held(receipt):
                self.take_back(slot)
                self.finish(slot, now)
                acked.add(receipt.id)
        return acked

    def finish(self, slot: Slot, now: int) -> None:
        """Done; `keep_done` lets people look at it for a while."""
        if keep := self.policy.keep_done:
            slot.state, slot.order, slot.ended_at, slot.kept_until = State.DONE, None, now, now + keep
            self.lay(slot)
            self._remember(slot.message, now)
        else:
            self.vanish(slot, now)

    def vanish(self, slot: Slot, now: int) -> None:
        """Gone for good; its id is still remembered for as long as was promised."""
        self.let_go(slot)
        self._remember(slot.message, now)

    def _remember(self, message: Message, now: int) -> None:
        remember = self.policy.dedupe_window if message.remember is None else message.remember
        if remember:
            self.remember(message.id, now + remember)

    def bury(self, slot: Slot, failure: Failure, now: int, *, new: bool = False) -> None:
        """Dead: kept, with its failure, until its retention ends."""
        message = slot.message
        slot.state, slot.order, slot.ended_at = State.DEAD, None, now
        slot.failure = stamped(failure, message.kind, now)
        if new:
            self.add([slot])
        else:
            self.lay(slot)
        self.count("dead", Event.MOVE_TO_DLQ, message.id)
        limit = self.policy.dead_limit
        if limit is not None and self.dead > limit:
            self.evict(1, now)

    def evict(self, count: int, now: int, until: int | None = None) -> None:
        """Let go of the dead letters that died first, up to that moment: counted and announced."""
        for slot in self.oldest_dead(now if until is None else until, count):
            self.take(slot)
            self.vanish(slot, now)
            self.count("evicted", Event.EVICT, slot.message.id)
