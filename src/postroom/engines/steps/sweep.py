"""What time demands: reclaim the overdue, promote the due, expire, evict, forget. Each bounded."""

from __future__ import annotations

from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.logs import Event
from postroom.model import Swept
from postroom.policy import exhausted, expired_failure, ran_out_failure


def sweep(state: QueueState, now: int, limit: int, triggered_by: str) -> Swept:
    state.end_pause(now)
    evicted_before = state.counters["evicted"]
    reclaimed, dead = reclaim(state, now, limit, triggered_by)
    promoted = promote(state, now, limit)
    expired = expire(state, now, limit)
    evict(state, now, limit)
    forgotten = state.forget(now, limit)
    evicted = state.counters["evicted"] - evicted_before
    full = max(reclaimed, promoted, expired, evicted, forgotten) >= limit
    wake = 0 if full else state.next_wake(now, state.first_due(), state.first_expiry(), state.paused_until)
    return Swept(reclaimed, dead, promoted, expired, evicted, full, wake)


def reclaim(state: QueueState, now: int, limit: int, triggered_by: str) -> tuple[int, int]:
    """Take overdue deliveries back: to their place, or among the dead when their attempts are used up.

    Returns how many in all, and how many of them are dead.
    """
    if now < state.grace_until:
        return 0, 0
    overdue = state.overdue(now, limit)
    returned = [slot.message.id for slot in overdue if _come_back(state, slot, now)]
    dead = len(overdue) - len(returned)
    if overdue:
        state.counters["reclaimed"] += len(overdue)
        state.tell(now, Event.REQUEUE, returned, {"dlq_count": dead, "triggered_by": triggered_by})
    return len(overdue), dead


def _come_back(state: QueueState, slot: Slot, now: int) -> bool:
    """Back to its place: True. Dead instead, in the same step: False."""
    started = slot.started_at is not None
    # By the deadline that passed, not by now: a late sweep must not take a dead consumer for a slow one.
    too_slow = slot.ack_deadline is not None and slot.ack_deadline == slot.deadline
    failure = ran_out_failure(slot.message.kind, too_slow=too_slow, failed_at=now)
    if started:
        slot.note_attempt(now, failure.type)
        slot.ran_out += 1
    else:
        slot.strays += 1
    state.take_back(slot)
    limit = slot.message.max_attempts
    if started and exhausted(slot.attempt, state.policy.max_attempts if limit is None else limit):
        state.bury(slot, failure, now)
        return False
    assert slot.order is not None
    state.place(slot, slot.order)
    return True


def promote(state: QueueState, now: int, limit: int) -> int:
    """Make ready what is due, earliest first, most urgent first within a millisecond."""
    due = state.due(now, limit)
    for slot in due:
        state.take(slot)
        state.make_ready(slot, slot.due, now)
    return len(due)


def expire(state: QueueState, now: int, limit: int) -> int:
    expired = state.expired(now, limit)
    for slot in expired:
        state.take(slot)
        expire_one(state, slot, now)
    return len(expired)


def expire_one(state: QueueState, slot: Slot, now: int) -> None:
    """Nobody took it in time: a dead letter or nothing, as the policy says, but never silently."""
    state.count("expired", Event.EXPIRE, slot.message.id)
    if state.policy.on_expire == "dead":
        state.bury(slot, expired_failure(slot.message.kind, now), now)
    else:
        state.vanish(slot, now)


def evict(state: QueueState, now: int, limit: int) -> None:
    """Let go of dead letters beyond their number or age."""
    policy = state.policy
    if policy.dead_limit is not None and (beyond := state.dead - policy.dead_limit) > 0:
        state.evict(min(beyond, limit), now)
    if policy.dead_retention is not None:
        state.evict(limit, now, until=now - policy.dead_retention)
