"""`postroom event`: what happens in the queues, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli import output
from postroom.cli.options import Url

if TYPE_CHECKING:
    from postroom.logs import LogEntry
    from postroom.room import Room

app: typer.Typer = typer.Typer(no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="event", help="Follow what happens.")


@app.command()
def tail(
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", metavar="NAME", help="Only these; else all.")
    ] = None,
    url: Url = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Begin with the oldest that is kept.")] = False,
    span: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="End after so long.")] = None,
) -> None:
    """Follow the lifecycle: retries, reclaims, dead letters, expiry, and what operators do.

    Puts, claims and acks are counted (postroom top) and not told one by one. Ctrl-C ends.

    \b
    Examples:
      postroom event tail
      postroom event tail --queue payouts --json | jq 'select(.event == "move_to_dlq")'
      postroom event tail --all --for 1s       what is kept, and the end
    """
    from postroom.cli.store import opened
    from postroom.duration import milliseconds

    timeout = None if span is None else milliseconds(span, "for") / 1_000
    with opened(url) as room:
        _say_who_is_missing(queue or [], room)
        lifecycle = room.lifecycle(queue or None, cursors={} if all else None)
        try:
            for entry in lifecycle.follow(timeout):
                print(_json(entry) if json else _line(entry), flush=True)  # a pipe is read meanwhile
        except KeyboardInterrupt:
            pass


def _say_who_is_missing(names: list[str], room: Room) -> None:
    """A queue may come later, so it is followed; but more often it is a slip."""
    there = {info.name for info in room.engine.queues(names)} if names else set[str]()
    for name in names:
        if name not in there:
            output.say(f"there is no queue {name!r} yet")


def _line(entry: LogEntry) -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(entry.at / 1_000, UTC).strftime("%H:%M:%S.%f")[:-3]
    info = " ".join(f"{name}={value}" for name, value in entry.info.items())
    ids = " ".join(entry.ids[:3]) + (" …" if len(entry.ids) > 3 else "")
    return f"{at}  {entry.queue}  {entry.event}  {entry.count}  {info}  {ids}".rstrip()


def _json(entry: LogEntry) -> str:
    import msgspec

    return msgspec.json.encode(entry).decode()
