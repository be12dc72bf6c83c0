"""Dead letters as lines of JSON: to keep, to send to somebody, to bring into another store.

A line has everything that `DeadLetter.as_dict` says, for people, and under "message" and "failure" what
it takes to make the letter again. Its id stays, so that a file that is read twice makes no second letter.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from postroom.deadletters.bulk import Batch
from postroom.deadletters.letter import DeadLetter
from postroom.draft import calls
from postroom.errors import InvalidInput
from postroom.model import Accepted, Attempt, Failure, NewMessage, Past

_FORMAT = 1
#: Lines that are put together.
_PUT = 500


class _Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What makes the message again; a body that is no text is base64."""

    body: str
    base64: bool = False
    kind: str = ""
    content_type: str
    headers: dict[str, str] = {}
    priority: int = 5
    ack_timeout: int | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    unique_key: str | None = None
    remember: int | None = None


class _Line(msgspec.Struct, kw_only=True):
    """What of a line is read back; all else is for people."""

    postroom: int
    id: str
    queue: str
    message: _Message
    failure: Failure
    put_at: int | None = None
    #: How many there were; `attempts` are the last of them.
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()


_decode = msgspec.json.Decoder(_Line).decode


class Imported(NamedTuple):
    """How many lines were read, how many letters they made; the others were there already."""

    read: int
    created: int


def line_of(letter: DeadLetter) -> bytes:
    """One line, without its end."""
    message = letter.entry.message
    text, coded = _body(message.body)
    kept = {
        name: getattr(message, name) for name in _Message.__struct_fields__ if name not in ("body", "base64")
    }
    again = _Message(body=text, base64=coded, **kept)
    line: dict[str, Any] = {
        "postroom": _FORMAT,
        **letter.as_dict(),
        "attempt": letter.entry.attempt,
        "message": again,
        "failure": letter.failure,
    }
    return msgspec.json.encode(line)


def _body(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True


def lines_of(batch: Batch) -> bytes:
    """A line for each letter."""
    return b"".join(line_of(letter) + b"\n" for letter in batch.letters)


def export(
    batches: Iterable[Batch],
    write: Callable[[bytes], object],
    on_progress: Callable[[int], object] | None = None,
) -> int:
    """Write a line for each letter, page by page; how many."""
    count = 0
    for batch in batches:
        write(lines_of(batch))
        count += len(batch.letters)
        if on_progress:
            on_progress(count)
    return count


def bring_in(
    lines: Iterable[bytes],
    put: Callable[[str, list[NewMessage]], Accepted],
    to: str | None,
    on_progress: Callable[[int], object] | None = None,
    first: int = 1,
) -> Imported:
    """Make dead letters of these lines, a few hundred at a time; each call is kept or refused as a whole."""
    read = created = 0
    for queue, letters in _portions(lines, to, first):
        for call in calls(letters):
            created += sum(each.created for each in put(queue, call).puts)
        read += len(letters)
        if on_progress:
            on_progress(read)
    return Imported(read, created)


def _portions(lines: Iterable[bytes], to: str | None, first: int) -> Iterator[tuple[str, list[NewMessage]]]:
    """Letters in the order of their lines, those of one queue together."""
    queue, letters = "", list[NewMessage]()
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        name, letter = _read(line, number)
        name = to or name
        if letters and (name != queue or len(letters) == _PUT):
            yield queue, letters
            letters = []
        queue = name
        letters.append(letter)
    if letters:
        yield queue, letters


def _read(line: bytes, number: int) -> tuple[str, NewMessage]:
    try:
        kept = _decode(line)
        if kept.postroom > _FORMAT:
            raise ValueError("it was written by a newer release")
        fields = msgspec.structs.asdict(kept.message)
        coded, body = fields.pop("base64"), fields.pop("body")
        data = base64.b64decode(body, validate=True) if coded else body.encode()
        return kept.queue, NewMessage(id=kept.id, body=data, failure=kept.failure, past=_past(kept), **fields)
    except ValueError as error:  # also what msgspec and NewMessage say
        raise InvalidInput(f"line {number}: this is no dead letter ({error})") from error


def _past(line: _Line) -> Past | None:
    """What became of it where it was exported; older files tell less."""
    if line.put_at is None:
        return None
    return Past(put_at=line.put_at, attempt=max(line.attempt, len(line.attempts)), attempts=line.attempts)
