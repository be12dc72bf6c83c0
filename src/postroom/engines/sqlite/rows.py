"""Between rows and values: a message and its state, as a table keeps them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from postroom.engines.steps.slot import Slot
from postroom.limits import JSON
from postroom.model import Attempt, Failure, Message, NewMessage, State
from postroom.policy import Policy

#: The numbers under which states are stored.
STATES = (State.SCHEDULED, State.READY, State.PROCESSING, State.DONE, State.DEAD)
NUMBER = {state: number for number, state in enumerate(STATES)}
#: A body above this many bytes has a row of its own.
SMALL = 1_024

_encode = msgspec.json.Encoder().encode
_headers = msgspec.json.Decoder(dict[str, str]).decode
_attempts = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_failure = msgspec.json.Decoder(Failure).decode
_replays = msgspec.json.Decoder(tuple[str, ...]).decode

Row = tuple[Any, ...]
NO_ID = bytearray()


@lru_cache(maxsize=1_000)
def policy_of(text: str) -> Policy:
    """Kept by its stored text: a store has few policies, and reading one takes longer than a claim."""
    return Policy.from_text(msgspec.json.decode(text))


def json(value: object) -> str | None:
    """As text; NULL for what is empty."""
    return _encode(value).decode() if value else None


def stored_id(id: str) -> bytearray:
    """As ids are stored. A bytearray, because sqlite3 takes 0.5 µs longer to bind bytes, and None as well."""
    return bytearray.fromhex(id)


def wanted_id(id: str) -> bytearray:
    """As it is stored; a text that is no id is that of no message."""
    try:
        stored = stored_id(id)
    except ValueError:
        return NO_ID
    return stored if stored.hex() == id else NO_ID


def is_plain(slot: Slot) -> bool:
    """Whether a new message has nothing that most messages do not have."""
    message = slot.message
    return (
        message.expires is message.ack_timeout is message.max_attempts is message.remember is None
        and message.correlation_id is message.unique_key is None
        and slot.failure is None
        and not message.headers
        and message.content_type == JSON
        and len(message.body) <= SMALL
    )


def is_ordinary(message: NewMessage) -> bool:
    """The same of a message that nobody has kept yet, and that is ready at once."""
    return (
        message.due is message.ttl is message.expires is message.ack_timeout is None
        and message.max_attempts is message.remember is None
        and message.correlation_id is message.unique_key is None
        and message.failure is None
        and not (message.delay or message.headers)
        and message.content_type == JSON
        and len(message.body) <= SMALL
    )


def plain_row(queue: int, era: int, slot: Slot) -> Row:
    """What the statement `add_plain` takes for each message."""
    message = slot.message
    return (
        queue, bytearray.fromhex(message.id), NUMBER[slot.state], era, message.priority, slot.order, slot.due,
        message.put_at, message.due, message.kind, bytearray(message.body),
    )  # fmt: skip


def new_row(queue: int, era: int, slot: Slot) -> Row:
    """What the statement `add` takes: a new message, without what only a delivery brings."""
    message, failure = slot.message, slot.failure
    return (
        queue, stored_id(message.id), NUMBER[slot.state], era, message.priority, slot.order, slot.due,
        message.expires, slot.ended_at or None, message.put_at, message.due, message.ack_timeout,
        message.max_attempts, message.remember, message.kind,
        None if message.content_type == JSON else message.content_type, json(message.headers),
        message.correlation_id, message.unique_key, failure.fingerprint if failure else None, json(failure),
        message.body if len(message.body) <= SMALL else None,
    )  # fmt: skip


def attempts_row(queue: int, slot: Slot) -> Row:
    """What the statement `add_attempts` takes."""
    return slot.attempt, json(slot.attempts), queue, stored_id(slot.message.id)


def laid_row(era: int, slot: Slot) -> Row:
    """What the statement `lay` takes: everything that may have changed about a message."""
    failure = slot.failure
    return (
        NUMBER[slot.state], era, slot.suspect, slot.order, slot.due, slot.deadline, slot.token, slot.attempt,
        slot.deliveries, slot.ran_out, slot.strays, slot.consumer, slot.lease, slot.claimed_at,
        slot.started_at, slot.ack_deadline, slot.ended_at or None, slot.kept_until or None,
        failure.fingerprint if failure else None, slot.checkpoint, json(slot.attempts), json(failure),
        slot.extended or None, slot.key,
    )  # fmt: skip


def updated_row(slot: Slot) -> Row:
    """What the statement `update` takes: what changes about a message that stays in its state."""
    return (
        slot.deadline, slot.started_at, slot.ack_deadline, slot.checkpoint, json(slot.replayed_as),
        slot.extended or None, slot.key,
    )  # fmt: skip


def leased_row(slot: Slot) -> Row:
    """What the statement `lease` takes before the keys; the deliveries it counts by itself."""
    return (
        slot.token, slot.consumer, slot.lease, slot.claimed_at, slot.started_at, slot.ack_deadline,
        slot.deadline,
    )  # fmt: skip


def slot_of(queue: str, row: Row) -> Slot:
    """The message of a row of the fragment `slot`; a large body is not in it."""
    (
        key, id, state, suspect, priority, order, due, expires, deadline, token, attempt, deliveries, ran_out,
        strays, consumer, lease, claimed_at, started_at, ack_deadline, ended_at, kept_until, put_at,
        first_due, ack_timeout, max_attempts, remember, kind, content_type, headers, correlation_id,
        unique_key, checkpoint, attempts, failure, replayed_as, extended, body,
    ) = row  # fmt: skip
    message = Message(
        id=id.hex(), queue=queue, body=body or b"", put_at=put_at, due=first_due, kind=kind,
        content_type=content_type or JSON, headers=_headers(headers) if headers else {}, priority=priority,
        expires=expires, ack_timeout=ack_timeout, max_attempts=max_attempts, correlation_id=correlation_id,
        unique_key=unique_key, remember=remember,
    )  # fmt: skip
    return Slot(
        message, STATES[state], due, order, attempt, deliveries, ran_out, strays, bool(suspect), token,
        consumer or "", claimed_at or 0, lease, started_at, ack_deadline, deadline, extended or 0,
        ended_at or 0, kept_until or 0, checkpoint, _attempts(attempts) if attempts else (),
        _failure(failure) if failure else None, _replays(replayed_as) if replayed_as else (), key,
    )  # fmt: skip
