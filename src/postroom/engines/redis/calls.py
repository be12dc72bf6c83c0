"""What goes into the scripts, and what comes out of them, as values of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from postroom.engine import ClaimRequest
from postroom.engines.redis.packing import (
    SUSPECT,
    delivery_of,
    draft,
    failure_parts,
    headers_part,
    message_of,
    past_parts,
    raw_id,
    state_of,
    utf8,
)
from postroom.errors import InvalidInput
from postroom.ids import replay_id
from postroom.limits import MAX_BATCH
from postroom.logs import LogEntry, Stored
from postroom.model import (
    Action,
    BlockedBy,
    Claimed,
    Leased,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Put,
    Receipt,
    Settlement,
    State,
    Verb,
)
from postroom.stats import Backlog

Argument = bytes | str | int

_OUTCOMES = {ord("o"): Outcome.OK, ord("g"): Outcome.GONE, ord("l"): Outcome.LOST}
_BLOCKED = {b"": None} | {blocked.encode(): blocked for blocked in BlockedBy}
_NO_NUMBER = bytes(8)
_NO_TOKEN = bytes(8)
_NO_RECEIPT = b""
#: The length of a packed receipt, and of an id as text.
_RECEIPT, _ID = 24, 32
#: The longest number that every sorted set keeps exactly.
_DIGITS = 16


# --- put ----------------------------------------------------------------------------------------


def put_args(messages: Sequence[NewMessage]) -> list[Argument]:
    args: list[Argument] = [len(messages)]
    extras: list[Argument] = []
    for number, message in enumerate(messages, 1):
        args += draft(message)
        if message.unique_key or message.failure:
            failure = failure_parts(message.failure)[:3] if message.failure else (b"", b"", b"")
            past = past_parts(message.past) if message.past else (b"", b"", b"")
            extras += (number, (message.unique_key or "").encode(), *failure, *past)
    return args + extras


def depth_of(reply: Sequence[int]) -> int | None:
    """What a put says of the depth; -1: nobody wants to know."""
    return reply[1] if reply[1] >= 0 else None


def puts_of(messages: Sequence[NewMessage], answers: list[bytes] | None) -> list[Put]:
    if answers is None:
        return [Put(message.id) for message in messages]
    return [
        Put(answer.hex(), created=False) if answer else Put(message.id)
        for message, answer in zip(messages, answers, strict=True)
    ]


def stored_of(reply: list[bytes] | None) -> list[Stored]:
    """What `stored` says: a key and a value by turns."""
    pairs = zip((reply or [])[::2], (reply or [])[1::2], strict=True)
    return [Stored(key.decode("utf-8", "replace"), value) for key, value in pairs]


def backlog_of(reply: list[Any] | None) -> Backlog:
    """What `backlog` says: a priority and a count by turns, the most urgent first; then what retries."""
    if reply is None:
        return Backlog({}, 0)
    flat, levels_whole, retrying, retrying_whole = reply
    levels = dict(zip(flat[::2], flat[1::2], strict=True))
    return Backlog(levels, retrying, bool(levels_whole), bool(retrying_whole))


# --- receipts -----------------------------------------------------------------------------------


def _receipt(receipt: Receipt) -> bytes:
    """As a script takes it; nothing for one that can belong to no message."""
    try:
        packed = bytes.fromhex(receipt.id + receipt.token)
        if len(packed) == _RECEIPT and len(receipt.id) == _ID:
            return packed
    except (ValueError, TypeError):
        pass
    id = raw_id(receipt.id)
    try:
        token = bytes.fromhex(receipt.token)
    except (ValueError, TypeError):
        token = _NO_TOKEN
    return id + (token if len(token) == len(_NO_TOKEN) else _NO_TOKEN) if id else _NO_RECEIPT


def receipts_arg(receipts: Sequence[Receipt]) -> tuple[bytes, list[bool]]:
    """All receipts in one, and which of them are in it."""
    packed = [_receipt(receipt) for receipt in receipts]
    return b"".join(packed), [bool(receipt) for receipt in packed]


def outcomes_of(letters: bytes, asked: Iterable[bool]) -> list[Outcome]:
    """An outcome for each receipt; those that could not be asked about are gone."""
    found = iter(letters)
    return [_OUTCOMES[next(found)] if was_asked else Outcome.GONE for was_asked in asked]


def settle_args(settlements: Sequence[Settlement]) -> tuple[bytes, bytes, list[bytes], list[bool]]:
    """The settlements, which of them have a failure, the failures, and which settlements are in it."""
    packed, has_failure, failures, asked = [], bytearray(), list[bytes](), []
    for settlement in settlements:
        receipt = _receipt(settlement.receipt)
        asked.append(bool(receipt))
        if not receipt:
            continue
        verb = settlement.verb
        if verb is Verb.ACK or verb is Verb.RELEASE:
            number = settlement.delay.to_bytes(8, "big") if verb is Verb.RELEASE else _NO_NUMBER
            packed.append((b"a" if verb is Verb.ACK else b"l") + receipt + number)
            continue
        packed.append(_ending(settlement, receipt))
        has_failure += b"1" if settlement.failure else b"0"
        if settlement.failure:
            failures += failure_parts(settlement.failure)
    return b"".join(packed), bytes(has_failure), failures, asked


def _ending(settlement: Settlement, receipt: bytes) -> bytes:
    if settlement.verb in (Verb.BURY, Verb.CANCEL):
        return (b"b" if settlement.verb is Verb.BURY else b"c") + receipt + _NO_NUMBER
    if settlement.due is None:
        return b"r" + receipt + settlement.delay.to_bytes(8, "big")
    return b"R" + receipt + settlement.due.to_bytes(8, "big")


# --- claim --------------------------------------------------------------------------------------


def claim_args(request: ClaimRequest | None, token: bytes, waiter: bytes) -> list[Argument]:
    if request is None:
        return ["", "", "", "", "", "", ""]
    start = "" if request.start is None else max(0, min(request.start, MAX_BATCH))
    lease = "" if request.lease is None else request.lease
    return [request.n, start, lease, "1" if request.suspects else "0", request.consumer, token, waiter]


#: What `_history` is of a message that is delivered for the first time.
_FIRST = 0, 1, False


def claimed_of(queue: str, request: ClaimRequest, token: str, reply: list[Any]) -> Claimed:
    """The claim in a reply of `turn`."""
    now, next_wake, blocked, lease, ack_timeout, max_attempts, taken, points = reply[3:11]
    start = len(taken) if request.start is None else request.start
    checkpoints = dict(zip(points[::2], points[1::2], strict=True))
    deliveries = []
    for place, (id, value, record) in enumerate(zip(taken[::3], taken[1::3], taken[2::3], strict=True)):
        message = message_of(queue, id, value)
        attempt, count, suspect = _history(record) if record else _FIRST
        timeout = message.ack_timeout or ack_timeout or None
        started = suspect or place < start
        deliveries.append(
            Leased(
                message=message,
                token=token,
                attempt=attempt,
                deliveries=count,
                max_attempts=message.max_attempts or max_attempts,
                ack_timeout=timeout,
                deadline=_deadline(now, request.lease, lease, timeout if started else None),
                started=started,
                suspect=suspect,
                checkpoint=checkpoints.get(id),
            )
        )
    return Claimed(deliveries, next_wake, _BLOCKED[blocked])


def _history(record: bytes) -> tuple[int, int, bool]:
    """The attempts and deliveries so far, and whether it is a suspect."""
    kept = delivery_of(record)
    return kept.attempt, kept.deliveries, bool(kept.flags & SUSPECT)


def _deadline(now: int, beat: int | None, lease: int, timeout: int | None) -> int:
    """As the script has set it: see Policy.deadline."""
    if beat is None:
        return now + (lease if timeout is None else timeout)
    return now + (beat if timeout is None else min(beat, timeout))


# --- moves --------------------------------------------------------------------------------------


def move_args(moves: Sequence[Move]) -> tuple[list[Argument], list[bool]]:
    """The moves, and which of them are about an id that a message can have."""
    args: list[Argument] = []
    asked = []
    for move in moves:
        id = raw_id(move.id)
        asked.append(bool(id))
        if id:
            args += _move(id, move)
    return args, asked


def _move(id: bytes, move: Move) -> tuple[Argument, ...]:
    again = replay_id(move.id, move.number) if move.action is Action.REPLAY else ""
    number, unit = (move.delay, "s") if move.due is None else (move.due, "i")
    return (
        id, move.action.encode(), number, unit, move.number, bytes.fromhex(again),
        again or utf8(move.replayed_as or "", "replayed_as"), move.content_type or "",
        b"" if move.body is None else b"1" + move.body,
        b"" if move.headers is None else b"1" + headers_part(move.headers),
    )  # fmt: skip


def moved_of(moves: Sequence[Move], asked: Sequence[bool], answers: Sequence[bytes]) -> list[Moved]:
    found = iter(zip(answers[::3], answers[1::3], answers[2::3], strict=True))
    return [
        _moved(move, *next(found)) if was_asked else _moved(move, b"n", b"", b"")
        for move, was_asked in zip(moves, asked, strict=True)
    ]


def _moved(move: Move, did: bytes, letter: bytes, text: bytes) -> Moved:
    state = state_of(letter)
    if did == b"o":
        return Moved(True, state, text.decode() or None)
    if state is None:
        return Moved(False, None, None, "there is no such message")
    return Moved(False, state, None, text.decode() or f"a {state} message cannot do {move.action}")


# --- looking ------------------------------------------------------------------------------------

STATE_LETTERS = {
    State.READY: "r", State.SCHEDULED: "d", State.PROCESSING: "p", State.DEAD: "x", State.DONE: "o",
}  # fmt: skip


def page_cursor(cursor: str | None) -> tuple[str, bytes]:
    """The key and the id behind which a page begins."""
    if cursor is None:
        return "", b""
    key, colon, id = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    if not colon or not _is_number(key):
        raise InvalidInput(f"cursor: {cursor!r:.80} is not one of this engine's")
    return key, raw_id(id)


def stream_cursor(after: str | None) -> str:
    """Where a reader of a log or a topic goes on, as a script takes it."""
    if after is None:
        return "now"
    if after != "" and not (isinstance(after, str) and _is_number(after)):
        raise InvalidInput(f"cursor: {after!r:.80} is not one of this engine's")
    return after


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def log_entry(queue: str, id: bytes, fields: list[bytes]) -> LogEntry:
    _, event, _, at, _, count, _, ids, *rest = fields
    info: dict[str, int | str] = {}
    for name, value in zip(rest[::2], rest[1::2], strict=True):
        text = value.decode()
        info[name[2:].decode()] = int(text) if name[:2] == b"i." else text
    return LogEntry(
        id=entry_number(id), at=int(at), queue=queue, event=event.decode(), count=int(count),
        ids=tuple(ids[start : start + 16].hex() for start in range(0, len(ids), 16)), info=info,
    )  # fmt: skip


def entry_number(id: bytes) -> str:
    """The number of an entry: the first half of its id in the stream."""
    return id.partition(b"-")[0].decode()
