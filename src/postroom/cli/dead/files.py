"""Dead letters in files: export and import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from postroom.cli import output
from postroom.cli.dead import options as take

Out = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="Lines as export writes them; - is stdin.")]


def register(app: typer.Typer) -> None:
    app.command()(export)
    app.command("import")(bring_in)


def export(
    name: take.View = None,
    where: take.Where = None,
    out: Out = "-",
    service: take.Service = None,
    url: take.Url = None,
) -> None:
    """Write dead letters as lines of JSON, one each, with everything that is known about them.

    \b
    Examples:
      postroom dead export dlq_fast > letters.jsonl
      postroom dead export -w older=30d -o old.jsonl
      postroom dead export | jq -r '[.task_name, .exception] | @tsv'
    """
    from postroom.cli.dead.view import letters
    from postroom.cli.progress import Meter
    from postroom.deadletters import Filter

    wanted, meter = Filter.parse(where or []), Meter("exported")
    with letters(url, name, service) as dead, _writing(out) as file:
        count = dead.export(file.write, wanted, meter)
    meter.clear()
    output.say(f"exported: {count:,}")


def bring_in(
    file: File,
    to: take.To = None,
    dry_run: take.DryRun = False,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Make dead letters of exported lines; those that are here already stay as they are.

    Each goes into the queue it came from, or with --to into that one. Ids, groups and the history
    of the attempts stay the same; when they died is now.

    \b
    Examples:
      postroom dead import letters.jsonl --dry-run
      postroom dead import letters.jsonl
      ssh other postroom dead export dlq_fast | postroom dead import - --to fast_default
    """
    from postroom.cli.progress import Meter
    from postroom.cli.store import opened
    from postroom.deadletters import DeadLetters

    meter = Meter("imported")
    with opened(url) as room, _reading(file) as lines:
        read, created = DeadLetters(room).bring_in(lines, to=to, dry_run=dry_run, on_progress=meter)
    meter.clear()
    if json:
        output.as_json({"read": read, "created": created, "dry_run": dry_run})
    output.say(
        f"read: {read:,}" if dry_run else f"imported: {created:,}; {read - created:,} were here already"
    )


@contextlib.contextmanager
def _writing(name: str) -> Iterator[IO[bytes]]:
    with _opened(name, "wb") as file:
        yield file or sys.stdout.buffer
    sys.stdout.flush()


@contextlib.contextmanager
def _reading(name: str) -> Iterator[IO[bytes]]:
    with _opened(name, "rb") as file:
        yield file or sys.stdin.buffer


@contextlib.contextmanager
def _opened(name: str, mode: str) -> Iterator[IO[bytes] | None]:
    """The file of this name; None for -, which is already open."""
    from postroom.errors import InvalidInput

    if name == "-":
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).open(mode))
        except OSError as error:
            raise InvalidInput(f"{name}: {error.strerror}") from error
        yield file
