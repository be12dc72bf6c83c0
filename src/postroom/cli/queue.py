"""`postroom queue`: how the queues stand, and what an operator does to a whole one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import output, progress
from postroom.cli.options import DryRun, Json, Queue, Queues, Url, Yes
from postroom.errors import Conflict

if TYPE_CHECKING:
    from postroom.engine import QueueInfo
    from postroom.room import Room
    from postroom.stats import QueueStats

app: typer.Typer = typer.Typer(no_args_is_help=True)

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for everybody who looks.")]
Force = Annotated[bool, typer.Option("--force", help="Also while there are messages in it.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="SPAN", help="Resume by itself after so long, such as 15m.")
]
Over = Annotated[str | None, typer.Option("--over", metavar="SPAN", help="How far ahead, such as 10m or 2h.")]
Bars = Annotated[int, typer.Option("--bars", metavar="N", help="In so many spans of equal length.")]

_STANDING = ("ready", "scheduled", "processing", "overdue", "dead")


def register(root: typer.Typer) -> None:
    root.add_typer(
        app, name="queue", help="Look at queues and what is due; pause, resume, purge and drop them."
    )


@app.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List the queues: how many messages are where, how old the oldest is, who is paused.

    \b
    Examples:
      postroom queue ls
      postroom queue ls --url redis://host/0
      postroom queue ls --json | jq '.[] | select(.dead > 0) | .queue'
    """
    from postroom.cli.store import opened
    from postroom.cli.times import age
    from postroom.settings import without_secrets

    with opened(url) as room:
        infos, stats = _stats(room, None)
    if not infos:  # a slip in the name of the store looks the same
        output.say(f"there are no queues in {without_secrets(room.config.url)} yet")
    if json:
        output.as_json([_standing(info, stat) for info, stat in zip(infos, stats, strict=True)])
        return
    rows = [
        (stat.queue, *(str(getattr(stat, name)) for name in _STANDING), age(stat.oldest), _paused(info))
        for info, stat in zip(infos, stats, strict=True)
    ]
    output.table(("queue", *_STANDING, "oldest", "paused"), rows)


