"""`postroom mark`: what happened when, for charts."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from postroom.cli import output
from postroom.cli.options import Json, Url

app: typer.Typer = typer.Typer(no_args_is_help=True)

Text = Annotated[str, typer.Argument(metavar="TEXT", help='What happened, such as "deploy 1.2".')]
Cause = Annotated[str, typer.Option("--cause", metavar="CAUSE", help="deploy, incident or note.")]
Over = Annotated[str, typer.Option("--over", metavar="SPAN", help="How far back, such as 1h or 7d.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="mark", help="Mark deploys and other moments on the charts.")


@app.command()
def add(text: Text, cause: Cause = "deploy", url: Url = None, json: Json = False) -> None:
    """Mark this moment on every chart of the dashboard, for 30 days.

    \b
    Examples:
      postroom mark add "deploy 1.2"
      postroom mark add "the bank moved" --cause note
    """
    from postroom import marks
    from postroom.cli.store import opened

    with opened(url) as room:
        mark = marks.add(room.engine, text, cause)
    if json:
        output.as_json(msgspec.to_builtins(mark))
    else:
        print(f"marked: {mark.text}")


@app.command()
def ls(over: Over = "1d", url: Url = None, json: Json = False) -> None:
    """List what was marked, and what was noted about incidents, oldest first.

    \b
    Examples:
      postroom mark ls --over 7d
      postroom mark ls --json | jq '.[] | select(.cause == "deploy") | .text'
    """
    from postroom import marks
    from postroom.cli.store import opened
    from postroom.cli.times import moment
    from postroom.duration import milliseconds

    with opened(url) as room:
        found = marks.read(room.engine, milliseconds(over, "over"))
    if json:
        output.as_json(msgspec.to_builtins(found))
        return
    rows = [(moment(mark.at) or "", mark.cause, mark.text, mark.by or "-") for mark in found]
    output.table(("at", "cause", "what", "by"), rows)
