"""`postroom schedule`: what is put when, and how to stop it or run it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import output
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.schedule import Standing

app: typer.Typer = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule, as [schedule.NAME] calls it.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="schedule", help="What is put when: list, pause, resume, run now.")


@app.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List all schedules: of this configuration, and of every keeper's.

    \b
    Examples:
      postroom schedule ls
      postroom schedule ls --json | jq '.[] | select(.paused)'

    \b
    A schedule is a table of postroom.toml, run by the leading keeper:
      [schedule.nightly]
      cron = "30 2 * * *"            or: every = "15m"
      timezone = "Europe/Berlin"
      queue = "reports"
      kind = "report"                also: body, priority, headers, expires
      missed = "once"                or: skip, all
    """
    from postroom.cli.store import opened
    from postroom.schedule import Schedules

    with opened(url) as room:
        standings = Schedules(room).standings()
        mine = set(room.config.schedules)
    if json:
        output.as_json([_document(standing) for standing in standings])
    else:
        columns = ("schedule", "when", "queue", "next", "last", "state")
        output.table(columns, [_row(standing, mine) for standing in standings])


@app.command("run-now")
def run_now(name: Name, url: Url = None, json: Json = False) -> None:
    """Put one message of a schedule at once, and print its id; the slots stay as they are.

    \b
    Examples:
      postroom schedule run-now nightly
    """
    from postroom.cli.store import opened
    from postroom.schedule import Schedules

    with opened(url) as room:
        put = Schedules(room).run_now(name)
    if json:
        output.as_json({"schedule": name, "id": put.id})
    else:
        print(put.id)


@app.command()
def pause(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="For people to read.")] = "",
    url: Url = None,
    json: Json = False,
) -> None:
    """Put no more slots of a schedule, in any process, until it is resumed.

    \b
    Examples:
      postroom schedule pause nightly --reason "the warehouse moves"
    """
    from postroom.cli.store import opened
    from postroom.schedule import Schedules

    with opened(url) as room:
        Schedules(room).pause(name, reason)
    if json:
        output.as_json({"schedule": name, "paused": True, "reason": reason})
    else:
        output.say(f"{name} is paused; slots until it is resumed are passed over")


@app.command()
def resume(name: Name, url: Url = None, json: Json = False) -> None:
    """Go on with the next slot of a paused schedule.

    \b
    Examples:
      postroom schedule resume nightly
    """
    from postroom.cli.store import opened
    from postroom.schedule import Schedules

    with opened(url) as room:
        standing = Schedules(room).resume(name)
    if json:
        output.as_json({"schedule": name, "paused": False, "next_slot": standing.next_slot})
    else:
        output.say(f"{name} is next due at {_time(standing.next_slot)}")


def _row(standing: Standing, mine: set[str]) -> tuple[str, ...]:
    schedule = standing.schedule
    state = f"paused: {standing.reason}".rstrip(": ") if standing.paused else "on"
    if schedule.name not in mine:
        state += ", not in this configuration"
    last = _time(standing.last_slot)
    return schedule.name, schedule.when, schedule.queue, _time(standing.next_slot), last, state


def _time(at: int | None) -> str:
    from datetime import UTC, datetime

    return "-" if at is None else datetime.fromtimestamp(at / 1_000, UTC).isoformat(" ", "seconds")


def _document(standing: Standing) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(standing)
    return {**fields.pop("schedule"), **fields, "next_slot": standing.next_slot}
