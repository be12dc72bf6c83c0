"""`postroom event`: what happens in the queues, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli import output
from postroom.cli.options import Url

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.logs import LogEntry, TopicEntry
    from postroom.room import Room

app: typer.Typer = typer.Typer(no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="event", help="Follow what happens.")


@app.command()
def tail(
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", metavar="NAME", help="Only these; else all.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic instead, such as breaker.")
    ] = None,
    url: Url = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Begin with the oldest that is kept.")] = False,
    span: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="End after so long.")] = None,
) -> None:
    """Follow the lifecycle: retries, reclaims, dead letters, expiry, and what operators do to queues.

    Puts, claims and acks are counted (postroom top) and not told one by one. Changes of breakers are a
    topic. Ctrl-C ends.

    \b
    Examples:
      postroom event tail
      postroom event tail --queue payouts --json | jq 'select(.event == "move_to_dlq")'
      postroom event tail --all --for 1s       what is kept, and the end
      postroom event tail --topic breaker      which breakers open and close
    """
    from postroom.cli.store import opened
    from postroom.duration import milliseconds
    from postroom.errors import InvalidInput
    from postroom.history import follow_topic

    if queue and topic:
        raise InvalidInput("a topic has no queues: give --queue or --topic")
    timeout = None if span is None else milliseconds(span, "for") / 1_000
    with opened(url) as room:
        try:
            if topic:
                told = map(
                    _of_topic(topic, json), follow_topic(room.engine, topic, "" if all else None, timeout)
                )
            else:
                _say_who_is_missing(queue or [], room)
                lifecycle = room.lifecycle(queue or None, cursors={} if all else None)
                told = map(_json if json else _line, lifecycle.follow(timeout))
            for line in told:
                print(line, flush=True)  # a pipe is read meanwhile
        except KeyboardInterrupt:
            pass


def _say_who_is_missing(names: list[str], room: Room) -> None:
    """A queue may come later, so it is followed; but more often it is a slip."""
    there = {info.name for info in room.engine.queues(names)} if names else set[str]()
    for name in names:
        if name not in there:
            output.say(f"there is no queue {name!r} yet")


def _line(entry: LogEntry) -> str:
    info = " ".join(f"{name}={value}" for name, value in entry.info.items())
    ids = " ".join(entry.ids[:3]) + (" …" if len(entry.ids) > 3 else "")
    return f"{_clock(entry.at)}  {entry.queue}  {entry.event}  {entry.count}  {info}  {ids}".rstrip()


def _clock(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _json(entry: LogEntry) -> str:
    import msgspec

    return msgspec.json.encode(entry).decode()


def _of_topic(topic: str, json: bool) -> Callable[[TopicEntry], str]:
    """How an entry of a topic is told: what is JSON as it is, all else as text."""
    import msgspec

    def told(entry: TopicEntry) -> str:
        try:
            data = msgspec.json.decode(entry.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            data = entry.data.decode("utf-8", "replace")
        if json:
            return msgspec.json.encode(
                {"topic": topic, "id": entry.id, "at": entry.at, "data": data}
            ).decode()
        more = (
            "  ".join(f"{name}={value}" for name, value in data.items()) if isinstance(data, dict) else data
        )
        return f"{_clock(entry.at)}  {topic}  {more}"

    return told
