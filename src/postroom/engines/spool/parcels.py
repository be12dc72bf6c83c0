"""Messages on their way through the spool: how they are kept there, and what becomes of them in Redis.

A message to be worked on here is kept as it is. One that is only moved is *held*: wrapped into a message
that is due at the end of all time. *Parked* is either: nobody here can claim it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from postroom.errors import InvalidInput
from postroom.limits import LAST_DUE
from postroom.model import Entry, Failure, NewMessage, Past, State
from postroom.policy import Policy

#: Every put through a spool is remembered for a day: it may be repeated by a move.
REMEMBER = 24 * 3_600_000
#: When what is parked would be due.
PARKED = LAST_DUE
#: The content type of a message that wraps another.
HELD = "application/x-postroom-held"

_unwrap = msgspec.msgpack.Decoder(NewMessage).decode


def remembered(messages: Sequence[NewMessage], window: int) -> list[NewMessage]:
    """The same messages, each remembered for a day, or longer if it or its queue (`window`) says so."""
    least = max(REMEMBER, window)
    return [
        message
        if message.remember is not None and message.remember >= REMEMBER
        else message.replace(remember=max(REMEMBER, message.remember or least))
        for message in messages
    ]


def may_be_repeated(messages: Sequence[NewMessage], window: int) -> bool:
    """Whether Redis may know one of these already, because its producer wants a repeated put to be one."""
    return window > 0 or any(message.remember or message.content_type == HELD for message in messages)


def held(messages: Sequence[NewMessage], now: int) -> list[NewMessage]:
    """These messages, to be kept and moved but not worked on."""
    return [_wrapped(_dated(message, now)) for message in messages]


def _dated(message: NewMessage, now: int) -> NewMessage:
    """With instants for spans: they count from the put, not from the move."""
    due = now + message.delay if message.due is None else message.due
    expires = message.expires if message.ttl is None else now + message.ttl
    if expires is not None and expires <= max(now, due):
        raise InvalidInput("expires: a message must expire after now and after it is due")
    return message.replace(due=due, delay=0, expires=expires, ttl=None)


def _wrapped(message: NewMessage) -> NewMessage:
    return NewMessage(
        id=message.id,
        body=msgspec.msgpack.encode(message),
        content_type=HELD,
        priority=message.priority,
        due=PARKED,
        remember=message.remember,
    )


def is_parked(entry: Entry) -> bool:
    return entry.state is State.SCHEDULED and entry.due >= PARKED


def restored(entry: Entry, policy: Policy) -> NewMessage:
    """The message to put to Redis. Attempts made here are taken from those it may have."""
    message = entry.message
    if message.content_type == HELD:
        inside = _unwrap(message.body)
        return inside.replace(expires=None) if inside.failure else inside
    attempts = policy.max_attempts if message.max_attempts is None else message.max_attempts
    return NewMessage(
        id=message.id,
        body=message.body,
        kind=message.kind,
        content_type=message.content_type,
        headers=message.headers,
        priority=message.priority,
        # When it is due now; of one that a mover parked and did not move, only when it was due first.
        due=message.due if is_parked(entry) else entry.due,
        # A dead letter does not expire, and would be refused as late.
        expires=None if entry.state is State.DEAD else message.expires,
        ack_timeout=message.ack_timeout,
        max_attempts=max(1, attempts - entry.attempt) if entry.attempt else message.max_attempts,
        correlation_id=message.correlation_id,
        remember=message.remember,
        failure=entry.failure if entry.state is State.DEAD else None,
        past=_past(entry) if entry.state is State.DEAD else None,
    )


def _past(entry: Entry) -> Past:
    return Past(put_at=entry.message.put_at, attempt=entry.attempt, attempts=entry.attempts)


_EXPIRED = Failure(type="Expired", text="nobody took the message before it expired, while Redis was away")


def expired(message: NewMessage) -> NewMessage:
    """As a dead letter, for one whose time was over before it could be moved."""
    return message.replace(due=None, expires=None, failure=_EXPIRED)
