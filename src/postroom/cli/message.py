"""`postroom message`: one message at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.cli import output
from postroom.cli.options import Id, Json, Queue, Url, Within
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.limits import JSON, MAX_BATCH

if TYPE_CHECKING:
    from postroom.model import Entry, Put
    from postroom.queue import Queue as RoomQueue
    from postroom.room import Room

app: typer.Typer = typer.Typer(no_args_is_help=True)

Body = Annotated[
    str | None, typer.Argument(metavar="[BODY]", help="JSON; without it, or as -, read from stdin.")
]
Lines = Annotated[bool, typer.Option("--lines", help="Stdin holds one JSON body a line: a message each.")]
Text = Annotated[bool, typer.Option("--text", help="The body is text as it is, not JSON.")]
Kind = Annotated[str, typer.Option("--kind", metavar="NAME", help="The task's or event's name.")]
OfKind = Annotated[str, typer.Argument(metavar="KIND", help="A part of it; capitals do not matter.")]
InState = Annotated[
    str | None,
    typer.Option(
        "--state", "-s", metavar="STATE", help="ready, scheduled, processing, dead or done; else all."
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-l", min=1, max=1_000, metavar="N", help="So many, or a few more.")
]
Priority = Annotated[str, typer.Option("--priority", metavar="LABEL|0-255", help="Higher is more urgent.")]
Delay = Annotated[str | None, typer.Option("--delay", metavar="SPAN", help="Not before so long: 30s, 2h.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="MOMENT", help="Not before then: 2026-01-02T03:04:05Z.")
]
Expires = Annotated[str | None, typer.Option("--expires", metavar="SPAN", help="Worthless after so long.")]
Header = Annotated[list[str] | None, typer.Option("--header", metavar="NAME=TEXT", help="May be repeated.")]
Correlation = Annotated[
    str | None, typer.Option("--correlation-id", metavar="TEXT", help="What it belongs to.")
]
Unique = Annotated[
    str | None, typer.Option("--unique-key", metavar="TEXT", help="Only one such message at a time.")
]
RateKey = Annotated[
    str | None, typer.Option("--rate-key", metavar="TEXT", help="Who puts: counted by the queue's put_rate.")
]
OwnId = Annotated[str | None, typer.Option("--id", metavar="ID", help="The same id is the same message.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for others to read.")]
Processing = Annotated[
    bool, typer.Option("--processing", help="Also if somebody works on it: they are told that it is gone.")
]
By = Annotated[
    str | None, typer.Option("--by", metavar="SPAN", help="So long from now; else its ack_timeout.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="message", help="Put a message; look at one; cancel, release, move it in time.")


@app.command()
def put(
    queue: Queue,
    body: Body = None,
    lines: Lines = False,
    text: Text = False,
    kind: Kind = "",
    priority: Priority = "normal",
    delay: Delay = None,
    at: At = None,
    expires: Expires = None,
    header: Header = None,
    correlation_id: Correlation = None,
    unique_key: Unique = None,
    rate_key: RateKey = None,
    id: OwnId = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Put a message, or one for each line of stdin, and print the id it has.

    \b
    Examples:
      postroom message put emails '{"to": "ada@example.org"}' --priority high
      postroom message put reports '{"month": 5}' --kind monthly --delay 2h
      postroom message put emails --lines < bodies.jsonl
      echo hello | postroom message put notes --text
    """
    from postroom.cli.times import read_moment

    options: dict[str, Any] = {
        "kind": kind, "priority": int(priority) if priority.isdecimal() else priority, "delay": delay,
        "at": read_moment(at, "at"), "expires": expires, "headers": _headers(header or []),
        "correlation_id": correlation_id, "unique_key": unique_key, "rate_key": rate_key, "id": id,
        "content_type": "text/plain" if text else JSON,
    }  # fmt: skip
    _put(queue, _bodies(body, lines=lines, text=text), url, json=json, many=lines, **options)


