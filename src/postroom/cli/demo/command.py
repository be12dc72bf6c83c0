"""The command itself: what it takes, what it says about itself, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from postroom.cli.demo.door import Door

Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", "-s", min=5, max=600, help="About how long the whole takes; without it, it stays up."
    ),
]
#: How long the story takes, unless told otherwise (seconds).
_STORY = 16
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        metavar="URL",
        help="The store to play in, never the configured one.  [default: a temporary SQLite file]",
    ),
]


def demo(seconds: Seconds = None, url: Url = None) -> None:
    """See Postroom work: two worker processes, three queues, and everything that can go wrong.

    It needs no service and leaves nothing behind. Messages of mixed urgency are put, delayed,
    retried, refused and buried; a third process is killed (kill -9) with work in its hands. A Celery
    worker runs tasks from the same store, and is killed, too (if Celery is installed). A
    ledger that does not trust the engine notes what really ran, and at the end says PASS or FAIL
    to each promise.

    It is served over HTTP meanwhile, at the address that is printed first, on the first free port
    from 8025. After the verdicts everyday work goes on until Ctrl-C; with --seconds it ends there.

    \b
    Examples:
      postroom demo                      a live table on a terminal, and then a server to look at
      postroom demo --seconds 6 | cat    plain lines, for a log or a pipe
      postroom demo --seconds 60         the same, slower, with more messages

    \b
    Exit codes: 0 every check passed, 6 one did not, 130 stopped with Ctrl-C before the verdicts.
    """
    from postroom.cli import UNHEALTHY
    from postroom.cli.demo.door import Door
    from postroom.cli.demo.screen import choose
    from postroom.cli.demo.show import Show
    from postroom.cli.demo.signals import Signals
    from postroom.cli.demo.store import open_room, out_of_the_box, store

    with Signals() as signals, out_of_the_box():
        try:
            with store(url) as place, open_room(place) as room, Door(room) as door:
                print(_where(door), flush=True)
                show = Show(room, place, seconds or _STORY, choose(), signals)
                checks = show.play(stay=seconds is None and door.address is not None)
        except KeyboardInterrupt:  # asked twice: no verdicts
            raise typer.Exit(128 + signals.noted) from None
    if signals.noted and not show.was_played:
        raise typer.Exit(128 + signals.noted)
    if not all(check.kept for check in checks):
        raise typer.Exit(UNHEALTHY)


def _where(door: Door) -> str:
    if door.address is None:
        return "HTTP is not installed, so nothing is served: pip install 'postroom[http]'"
    return f"Postroom serves {door.address}"
