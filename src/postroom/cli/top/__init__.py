"""`postroom top`: the room at a glance, again and again. `picture` is what is shown, `screen` how."""

from __future__ import annotations

from typing import Annotated

import typer

from postroom.cli.options import Url


def register(root: typer.Typer) -> None:
    root.command()(top)


def top(
    url: Url = None,
    every: Annotated[str, typer.Option(metavar="SPAN", help="How often to look.")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="One look, and the end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a look.")] = False,
) -> None:
    """Watch all queues: what waits, what is being worked on, how fast, how late, and by whom.

    On a terminal a live view, ended by q or Ctrl-C; in a pipe plain lines.

    \b
    Examples:
      postroom top
      postroom top --once
      postroom top --json --every 10s >> room.ndjson

    \b
    Columns: in/s and out/s are puts and acks a second since the last look; oldest is the age of the
    next message; p95 is that of the wait in the last five minutes, against sla_p95.
    """
    from postroom.cli.store import opened
    from postroom.cli.top.picture import Watch
    from postroom.cli.top.screen import choose
    from postroom.duration import milliseconds

    pause = max(milliseconds(every, "every"), 100) / 1_000
    with opened(url) as room, choose(once=once, json=json) as screen:
        watch = Watch(room)
        try:
            screen.show(watch.look())
            while not once and screen.wait(pause):
                screen.show(watch.look())
        except KeyboardInterrupt:
            pass
