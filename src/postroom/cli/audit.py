"""`postroom audit`: what operators did."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from postroom.audit import Act

app: typer.Typer = typer.Typer(no_args_is_help=True)

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", metavar="URL", help="The store; else as configured (postroom config show)."),
]
Lines = Annotated[int, typer.Option("--lines", "-l", min=0, max=10_000, help="The newest so many.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Then every act as it happens, until Ctrl-C.")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Only about this one.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document a line.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="audit", help="Show what operators did.")


@app.callback()
def audit() -> None:
    """Show what operators did: who, what, when, to which queue, to how many messages."""


@app.command()
def tail(
    lines: Lines = 20, follow: Follow = False, queue: Queue = None, url: Url = None, json: Json = False
) -> None:
    """Show the newest acts, oldest first: purge, discard, replay, pause, resume, drop, note, import, migrate.

    They are kept for a year, and at most 10,000 of them.

    \b
    Examples:
      postroom audit tail
      postroom audit tail -f -q dlq_fast
      postroom audit tail -l 10000 --json | jq 'select(.event == "discard")'
    """
    from postroom import audit as acts
    from postroom.cli.store import opened

    with opened(url) as room:
        newest = acts.newest(room.engine, lines, queue)
        for act in newest.acts:
            _show(act, json)
        with suppress(KeyboardInterrupt):  # how one ends to follow
            for act in acts.follow(room.engine, newest.cursor) if follow else ():
                if queue in (None, act.queue):
                    _show(act, json)


def _show(act: Act, json: bool) -> None:
    import msgspec

    from postroom.cli.dead.tables import moment

    if json:
        print(msgspec.json.encode(act).decode(), flush=True)
        return
    info = ", ".join(f"{name} {value}" for name, value in act.info.items() if value not in ("", {}))
    where = f" {act.queue}" if act.queue else ""
    print(f"{moment(act.at)}  {act.by}  {act.event}{where}  {act.count:,}  {info}".rstrip(), flush=True)
