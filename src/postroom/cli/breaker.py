"""`postroom breaker`: the breakers that are shared through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.cli import output
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.standing import Standing

app: typer.Typer = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The breaker's name.")]
OneName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="One breaker; else all of them.")]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for others to read.")]

Expires = Annotated[
    str | None, typer.Option("--expires", "-e", metavar="SPAN", help="Closed again after so long: 30m, 2h.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="breaker", help="Look at breakers, open and close them.")


@app.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List the shared breakers: state, failures counted, the last calls, since when and why.

    Calls are those before the last change, oldest first: "." went well, "x" failed, "-" was refused.

    A breaker is here from its first use on. Those of one process alone are not: ask that process.

    \b
    Examples:
      postroom breaker ls
      postroom breaker ls --json | jq '.psp.state'
    """
    from postroom.cli.store import opened
    from postroom.standing import standings

    with opened(url) as room:
        found = standings(room)
    if json:
        output.as_json({name: _document(standing) for name, standing in found.items()})
    else:
        columns = ("breaker", "state", "failures", "calls", "since", "reason")
        output.table(columns, [_row(name, standing) for name, standing in found.items()])


@app.command()
def history(name: OneName = None, url: Url = None, json: Json = False) -> None:
    """List what shared breakers went through within a day, the newest last.

    \b
    Examples:
      postroom breaker history
      postroom breaker history psp --json
    """
    from postroom.breaker import changes
    from postroom.cli.store import opened

    with opened(url) as room:
        found = changes(room.engine, name)
    if json:
        output.as_json([change._asdict() for change in found])
    else:
        rows = [(_moment(each.at), each.name, each.before, each.after, each.reason) for each in found]
        output.table(("when", "breaker", "was", "is", "reason"), rows)


@app.command()
def open(
    name: Name, reason: Reason = "", expires: Expires = None, url: Url = None, json: Json = False
) -> None:
    """Open a breaker until it is closed by hand, or for a while; workers tied to it claim nothing.

    \b
    Examples:
      postroom breaker open psp --reason "they asked us to stop"
      postroom breaker open psp --reason maintenance --expires 2h
    """
    from postroom.breaker import Breaker
    from postroom.cli.store import opened

    with opened(url) as room:
        Breaker(name, room=room).open(reason, expires=expires)
    _done(json, name, "open", reason)


@app.command()
def close(name: Name, reason: Reason = "", url: Url = None, json: Json = False) -> None:
    """Close a breaker and forget its failures.

    \b
    Examples:
      postroom breaker close psp
    """
    from postroom.breaker import Breaker
    from postroom.cli.store import opened
    from postroom.errors import NotFound
    from postroom.standing import standings

    with opened(url) as room:
        if name not in standings(room):
            raise NotFound(f"there is no shared breaker {name!r}")
        Breaker(name, room=room).close(reason)
    _done(json, name, "closed", reason)


def _done(json: bool, name: str, state: str, reason: str) -> None:
    if json:
        output.as_json({"breaker": name, "state": state, "reason": reason})
    else:
        output.say(f"breaker {name} is {state}; processes notice within a second")


def _document(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state.value,
        "forced": standing.forced,
        "failures": len(standing.failures),
        "since": standing.since or None,
        "reason": standing.reason,
        "calls": msgspec.to_builtins(standing.calls),
    }


def _row(name: str, standing: Standing) -> tuple[str, ...]:
    state = f"{standing.state.value} (by hand)" if standing.forced else standing.state.value
    calls = "".join({"ok": ".", "failure": "x"}.get(call.outcome, "-") for call in standing.calls)
    return name, state, str(len(standing.failures)), calls, _moment(standing.since), standing.reason


def _moment(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""