@app.command()
def show(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Show one queue: how it stands, and what it promises to everybody who uses it.

    `levels` is what is ready by priority; where it or `retrying` is not whole, there are at least so many.
    The promises are those in the store; what postroom.toml says is `postroom config show --queue`.

    \b
    Examples:
      postroom queue show heavy_payouts
      postroom queue show heavy_payouts --json | jq .policy.backoff
    """
    from postroom.cli.store import opened

    with opened(url) as room:
        info, stats = room.queue(queue).info(), room.engine.stats(queue)
        backlog = room.queue(queue).backlog()
    standing, policy = _standing(info, stats) | backlog._asdict(), info.policy.to_text()
    if json:
        output.as_json(standing | {"policy": policy})
        return
    rows = [(name, _text(value)) for name, value in standing.items()]
    output.table(("", "value"), rows + [(f"policy.{name}", _text(value)) for name, value in policy.items()])


@app.command()
def stats(queues: Queues = None, url: Url = None, json: Json = False) -> None:
    """Count what happened in each queue since it came into being.

    \b
    Examples:
      postroom queue stats
      postroom queue stats emails --json | jq '.[0].counters'
    """
    from postroom.cli.store import opened
    from postroom.stats import COUNTERS

    with opened(url) as room:
        _, counted = _stats(room, queues)
    if json:
        output.as_json([{"queue": stat.queue, "counters": stat.counters} for stat in counted])
        return
    rows = [(stat.queue, *(str(stat.counters.get(name, 0)) for name in COUNTERS)) for stat in counted]
    output.table(("queue", *COUNTERS), rows)


@app.command()
def due(
    queues: Queues = None, over: Over = None, bars: Bars = 12, url: Url = None, json: Json = False
) -> None:
    """Count when the scheduled messages are due; without --over, as far as there are any.

    \b
    Examples:
      postroom queue due --over 10m
      postroom queue due heavy_payouts --over 1h --bars 60
      postroom queue due --json | jq .later
    """
    from postroom import upcoming
    from postroom.cli.store import opened
    from postroom.cli.times import moment
    from postroom.duration import milliseconds

    span = None if over is None else milliseconds(over, "over")
    with opened(url) as room:
        names = (
            [room.queue(name).info().name for name in queues] if queues else [q.name for q in room.queues()]
        )
        found = upcoming.read(room.engine, names, span, bars)
    if json:
        output.as_json(found._asdict())
        return
    most, step = max(*found.counts, 1), (found.until - found.now) / bars
    spans = [(moment(int(found.now + step * at)) or "", count) for at, count in enumerate(found.counts)]
    rows = [("overdue", found.overdue), *spans, ("later", found.later)]
    output.table(
        ("due from", "messages", ""), [(when, str(n), "▇" * min(40, -(-40 * n // most))) for when, n in rows]
    )
    if not found.whole:
        output.say("there are more than could be counted: the last of them are left out")


@app.command()
def pause(queue: Queue, reason: Reason = "", span: For = None, url: Url = None, json: Json = False) -> None:
    """Stop handing out messages; putting, settling and coming back go on.

    With --for the queue resumes by itself when that time is over.

    \b
    Examples:
      postroom queue pause heavy_payouts --reason "the bank is down"
      postroom queue pause heavy_payouts --for 15m --reason "deploy 1.2"
    """
    from postroom.cli.store import opened
    from postroom.cli.times import moment

    with opened(url) as room:
        room.queue(queue).info()
        room.queue(queue).pause(reason, span)
        until = moment(room.queue(queue).info().paused_until)
    text = f"{queue} is paused{f' until {until}' if until else ''}"
    _done(json, text, queue=queue, paused=True, reason=reason, until=until)


@app.command()
def resume(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Hand out messages again.

    \b
    Examples:
      postroom queue resume heavy_payouts
    """
    from postroom.cli.store import opened

    with opened(url) as room:
        room.queue(queue).info()
        room.queue(queue).resume()
    _done(json, f"{queue} is not paused", queue=queue, paused=False)


@app.command()
def purge(
    queue: Queue, yes: Yes = False, dry_run: DryRun = False, url: Url = None, json: Json = False
) -> None:
    """Drop every message that waits, ready or scheduled; what is processing or dead stays.

    \b
    Examples:
      postroom queue purge chat_events --dry-run     how many that are
      postroom queue purge chat_events --yes
    """
    from postroom.cli.consent import consent
    from postroom.cli.store import opened

    with opened(url) as room:
        room.queue(queue).info()
        count = room.engine.stats(queue).depth
        if not dry_run:
            consent(f"Drop the {count:,} messages that wait in {queue}?", yes=yes)
            with progress.patience(f"purge of {queue}"):
                count = room.queue(queue).purge()
    text = f"{count:,} messages {'would be' if dry_run else 'were'} dropped from {queue}"
    _done(json, text, queue=queue, purged=count, dry_run=dry_run)


@app.command()
def drop(
    queue: Queue,
    force: Force = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Remove a queue; refused while anything is in it, dead letters included, unless forced.

    \b
    Examples:
      postroom queue drop old_reports --yes
      postroom queue drop old_reports --force --dry-run
    """
    from postroom.cli.consent import consent
    from postroom.cli.store import opened

    with opened(url) as room:
        room.queue(queue).info()
        stats = room.engine.stats(queue)
        count = stats.depth + stats.processing + stats.dead
        if count and not force:  # nobody is asked about what would be refused
            raise Conflict(f"{queue}: {count:,} messages are in it; purge or discard them first, or --force")
        if not dry_run:
            consent(f"Remove {queue} with the {count:,} messages in it?", yes=yes)
            with progress.patience(f"drop of {queue}"):
                count = room.queue(queue).drop(force=force)
    text = f"{queue} {'would be' if dry_run else 'was'} removed, with {count:,} messages"
    _done(json, text, queue=queue, dropped=count, dry_run=dry_run)


def _stats(room: Room, names: list[str] | None) -> tuple[list[QueueInfo], list[QueueStats]]:
    infos = [room.queue(name).info() for name in names] if names else room.queues()
    return infos, [room.engine.stats(info.name) for info in progress.counted(infos, "queues")]


def _standing(info: QueueInfo, stats: QueueStats) -> dict[str, Any]:
    from postroom.cli.times import moment

    return {
        "queue": stats.queue,
        **{name: getattr(stats, name) for name in _STANDING},
        "oldest_seconds": stats.oldest / 1_000,
        "next_priority": stats.next_priority,
        "paused": info.paused,
        "pause_reason": info.pause_reason,
        "paused_until": moment(info.paused_until),
    }


def _paused(info: QueueInfo) -> str:
    from postroom.cli.times import moment

    until = moment(info.paused_until)
    return f"{info.pause_reason or 'yes'}{f', until {until}' if until else ''}" if info.paused else "-"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {number}" for key, number in value.items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else str(value)


def _done(json: bool, text: str, **document: Any) -> None:
    if json:
        output.as_json(document)
    else:
        print(text)
