"""Settling and holding on: every step here needs the receipt of the present delivery."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engines.memory.slot import Slot
from postroom.engines.memory.state import QueueState
from postroom.limits import when
from postroom.logs import Event
from postroom.model import Failure, Outcome, Receipt, Settlement, Verb
from postroom.policy import exhausted

#: Kept here because Python 3.11 takes 0.1 µs to find the member of an enumeration: not once a message.
_OK = Outcome.OK
#: What a failure says when the consumer said nothing.
_UNNAMED = Failure(type="Failed", text="the consumer gave no reason")


def settle(state: QueueState, settlements: Sequence[Settlement], now: int) -> list[Outcome]:
    outcomes = []
    for settlement in settlements:
        held = _held(state, settlement.receipt)
        if isinstance(held, Slot):
            _SETTLE[settlement.verb](state, held, settlement, now)
            held = _OK
        outcomes.append(held)
    return outcomes


def start(state: QueueState, receipts: Sequence[Receipt], now: int) -> list[Outcome]:
    """The work begins now: from here the ack_timeout counts."""
    outcomes = []
    for receipt in receipts:
        held = _held(state, receipt)
        if isinstance(held, Slot):
            if held.started_at is None:
                _start(state, held, now)
            held = Outcome.OK
        outcomes.append(held)
    return outcomes


def renew(state: QueueState, receipts: Sequence[Receipt], lease: int, now: int) -> list[Outcome]:
    outcomes = []
    for receipt in receipts:
        held = _held(state, receipt)
        if isinstance(held, Slot):
            _move_deadline(state, held, state.policy.deadline(now, lease, held.ack_deadline))
            held = Outcome.OK
        outcomes.append(held)
    return outcomes


def extend(
    state: QueueState,
    receipts: Sequence[Receipt],
    span: int | None,
    lease: int | None,
    checkpoint: bytes | None,
    now: int,
) -> list[Outcome]:
    outcomes = []
    for receipt in receipts:
        held = _held(state, receipt)
        if isinstance(held, Slot):
            allowed = _ack_timeout(state, held) if span is None else span
            held.ack_deadline = None if allowed is None else now + allowed
            _move_deadline(state, held, state.policy.deadline(now, lease, held.ack_deadline))
            if checkpoint is not None:
                held.checkpoint = checkpoint
            held = Outcome.OK
        outcomes.append(held)
    return outcomes


def _held(state: QueueState, receipt: Receipt) -> Slot | Outcome:
    """The message this receipt holds, or what to answer instead."""
    slot = state.processing.get(receipt.id)
    if slot is None:
        elsewhere = receipt.id in state.waiting or receipt.id in state.dead
        return Outcome.LOST if elsewhere else Outcome.GONE
    return slot if slot.token == receipt.token else Outcome.LOST


def _ack(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    state.take_back(slot)
    state.finish(slot, now)
    state.counters["acked"] += 1


def _retry(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    failure = settlement.failure or _UNNAMED
    slot.note_attempt(now, failure.summary)
    state.take_back(slot)
    policy, limit = state.policy, slot.message.max_attempts
    if exhausted(slot.attempt, policy.max_attempts if limit is None else limit):
        state.bury(slot, failure, now)
        return
    state.wait_until(slot, when(settlement.delay, settlement.due, now), now)
    state.count("retried", Event.RETRY, slot.message.id)


def _release(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    if slot.started_at is None:
        state.spend(-1, now)
    state.take_back(slot)
    assert slot.order is not None
    state.place(slot, slot.order)
    state.counters["released"] += 1


def _bury(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    failure = settlement.failure or _UNNAMED
    slot.note_attempt(now, failure.summary)
    state.take_back(slot)
    state.bury(slot, failure, now)


_SETTLE = {Verb.ACK: _ack, Verb.RETRY: _retry, Verb.RELEASE: _release, Verb.BURY: _bury}


def _start(state: QueueState, slot: Slot, now: int) -> None:
    timeout = _ack_timeout(state, slot)
    slot.started_at = now
    slot.ack_deadline = None if timeout is None else now + timeout
    _move_deadline(state, slot, state.policy.deadline(now, slot.lease, slot.ack_deadline))


def _ack_timeout(state: QueueState, slot: Slot) -> int | None:
    own = slot.message.ack_timeout
    return state.policy.ack_timeout if own is None else own


def _move_deadline(state: QueueState, slot: Slot, deadline: int) -> None:
    slot.deadline = deadline
    state.deadlines.set(slot.message.id, deadline)
