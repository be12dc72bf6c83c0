"""The command itself: what it takes, what it says about itself, and how it ends."""

from __future__ import annotations

from typing import Annotated

import typer

Seconds = Annotated[
    float, typer.Option("--seconds", "-s", min=5, max=600, help="About how long the whole takes.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        metavar="URL",
        help="The store to play in, never the configured one.  [default: a temporary SQLite file]",
    ),
]


def demo(seconds: Seconds = 16, url: Url = None) -> None:
    """See Postroom work: two worker processes, three queues, and everything that can go wrong.

    It needs no service and leaves nothing behind. Messages of mixed urgency are put, delayed,
    retried, refused and buried; a third process is killed (kill -9) with work in its hands. A Celery
    worker runs tasks from the same store, and is killed, too (if Celery is installed). A
    ledger that does not trust the engine notes what really ran, and at the end says PASS or FAIL
    to each promise.

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
    from postroom.cli.demo.signals import Signals
    from postroom.cli.demo.store import open_room, out_of_the_box, store

    with Signals() as signals, out_of_the_box():
        try:
            with store(url) as place, open_room(place) as room:
                checks = Show(room, place, seconds, choose(), signals).play()
        except KeyboardInterrupt:  # asked twice: no verdicts
            raise typer.Exit(128 + signals.noted) from None
    if signals.noted:
        raise typer.Exit(128 + signals.noted)
    if not all(check.kept for check in checks):
        raise typer.Exit(UNHEALTHY)
