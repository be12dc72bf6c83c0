"""A ledger of what happened to each message, kept beside an engine and knowing none.

It believes only what the engine answered and what the clock said, and it holds the engine to both:
every message put is in exactly one state, or it left in a way that was answered, counted or due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from postroom.engine import ClaimRequest
from postroom.model import (
    Accepted,
    Action,
    Entry,
    Leased,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Settlement,
    State,
    Verb,
)
from postroom.policy import Policy
from postroom.stats import QueueStats

Snapshot = Mapping[State, Sequence[Entry]]

_REPLAY_REMEMBER = 86_400_000
_SORTED_BY = {
    State.READY: lambda entry: entry.order,
    State.SCHEDULED: lambda entry: entry.due,
    State.PROCESSING: lambda entry: entry.deadline,
    State.DEAD: lambda entry: entry.failed_at,
}


@dataclass
class Known:
    """What the ledger knows of one message."""

    message: NewMessage
    number: int
    #: The clock at the put, plus the delay: it cannot be due before.
    due: int
    #: The same plus its ttl: it cannot expire before.
    expires: int | None
    #: Never delayed, retried or moved, so that its place is where it was put.
    plain: bool = True
    claims: int = 0
    attempt: int = 0
    #: The present delivery: its token, and whether it was started.
    token: str = ""
    started: bool = False
    #: Deliveries that may count as attempts: those that were started, or retried without a start.
    countable: int = 0
    #: How it left, and the clock then; None while it exists.
    fate: str | None = None
    gone_at: int = 0
    replay: bool = False


class Ledger:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.known: dict[str, Known] = {}
        self.counted: Counter[str] = Counter()
        self._number = 0
        self._now = self._latest = 0
        #: Who is leased until when, as last seen.
        self._leased: dict[str, int] = {}
        #: What waited when last seen and was not claimed since.
        self._waited: set[str] = set()
        self._said_gone: set[str] = set()
        self.last: Snapshot = dict.fromkeys(State, ())

    def tick(self, now: int) -> None:
        """The clock as it reads now; an engine's own time is at most the latest of these."""
        self._now, self._latest = now, max(self._latest, now)

    # --- what was answered ------------------------------------------------------------------

    def put(self, messages: Sequence[NewMessage], accepted: Accepted, now: int) -> None:
        assert len(accepted.puts) == len(messages)
        for message, put in zip(messages, accepted.puts, strict=True):
            if put.created:
                assert put.id == message.id
                assert not self._alive(put.id), "created twice"
                assert not self._must_remember(put.id), "forgotten too soon"
                self._enter(message, now, plain=not message.delay)
            else:
                self._check_repeated(message, put.id)
        # A message that is dead on arrival does not wait, so the capacity has nothing to say about it.
        waits = any(
            put.created and not message.failure for message, put in zip(messages, accepted.puts, strict=True)
        )
        if self.policy.capacity is not None and waits:
            assert accepted.depth is not None and accepted.depth <= self.policy.capacity, (
                "beyond the capacity"
            )

    def _enter(self, message: NewMessage, now: int, *, plain: bool, replay: bool = False) -> None:
        self._number += 1
        self.counted["put"] += 1
        expires = None if message.ttl is None else now + message.ttl
        self.known[message.id] = Known(
            message, self._number, now + message.delay, expires, plain=plain, replay=replay
        )

    def _must_remember(self, id: str) -> bool:
        known = self.known.get(id)
        if known is None or known.fate not in ("acked", "cancelled"):
            return False
        return self._latest < known.gone_at + self._remember(known)

    def _remember(self, known: Known) -> int:
        if known.replay:
            return _REPLAY_REMEMBER
        own = known.message.remember
        return self.policy.dedupe_window if own is None else own

    def _check_repeated(self, message: NewMessage, id: str) -> None:
        known = self.known[id]
        if id != message.id:
            assert message.unique_key, "another id without a unique_key"
            assert known.message.unique_key == message.unique_key
        if known.fate is not None:
            assert id == message.id, "a key is held by a message that is gone"
            assert self._remember(known) or self.policy.keep_done, "remembered without a reason"

    def settled(self, settlement: Settlement, outcome: Outcome, now: int) -> None:
        id, known = settlement.receipt.id, self.known[settlement.receipt.id]
        if outcome is not Outcome.OK:
            self.told(id, outcome)
            return
        assert self._alive(id), "settled although it was gone"
        assert known.token == settlement.receipt.token, "settled with the receipt of an earlier delivery"
        known.token = ""
        self._leased.pop(id, None)
        if settlement.verb in (Verb.RETRY, Verb.BURY):
            self._start(known)
        match settlement.verb:
            case Verb.ACK:
                self._leave(id, "acked")
            case Verb.CANCEL:
                self._leave(id, "cancelled")
            case Verb.RETRY:
                known.plain, known.due = False, now + settlement.delay
            case Verb.RELEASE if settlement.delay:
                known.plain, known.due = False, now + settlement.delay

    def started(self, id: str, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self._start(self.known[id])
        else:
            self.told(id, outcome)

    def _start(self, known: Known) -> None:
        known.countable += not known.started
        known.started = True

    def told(self, id: str, outcome: Outcome) -> None:
        """A receipt was refused: gone if and only if the message is."""
        if outcome is Outcome.LOST:
            assert self._alive(id), "lost, although it was gone"
        else:
            # If the ledger does not know why, it was let go in this very call: see `check`.
            self._said_gone.add(id)

    def claimed(self, deliveries: Sequence[Leased], request: ClaimRequest, now: int) -> None:
        ids = [delivery.message.id for delivery in deliveries]
        assert len(ids) == len(set(ids)) <= request.n
        start = request.n if request.start is None else request.start
        for position, delivery in enumerate(deliveries):
            assert delivery.started == (position < start or delivery.suspect)
            self._check_delivery(delivery, now)
        suspects = sum(delivery.suspect for delivery in deliveries)
        assert suspects <= request.suspects, "a suspect for who takes none, or more than one"
        self._check_order([delivery for delivery in deliveries if not delivery.suspect])
        self.counted["claimed"] += len(ids)

    def _check_delivery(self, delivery: Leased, now: int) -> None:
        message, known = delivery.message, self.known[delivery.message.id]
        assert self._alive(message.id), "claimed although it was gone"
        assert self._leased.get(message.id, 0) <= self._latest, "leased twice at once"
        assert known.due <= self._latest, "claimed before it was due"
        assert message.expires is None or message.expires > now, "claimed although it had expired"
        assert message.body == known.message.body
        assert known.attempt <= delivery.attempt < delivery.max_attempts
        self._waited.discard(message.id)
        known.claims += 1
        known.token, known.started = delivery.token, delivery.started
        known.countable += delivery.started
        assert delivery.deliveries == known.claims

    def _check_order(self, deliveries: Sequence[Leased]) -> None:
        """Most urgent first, and FIFO inside a level for those whose place never changed."""
        priorities = [delivery.message.priority for delivery in deliveries]
        if self.policy.aging is None:
            assert priorities == sorted(priorities, reverse=True)
        for level in set(priorities):
            known = [self.known[each.message.id] for each in deliveries if each.message.priority == level]
            numbers = [each.number for each in known if each.plain]
            assert numbers == sorted(numbers), "not first in, first out"

    def moved(self, move: Move, moved: Moved, now: int) -> None:
        if not moved.ok:
            return
        known = self.known[move.id]
        match move.action:
            case Action.CANCEL:
                self._leave(move.id, "cancelled")
            case Action.DISCARD:
                self._leave(move.id, "discarded")
            case Action.RESCHEDULE | Action.RUN_NOW:
                wait = move.delay if move.action is Action.RESCHEDULE else 0
                known.plain, known.due = False, now + wait
            case Action.REPLAY:
                assert moved.replayed_as is not None
                if moved.replayed_as not in self.known:
                    again = known.message.replace(id=moved.replayed_as, delay=0, failure=None, ttl=None)
                    self._enter(again, now, plain=True, replay=True)

    def purged(self, count: int) -> None:
        waiting = [*self.last[State.READY], *self.last[State.SCHEDULED]]
        assert count == len(waiting)
        for entry in waiting:
            self._leave(entry.message.id, "purged")

    def _alive(self, id: str) -> bool:
        return id in self.known and self.known[id].fate is None

    def _leave(self, id: str, fate: str) -> None:
        assert self._alive(id), f"{fate} although it was gone"
        self.known[id].fate, self.known[id].gone_at = fate, self._now
        self.counted[fate] += 1

    # --- what is there ----------------------------------------------------------------------

    def check(self, snapshot: Snapshot, stats: QueueStats) -> None:
        """The whole queue, held against the ledger."""
        found = [(entry.message.id, state) for state in State for entry in snapshot[state]]
        states = dict(found)
        assert len(states) == len(found), "in two states at once"
        waiting_or_held = {id for id, state in states.items() if state is not State.DONE}
        assert not self._said_gone & waiting_or_held, "gone, although it was there"
        self._said_gone.clear()
        self._account_for_missing(states)
        for id, state in states.items():
            assert id in self.known, "there, but never put"
            assert (state is State.DONE) == (self.known[id].fate == "acked"), f"{state} after all"
        for state, entries in snapshot.items():
            self._check_entries(state, entries)
        self._check_stats(snapshot, stats)
        self._leased = {e.message.id: e.deadline for e in snapshot[State.PROCESSING] if e.deadline}
        self._waited = {e.message.id for e in (*snapshot[State.READY], *snapshot[State.SCHEDULED])}
        self.last = snapshot

    def _account_for_missing(self, states: Mapping[str, State]) -> None:
        """What is neither there nor answered for must have expired or been evicted, as counted below."""
        for id, known in self.known.items():
            if known.fate is None and id not in states:
                expired = known.expires is not None and known.expires <= self._latest
                dropped = expired and self.policy.on_expire == "drop"
                # Dead before, or dead by this very step; what only waited cannot have died.
                evicted = self._evicts and (expired or id not in self._waited)
                assert dropped or evicted, f"{id} is lost"
                self._leave(id, "let go")

    @property
    def _evicts(self) -> bool:
        return self.policy.dead_limit is not None or self.policy.dead_retention is not None

    def _check_entries(self, state: State, entries: Sequence[Entry]) -> None:
        if state in _SORTED_BY:
            keys = [_SORTED_BY[state](entry) for entry in entries]
            assert keys == sorted(keys), f"{state} is not in its order"
        for entry in entries:
            known = self.known[entry.message.id]
            own = entry.message.max_attempts
            limit = self.policy.max_attempts if own is None else own
            assert entry.state is state
            assert known.attempt <= entry.attempt <= limit, "more attempts than allowed, or some forgotten"
            assert entry.attempt < limit or state in (State.DEAD, State.DONE), "used up, but not dead"
            assert entry.attempt <= known.countable, "an attempt without a start"
            assert entry.deliveries == known.claims
            known.attempt = entry.attempt

    def _check_stats(self, snapshot: Snapshot, stats: QueueStats) -> None:
        for state in (State.READY, State.SCHEDULED, State.PROCESSING, State.DEAD):
            assert getattr(stats, state) == len(snapshot[state])
        held = [*snapshot[State.READY], *snapshot[State.SCHEDULED], *snapshot[State.PROCESSING]]
        keys = [entry.message.unique_key for entry in held if entry.message.unique_key]
        assert len(keys) == len(set(keys)), "two messages hold one unique_key"
        if self.policy.max_in_flight is not None:
            assert stats.processing <= self.policy.max_in_flight
        for name in ("put", "claimed", "acked", "cancelled", "discarded", "purged"):
            assert stats.counters[name] == self.counted[name], f"{name} is not what was answered"
        dropped = stats.counters["expired"] if self.policy.on_expire == "drop" else 0
        assert self.counted["let go"] == dropped + stats.counters["evicted"], "let go without being counted"
