"""Putting: all messages of a call or none, each at most once.

Most messages are new and have nothing special about them. They are kept without asking for their ids
first, and several calls of such messages are as good as one; whatever is not so simple is looked at
message by message.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.errors import InvalidInput, QueueFull
from postroom.limits import LAST_DUE
from postroom.model import Accepted, Message, NewMessage, Put, State

#: What is over is forgotten with every so many messages, so many at a time.
_FORGET_EVERY = 64
_FORGET = 1_000


def accept(state: QueueState, messages: Sequence[NewMessage], now: int) -> Accepted:
    """One call."""
    _forget(state, len(messages), now)
    return Accepted(put(state, messages, now), _told(state, state.waiting))


def accept_together(
    state: QueueState, calls: Sequence[Sequence[NewMessage]], now: int
) -> list[Accepted] | None:
    """Several calls in their order, as one; None, and nothing is kept, if it is not as simple as that."""
    messages = [message for call in calls for message in call]
    depth = state.waiting
    _forget(state, len(messages), now)
    if not _put_new(state, messages, now):
        return None
    accepted = []
    for call in calls:
        depth += len(call)
        accepted.append(Accepted([Put(message.id) for message in call], _told(state, depth)))
    return accepted


def _told(state: QueueState, depth: int) -> int | None:
    return depth if state.policy.watches_depth else None


def _forget(state: QueueState, count: int, now: int) -> None:
    if state.counters["put"] % _FORGET_EVERY < count:
        state.forget(now, _FORGET)


def put(state: QueueState, messages: Sequence[NewMessage], now: int) -> list[Put]:
    if _put_new(state, messages, now):
        return [Put(message.id) for message in messages]
    puts, new = _sort_out(state, messages, now)
    if state.policy.capacity is not None:
        admit(state, sum(not message.failure for message, _ in new))
    state.enter([stored for message, stored in new if not message.failure], now)
    for message, stored in new:
        if message.failure:
            state.bury(_letter(message, stored), message.failure, now, new=True)
    state.counters["put"] += len(new)
    return puts


def _put_new(state: QueueState, messages: Sequence[NewMessage], now: int) -> bool:
    """Keep these if all of them are new and ordinary, and there is room for all; else nothing."""
    capacity = state.policy.capacity
    if capacity is not None and state.waiting + len(messages) > capacity:
        return False
    entered = state.enter_plain(messages, now)
    if entered is None:
        entered = not any(message.unique_key or message.failure for message in messages) and state.enter_new(
            [_stored(state.name, message, now) for message in messages], now
        )
    if entered:
        state.counters["put"] += len(messages)
    return entered


def admit(state: QueueState, count: int) -> None:
    """Refuse what would go beyond the capacity, before anything is written."""
    capacity, waiting = state.policy.capacity, state.waiting
    if capacity is not None and count and waiting + count > capacity:
        raise QueueFull(
            f"{state.name}: {waiting:,} of {capacity:,} are waiting, there is no room for {count:,} more"
        )


def _sort_out(
    state: QueueState, messages: Sequence[NewMessage], now: int
) -> tuple[list[Put], list[tuple[NewMessage, Message]]]:
    """What is new, and an answer for every message."""
    puts: list[Put] = []
    new: dict[str, tuple[NewMessage, Message]] = {}
    keys: dict[str, str] = {}
    known = state.known([message.id for message in messages], now)
    for message in messages:
        id, key = message.id, None if message.failure else message.unique_key
        if id in new or id in known:
            puts.append(Put(id, created=False))
        elif key and (holder := keys.get(key) or state.holder(key)):
            puts.append(Put(holder, created=False))
        else:
            if key:
                keys[key] = id
            new[id] = message, _stored(state.name, message, now)
            puts.append(Put(id))
    return puts, list(new.values())


def _letter(message: NewMessage, stored: Message) -> Slot:
    slot = Slot(stored, State.DEAD, stored.due)
    if past := message.past:
        slot.attempt, slot.attempts = past.attempt, past.attempts
    return slot


def _stored(queue: str, new: NewMessage, now: int) -> Message:
    due = now + new.delay if new.due is None else max(now, new.due)
    if due > LAST_DUE:
        raise InvalidInput("delay: the message would be due after 2059")
    expires = new.expires if new.ttl is None else now + new.ttl
    if expires is not None and expires <= due:
        raise InvalidInput("expires: a message must expire after now and after it is due")
    put_at = min(now, new.past.put_at) if new.past else now
    return Message(
        id=new.id,
        queue=queue,
        body=new.body,
        put_at=put_at,
        due=due if due > now else put_at,
        kind=new.kind,
        content_type=new.content_type,
        headers=new.headers,
        priority=new.priority,
        expires=expires,
        ack_timeout=new.ack_timeout,
        max_attempts=new.max_attempts,
        correlation_id=new.correlation_id,
        unique_key=new.unique_key,
        remember=new.remember,
    )
