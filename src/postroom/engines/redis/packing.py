"""Between values and the bytes that Redis keeps: messages, deliveries, failures. See lua/message.lua.

A plain message has 13 bytes in front of its body; whatever is at its default is not stored.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

from postroom.errors import InvalidInput
from postroom.limits import JSON
from postroom.model import Attempt, Entry, Failure, Message, NewMessage, Past, State
from postroom.policy import Policy

_HAS_DUE, _HAS_EXPIRES, _HAS_ACK, _HAS_MAX, _HAS_REMEMBER, _HAS_NAMES, _HAS_TEXTS, _HAS_KEY = (
    1, 2, 4, 8, 16, 32, 64, 128,
)  # fmt: skip
_NUMBERED = (_HAS_DUE, _HAS_EXPIRES, _HAS_ACK, _HAS_MAX, _HAS_REMEMBER)
_HAS_NUMBERS = sum(_NUMBERED)
_DELAY, _DUE, _TTL, _EXPIRES = 1, 2, 4, 8
STARTED, SUSPECT = 2, 16
#: Above the flags of a delivery: how often it was given more time.
_EXTENDED = 256

#: The form in which everything about a queue is stored: older releases leave a newer one alone.
FORMAT = 1

_FIXED = struct.Struct(">BBBHQ")
_NUMBER = struct.Struct(">Q")
_TEXTS = struct.Struct(">BIB")
_RECORD = struct.Struct(">8sHQQQQQQHIHIH")

_encode = msgspec.msgpack.Encoder().encode
_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
_failure = msgspec.msgpack.Decoder(tuple[str, str, str, str]).decode
_replays = msgspec.msgpack.Decoder(tuple[str, ...]).decode

_NO_ID = b""


def raw_id(id: str) -> bytes:
    """As it is stored; a text that is no id is that of no message."""
    try:
        raw = bytes.fromhex(id)
        return raw if len(raw) == 16 and len(id) == 32 else _NO_ID
    except (ValueError, TypeError):
        return _NO_ID


# --- messages -----------------------------------------------------------------------------------

_PLAIN = [bytes((0, priority, 0)) for priority in range(256)]
_UNSET = (None,) * 6
_UNNUMBERED = (None,) * 3


def is_plain(message: NewMessage) -> bool:
    """Whether it is due now and has nothing but a priority and a body."""
    return (
        not (message.delay or message.kind or message.correlation_id or message.headers or message.unique_key)
        and message.content_type == JSON
        and (message.due, message.ttl, message.expires, message.ack_timeout, message.max_attempts,
             message.remember) == _UNSET
    )  # fmt: skip


def draft(message: NewMessage) -> tuple[bytes, bytes, bytes]:
    """A new message for the script `put`: its id, what its head will say, and what comes behind that.

    The third byte of the head says how it is due and expires: 0 for now, and never.
    """
    id = bytes.fromhex(message.id)
    if is_plain(message):
        return id, _PLAIN[message.priority], message.body
    how, times = _times(message)
    flags, numbers = _numbers(message)
    names, texts = _names(message), _texts(message)
    flags |= (_HAS_NAMES if names else 0) | (_HAS_TEXTS if texts else 0)
    flags |= _HAS_KEY if message.unique_key else 0
    return id, bytes((flags, message.priority, how)) + times + numbers + names, texts + message.body


def _times(message: NewMessage) -> tuple[int, bytes]:
    """When it is due and when it expires, as spans or instants: the script knows the time."""
    how, times = 0, b""
    if message.due is not None:
        how, times = _DUE, _NUMBER.pack(message.due)
    elif message.delay:
        how, times = _DELAY, _NUMBER.pack(message.delay)
    if message.ttl is not None:
        return how | _TTL, times + _NUMBER.pack(message.ttl)
    if message.expires is not None:
        return how | _EXPIRES, times + _NUMBER.pack(message.expires)
    return how, times


def _numbers(message: NewMessage) -> tuple[int, bytes]:
    if (message.ack_timeout, message.max_attempts, message.remember) == _UNNUMBERED:
        return 0, b""
    flags, numbers = 0, b""
    for flag, number in (
        (_HAS_ACK, message.ack_timeout),
        (_HAS_MAX, message.max_attempts),
        (_HAS_REMEMBER, message.remember),
    ):
        if number is not None:
            flags, numbers = flags | flag, numbers + _NUMBER.pack(number)
    return flags, numbers


def _names(message: NewMessage) -> bytes:
    kind, task = message.kind.encode(), (message.correlation_id or "").encode()
    return b"%c%b%c%b" % (len(kind), kind, len(task), task) if kind or task else b""


def _texts(message: NewMessage) -> bytes:
    type_ = b"" if message.content_type == JSON else message.content_type.encode()
    headers = headers_part(message.headers)
    key = (message.unique_key or "").encode()
    if not (type_ or headers or key):
        return b""
    return _TEXTS.pack(len(type_), len(headers), len(key)) + type_ + headers + key


def headers_part(headers: dict[str, str]) -> bytes:
    return _encode(headers) if headers else b""


def message_of(queue: str, id: bytes, value: bytes) -> Message:
    """The message that these bytes keep."""
    _, flags, priority, size, put_at = _FIXED.unpack_from(value)
    if not flags:
        return Message(
            id=id.hex(), queue=queue, body=value[size:], put_at=put_at, due=put_at, priority=priority
        )
    at = _FIXED.size
    due = expires = ack_timeout = max_attempts = remember = None
    if flags & _HAS_NUMBERS:
        (due, expires, ack_timeout, max_attempts, remember), at = _read_numbers(value, flags, at)
    kind, task = _read_names(value, at) if flags & _HAS_NAMES else ("", "")
    type_, headers, key, at = _read_texts(value, size) if flags & _HAS_TEXTS else (JSON, {}, None, size)
    return Message(
        id=id.hex(), queue=queue, body=value[at:], put_at=put_at, due=put_at if due is None else due,
        kind=kind, content_type=type_, headers=headers, priority=priority, expires=expires,
        ack_timeout=ack_timeout, max_attempts=max_attempts, correlation_id=task or None, unique_key=key,
        remember=remember,
    )  # fmt: skip


def _read_numbers(value: bytes, flags: int, at: int) -> tuple[list[int | None], int]:
    numbers: list[int | None] = []
    for flag in _NUMBERED:
        if flags & flag:
            numbers.append(_NUMBER.unpack_from(value, at)[0])
            at += _NUMBER.size
        else:
            numbers.append(None)
    return numbers, at


def _read_names(value: bytes, at: int) -> tuple[str, str]:
    end = at + 1 + value[at]
    return value[at + 1 : end].decode(), value[end + 1 : end + 1 + value[end]].decode()


def _read_texts(value: bytes, at: int) -> tuple[str, dict[str, str], str | None, int]:
    type_size, headers_size, key_size = _TEXTS.unpack_from(value, at)
    at += _TEXTS.size
    headers_at, key_at = at + type_size, at + type_size + headers_size
    end = key_at + key_size
    return (
        value[at:headers_at].decode() or JSON,
        _headers(value[headers_at:key_at]) if headers_size else {},
        value[key_at:end].decode() or None,
        end,
    )


# --- deliveries ---------------------------------------------------------------------------------


class Delivery(NamedTuple):
    """Where a message stands, as far as that is kept beside it."""

    token: bytes
    flags: int
    claimed_at: int
    started_at: int
    ack_deadline: int
    lease: int
    order: int
    due: int
    attempt: int
    deliveries: int
    ran_out: int
    strays: int
    consumer: str
    group: str


def delivery_of(record: bytes) -> Delivery:
    fixed = _RECORD.unpack_from(record)
    end = _RECORD.size + fixed[-1]
    consumer, group = record[_RECORD.size : end], record[end + 1 : end + 1 + record[end]]
    return Delivery._make((*fixed[:-1], consumer.decode(), group.decode()))


_STATES = {
    b"r": State.READY, b"s": State.READY, b"d": State.SCHEDULED, b"p": State.PROCESSING, b"x": State.DEAD,
    b"o": State.DONE, b"": None,
}  # fmt: skip
#: How many values `show` says of a message.
SHOWN = 9


def state_of(letter: bytes) -> State | None:
    return _STATES[letter]


def entries_of(queue: str, shown: list[Any]) -> list[Entry]:
    return [_entry_of(queue, shown[at : at + SHOWN]) for at in range(0, len(shown), SHOWN)]


def _entry_of(queue: str, shown: list[Any]) -> Entry:
    """What the script `show` says of one message."""
    id, place, score, value, record, attempts, checkpoint, failure, replays = shown
    message, state, number = message_of(queue, id, value), _STATES[place], int(score)
    assert state is not None
    fields: dict[str, Any] = {"due": message.due}
    if record:
        kept = delivery_of(record)
        fields = {
            "due": kept.due, "attempt": kept.attempt, "deliveries": kept.deliveries, "ran_out": kept.ran_out,
            "strays": kept.strays, "consumer": kept.consumer, "checkpoint": checkpoint,
            "attempts": attempts_of(attempts), "replayed_as": _replays(replays) if replays else (),
            "started_at": kept.started_at if kept.flags & STARTED else None,
            "extended": kept.flags // _EXTENDED,
            "order": kept.order if state is State.PROCESSING else None,
            "failure": failure_of(failure, kept.group, number) if state is State.DEAD else None,
        }  # fmt: skip
    if state is State.SCHEDULED:
        fields["due"] = number >> 8
    elif state is State.READY:
        fields["order"] = number
    elif state is State.PROCESSING:
        fields |= {"deadline": number, "token": kept.token.hex()}
    return Entry(message=message, state=state, **fields)


class _Tried(msgspec.Struct, array_like=True):
    """An attempt as it is kept; one by an older release ends before what it did not know."""

    consumer: str
    started_at: int
    ended_at: int
    error: str
    extended: int = 0


_attempts = msgspec.msgpack.Decoder(list[_Tried]).decode


def attempts_of(kept: bytes) -> tuple[Attempt, ...]:
    return tuple(Attempt(**msgspec.structs.asdict(each)) for each in _attempts(kept)) if kept else ()


def past_parts(past: Past) -> tuple[int, int, bytes]:
    """A past for a script: when it was put, how many attempts there were, and the last of them."""
    attempts = [_Tried(**msgspec.structs.asdict(each)) for each in past.attempts]
    return past.put_at, past.attempt, _encode(attempts) if attempts else b""


# --- failures, policies -------------------------------------------------------------------------


def failure_parts(failure: Failure) -> tuple[bytes, bytes, bytes, bytes]:
    """A failure for a script: the note to keep, its signature, its own group if it has one, its summary."""
    note = _encode((failure.type, failure.text, failure.traceback, failure.signature))
    return note, failure.signature.encode(), failure.fingerprint.encode(), failure.summary[:500].encode()


def failure_of(note: bytes, group: str, failed_at: int) -> Failure:
    type_, text, traceback, signature = _failure(note)
    return Failure(
        type=type_,
        text=text,
        traceback=traceback,
        signature=signature,
        fingerprint=group,
        failed_at=failed_at,
    )


def policy_parts(policy: Policy) -> tuple[bytes, bytes]:
    """A policy as it is stored: its text, and the numbers that scripts need."""
    return msgspec.json.encode(policy.to_text()), _encode(_policy_numbers(policy))


def _policy_numbers(policy: Policy) -> dict[str, int]:
    rate = policy.rate
    numbers: dict[str, int | None] = {
        "format": FORMAT,
        "lease": policy.lease,
        "ack_timeout": policy.ack_timeout,
        "max_attempts": policy.max_attempts,
        "level": policy.order(254, 0),
        "aging": policy.aging,
        "capacity": policy.capacity,
        "warn_depth": policy.warn_depth,
        "rate_count": rate.count if rate else None,
        "rate_per": rate.per if rate else None,
        "rate_full": rate.full if rate else None,
        "max_in_flight": policy.max_in_flight,
        "drops_expired": True if policy.on_expire == "drop" else None,
        "dead_retention": policy.dead_retention,
        "dead_limit": policy.dead_limit,
        "dedupe_window": policy.dedupe_window,
        "keep_done": policy.keep_done,
        "suspect_after": policy.suspect_after,
    }
    return {name: number for name, number in numbers.items() if number is not None}


#: Policies by their stored text: a store has few of them, and reading one takes longer than a claim.
_policies: dict[bytes, Policy] = {}
_MOST_POLICIES = 1_000


def policy_of(text: bytes) -> Policy:
    if text not in _policies:
        if len(_policies) >= _MOST_POLICIES:
            _policies.clear()
        _policies[text] = Policy.from_text(msgspec.json.decode(text))
    return _policies[text]


def utf8(text: str, what: str) -> bytes:
    """Text as bytes; what is no text or has no bytes is refused."""
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise InvalidInput(f"{what}: {text!r:.80} is not text that can be stored") from None