@app.command()
def show(id: Id, queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Show a message, where it stands, its body and what happened to it.

    \b
    Examples:
      postroom message show 0198c0de00000000aaaaaaaaaaaaaaaa
      postroom message show 0198… --queue emails --json | jq .failure.traceback
    """
    from postroom.cli.entry import document, rows
    from postroom.cli.store import opened

    with opened(url) as room:
        entry = find(room, id, queue)
    if json:
        output.as_json(document(entry))
    else:
        output.table(("", "value"), rows(entry))


@app.command("find")
def find_command(
    kind: OfKind,
    queue: Within = None,
    state: InState = None,
    limit: Limit = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """Find messages by a part of their kind, the name of a task, in every queue and state.

    They are looked at one by one: up to 100,000, or for 5 s. If that was not all, it says so.

    \b
    Examples:
      postroom message find send_welcome
      postroom message find shop. --queue payouts --state dead --json | jq -r '.messages[].id'
    """
    from postroom.cli.progress import patience
    from postroom.cli.store import opened
    from postroom.queue import state_of
    from postroom.search import STATES, of_kind

    states = STATES if state is None else (state_of(state),)
    with opened(url) as room, patience("searching"):
        names = None if queue is None else [room.queue(queue).info().name]
        found = room.search(of_kind(kind), names, states=states, limit=limit)
    told = [_match(entry) for entry in found.entries]
    if json:
        output.as_json({"messages": told, "scanned": found.scanned, "complete": found.complete})
        return
    columns = ("id", "queue", "kind", "state", "put_at")
    output.table(columns, [[each[column] for column in columns] for each in told])
    if not found.complete:
        output.say(
            f"looked at {found.scanned:,} messages, and there are more: narrow it by --queue or --state"
        )


def _match(entry: Entry) -> dict[str, str]:
    from postroom.cli.times import moment

    message = entry.message
    said = {"id": message.id, "queue": message.queue, "kind": message.kind, "state": str(entry.state)}
    return said | {"put_at": moment(message.put_at) or ""}


@app.command()
def stored(id: Id, queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Show what the store itself keeps of a message, and in which key, table or field. Nothing is hidden.

    \b
    Examples:
      postroom message stored 0198c0de00000000aaaaaaaaaaaaaaaa
    """
    from postroom.cli.store import opened

    with opened(url) as room:
        entry = find(room, id, queue)
        kept = room.engine.stored(entry.message.queue, id)
    told = [(each.place, _shown(each.value)) for each in kept]
    if json:
        output.as_json(dict(told))
    else:
        output.table(("place", "value"), told)


def _shown(value: str | float | bytes) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


@app.command()
def cancel(
    id: Id, processing: Processing = False, queue: Within = None, url: Url = None, json: Json = False
) -> None:
    """Take a message out that waits, ready or scheduled; with --processing, also one that is worked on.

    Work that has begun is not interrupted: its consumer is told at the end that the message is gone.

    \b
    Examples:
      postroom message cancel 0198c0de00000000aaaaaaaaaaaaaaaa
      postroom message cancel 0198c0de00000000aaaaaaaaaaaaaaaa --processing
    """
    _operate("cancelled", id, queue, url, json, lambda where: where.cancel(id, processing=processing))


@app.command()
def release(id: Id, queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Take a message from whoever works on it, and put it back to its place. Does not count.

    Its consumer is told that the lease is lost; work that has begun is not undone.

    \b
    Examples:
      postroom message release 0198c0de00000000aaaaaaaaaaaaaaaa
    """
    _operate("released", id, queue, url, json, lambda where: where.release(id))


@app.command()
def bury(id: Id, reason: Reason = "", queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Take a message from whoever works on it and give it up: it becomes a dead letter.

    Its consumer is told that the lease is lost; work that has begun is not undone.

    \b
    Examples:
      postroom message bury 0198c0de00000000aaaaaaaaaaaaaaaa --reason "it never ends"
    """
    _operate("buried", id, queue, url, json, lambda where: where.bury(id, reason))


@app.command()
def extend(id: Id, by: By = None, queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Give whoever works on a message more time.

    \b
    Examples:
      postroom message extend 0198c0de00000000aaaaaaaaaaaaaaaa --by 10m
    """
    _operate("extended", id, queue, url, json, lambda where: where.extend(id, by))


@app.command("run-now")
def run_now(id: Id, queue: Within = None, url: Url = None, json: Json = False) -> None:
    """Make a scheduled message ready, a retry that waits too.

    \b
    Examples:
      postroom message run-now 0198c0de00000000aaaaaaaaaaaaaaaa
    """
    _operate("ready", id, queue, url, json, lambda where: where.run_now(id))


@app.command()
def reschedule(
    id: Id, delay: Delay = None, at: At = None, queue: Within = None, url: Url = None, json: Json = False
) -> None:
    """Give a waiting message another time.

    \b
    Examples:
      postroom message reschedule 0198c0de00000000aaaaaaaaaaaaaaaa --delay 2h
      postroom message reschedule 0198… --at 2026-01-02T03:04:05Z
    """
    from postroom.cli.times import read_moment

    when = read_moment(at, "at")
    _operate("rescheduled", id, queue, url, json, lambda where: where.reschedule(id, delay=delay, at=when))


# ---- Finding one ----------------------------------------------------------------------------------


def find(room: Room, id: str, queue: str | None) -> Entry:
    """The one message of this id. Raises NotFound, and Conflict when several queues have one."""
    from postroom.cli.progress import counted
    from postroom.limits import check_id
    from postroom.search import locate

    check_id(id)
    names = [queue] if queue else [info.name for info in room.queues()]
    found = list(locate(room.engine, id, counted(names, "queues")))
    if not found:
        raise NotFound(f"there is no message {id} in {repr(queue) if queue else 'any queue'}")
    if len(found) > 1:
        queues = ", ".join(entry.message.queue for entry in found)
        raise Conflict(f"there is a message {id} in {queues}: name one of them with --queue")
    return found[0]


def _operate(
    done: str, id: str, queue: str | None, url: str | None, json: bool, do: Callable[[RoomQueue], None]
) -> None:
    from postroom.cli.store import opened

    with opened(url) as room:
        where = room.queue(find(room, id, queue).message.queue)
        do(where)
    if json:
        output.as_json({"id": id, "queue": where.name, "done": done})
    else:
        print(f"{id} of {where.name} is {done}")


# ---- Putting --------------------------------------------------------------------------------------


def _put(
    queue: str, bodies: Iterator[bytes], url: str | None, *, json: bool, many: bool, **options: Any
) -> None:
    from postroom.cli.progress import counted
    from postroom.cli.store import opened
    from postroom.errors import PartialPut

    with opened(url) as room:
        target = room.queue(queue)
        if not many:
            _print_puts([target.put(next(bodies), **options)], json)
            return
        if options.pop("id"):
            raise InvalidInput("id: it names one message, and --lines puts many")
        bodies = counted(bodies, "messages")
        while call := list(islice(bodies, MAX_BATCH)):
            try:
                _print_puts(target.put_many(call, **options), json)
            except PartialPut as error:
                _print_puts(error.accepted, json)
                raise


def _print_puts(puts: Iterable[Put], json: bool) -> None:
    """An id a line; as JSON an object a line, so that a program can follow as it goes."""
    for made in puts:
        print(dumps({"id": made.id, "created": made.created}) if json else made.id)


def _bodies(body: str | None, *, lines: bool, text: bool) -> Iterator[bytes]:
    """What is to be put, as it is stored."""
    if lines and (text or body is not None):
        raise InvalidInput("--lines reads JSON from stdin: it takes neither a body nor --text")
    number = 0
    try:
        for number, one in enumerate(_given(body, lines), start=1):
            data = one.encode()
            yield data if text else _json(data, f"line {number}" if lines else "body")
    except UnicodeError as error:  # while it was read or written again, as the locale will have it
        where = f"line {number + isinstance(error, UnicodeDecodeError)}" if lines else "body"
        raise InvalidInput(f"{where}: it is not UTF-8 text") from None


def _given(body: str | None, lines: bool) -> Iterable[str]:
    if body is not None and body != "-":
        return [body]
    return (line for line in sys.stdin if line.strip()) if lines else [sys.stdin.read()]


def _json(text: bytes, where: str) -> bytes:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        quoted = "'\"hello\"'"
        raise InvalidInput(f"{where}: it is not JSON ({error}); text is {quoted}, or --text") from None
    return text.strip()


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [header.partition("=") for header in given]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise InvalidInput(f"header: {wrong[0]!r} is not NAME=TEXT")
    return {name: text for name, _, text in pairs}
