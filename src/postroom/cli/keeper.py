"""`postroom keeper`: what time demands of the queues that nobody consumes."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli import output
from postroom.cli.options import Json, Queues, Url

if TYPE_CHECKING:
    from postroom.model import Swept

app: typer.Typer = typer.Typer(no_args_is_help=True)

JsonLog = Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")]

_DONE = ("reclaimed", "dead", "promoted", "expired", "evicted")
#: How often it is looked whether a signal came: the main thread must not sleep in something longer.
_LOOK = 0.2


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="keeper", help="Reclaim, promote and expire where nobody consumes.")


@app.command()
def run(url: Url = None, json: JsonLog = False) -> None:
    """Be a candidate for the room's keeper until SIGTERM or Ctrl-C.

    Every worker is one already; this is for rooms that are left without workers. Many may run: one leads.

    \b
    Examples:
      postroom keeper run
      postroom keeper run --url redis://host/0
    """
    from postroom.cli import logs
    from postroom.cli.store import opened
    from postroom.keeper import Keeper

    logs.begin(as_json=json)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with opened(url) as room:
        keeper = Keeper(room)
        keeper.start()
        output.say("the keeper runs; Ctrl-C ends it")
        while not stop.wait(_LOOK):
            pass
        keeper.stop()


@app.command()
def sweep(queues: Queues = None, url: Url = None, json: Json = False) -> None:
    """Do once, now, what time demands: reclaim what is overdue, promote what is due, expire, evict.

    It asks for no lead: a sweep is one step of the store, and two at once do no harm. After a silence
    of half a lease nothing is reclaimed for a third of one: whoever lives has to report first.

    \b
    Examples:
      postroom keeper sweep
      postroom keeper sweep heavy_payouts --json | jq '.[0].reclaimed'
    """
    from postroom.cli.progress import counted
    from postroom.cli.store import opened
    from postroom.keeper import Keeper

    with opened(url) as room:
        names = (
            [room.queue(name).info().name for name in queues] if queues else [i.name for i in room.queues()]
        )
        keeper = Keeper(room)
        swept = {name: keeper.sweep(name, "operator") for name in counted(names, "swept")}
    if json:
        output.as_json([{"queue": name, **_document(done)} for name, done in swept.items()])
    else:
        rows = [(name, *map(str, _document(done).values())) for name, done in swept.items()]
        output.table(("queue", *_DONE), rows)


def _document(swept: Swept) -> dict[str, int]:
    return {name: getattr(swept, name) for name in _DONE}
