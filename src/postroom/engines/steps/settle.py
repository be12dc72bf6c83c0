"""Settling and holding on: every step here needs the receipt of the present delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.limits import when
from postroom.logs import Event
from postroom.model import Failure, Outcome, Receipt, Settlement, Verb
from postroom.policy import exhausted

#: Kept here because Python 3.11 takes 0.1 µs to find the member of an enumeration: not once a message.
_OK, _ACK = Outcome.OK, Verb.ACK
#: What a failure says when the consumer said nothing.
_UNNAMED = Failure(type="Failed", text="the consumer gave no reason")


def settle(state: QueueState, settlements: Sequence[Settlement], now: int) -> list[Outcome]:
    if len({settlement.receipt.id for settlement in settlements}) < len(settlements):
        # Several about one message: one after the other.
        return [outcome for settlement in settlements for outcome in settle(state, [settlement], now)]
    acked = state.ack([each.receipt for each in settlements if each.verb is _ACK], now)
    state.counters["acked"] += len(acked)
    return [
        _OK if each.receipt.id in acked or _settle(state, each, now) else _missing(state, each.receipt)
        for each in settlements
    ]


def _settle(state: QueueState, settlement: Settlement, now: int) -> bool:
    """Whatever is no ack, if this receipt holds the message."""
    if settlement.verb is _ACK or (slot := state.held(settlement.receipt)) is None:
        return False
    _SETTLE[settlement.verb](state, slot, settlement, now)
    return True


def start(state: QueueState, receipts: Sequence[Receipt], now: int) -> list[Outcome]:
    """The work begins now: from here the ack_timeout counts."""

    def begin(slot: Slot) -> None:
        if slot.started_at is None:
            timeout = _ack_timeout(state, slot)
            slot.started_at = now
            slot.ack_deadline = None if timeout is None else now + timeout
            slot.deadline = state.policy.deadline(now, slot.lease, slot.ack_deadline)
            state.update(slot)

    return _each_held(state, receipts, begin)


def renew(state: QueueState, receipts: Sequence[Receipt], lease: int, now: int) -> list[Outcome]:
    def move_deadline(slot: Slot) -> None:
        slot.deadline = state.policy.deadline(now, lease, slot.ack_deadline)
        state.update(slot)

    return _each_held(state, receipts, move_deadline)


def extend(
    state: QueueState,
    receipts: Sequence[Receipt],
    span: int | None,
    lease: int | None,
    checkpoint: bytes | None,
    now: int,
) -> list[Outcome]:
    def touch(slot: Slot) -> None:
        allowed = _ack_timeout(state, slot) if span is None else span
        slot.ack_deadline = None if allowed is None else now + allowed
        slot.deadline = state.policy.deadline(now, lease, slot.ack_deadline)
        slot.note_extension()
        if checkpoint is not None:
            slot.checkpoint = checkpoint
        state.update(slot)

    return _each_held(state, receipts, touch)


def _each_held(
    state: QueueState, receipts: Sequence[Receipt], hold_on: Callable[[Slot], None]
) -> list[Outcome]:
    outcomes = []
    for receipt in receipts:
        slot = state.held(receipt)
        if slot is None:
            outcomes.append(_missing(state, receipt))
        else:
            hold_on(slot)
            outcomes.append(_OK)
    return outcomes


def _missing(state: QueueState, receipt: Receipt) -> Outcome:
    """What to answer to a receipt that holds nothing."""
    return Outcome.LOST if state.exists(receipt.id) else Outcome.GONE


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
    if settlement.delay:
        state.wait_until(slot, when(settlement.delay, None, now), now)
    else:
        assert slot.order is not None
        state.place(slot, slot.order)
    state.counters["released"] += 1


def _bury(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    failure = settlement.failure or _UNNAMED
    slot.note_attempt(now, failure.summary)
    state.take_back(slot)
    state.bury(slot, failure, now)


def _cancel(state: QueueState, slot: Slot, settlement: Settlement, now: int) -> None:
    state.take_back(slot)
    state.vanish(slot, now)
    state.count("cancelled", Event.CANCEL, slot.message.id)


_SETTLE = {Verb.RETRY: _retry, Verb.RELEASE: _release, Verb.BURY: _bury, Verb.CANCEL: _cancel}


def _ack_timeout(state: QueueState, slot: Slot) -> int | None:
    own = slot.message.ack_timeout
    return state.policy.ack_timeout if own is None else own
