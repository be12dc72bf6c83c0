"""`postroom demo`: the product at work on one machine, judged by a ledger of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from postroom.room import Room

#: Where the demo plays unless told otherwise: never in a store that is configured for real work.
URL = "memory://"

Seconds = Annotated[
    float, typer.Option("--seconds", "-s", min=5, max=600, help="The whole takes at most this long.")
]
Url = Annotated[
    str, typer.Option("--url", "-u", metavar="URL", help="The store to play in; not the configured one.")
]


def register(root: typer.Typer) -> None:
    root.command()(demo)


def demo(seconds: Seconds = 20, url: Url = URL) -> None:
    """See Postroom work: two workers, three queues, and everything that can go wrong.

    It needs no service and leaves nothing behind. Messages of mixed urgency are put, delayed,
    retried, refused and buried; a consumer vanishes with work in its hands. A ledger that does
    not trust the engine notes what really ran, and at the end says PASS or FAIL to each promise.

    \b
    Examples:
      postroom demo                      a live table on a terminal
      postroom demo --seconds 6 | cat    plain lines, for a log or a pipe
      postroom demo --seconds 60         the same, slower, with more messages

    \b
    Exit codes: 0 every check passed, 6 one did not, 130 stopped with Ctrl-C.
    """
    from postroom.cli import UNHEALTHY
    from postroom.cli.demo.screen import choose
    from postroom.cli.demo.show import Show

    with _room(url) as room:
        show = Show(room, seconds, choose())
        checks = show.play()
    if show.stopped_by:
        raise typer.Exit(128 + show.stopped_by)
    if not all(check.kept for check in checks):
        raise typer.Exit(UNHEALTHY)


def _room(url: str) -> Room:
    """A room as it is out of the box, whatever postroom.toml and the environment say."""
    import os

    from postroom.config import load
    from postroom.room import open

    return open(url, config=load(os.devnull, environ={}, url=url))
