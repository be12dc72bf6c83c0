"""`postroom doctor`: whether everything is as it should be, and what to do if not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli import UNHEALTHY, output, progress
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.findings import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def register(root: typer.Typer) -> None:
    root.command()(doctor)


def doctor(
    url: Url = None,
    json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 6 for warnings too.")] = False,
) -> None:
    """Look at everything that can be wrong: one line each, ok, warn or fail, and what to do.

    Of Redis: connection, version, eviction, persistence, memory, authentication, TLS, clock, keys that
    Celery's own transport left. Of SQLite: the file, its log, filesystem and disk. Of the room: keeper,
    queues near a limit, waits against what is promised. Exits with 6 if anything fails.

    \b
    Examples:
      postroom doctor
      postroom doctor --url redis://localhost:6379/0
      postroom doctor --json | jq '.[] | select(.level != "ok")'
      postroom doctor --strict || page-somebody
    """
    found = _examined(url)
    if json:
        output.as_json([finding._asdict() for finding in found])
    else:
        for line in _lines(found):
            print(line)
    levels = {str(finding.level) for finding in found}
    if "fail" in levels or (strict and "warn" in levels):
        raise SystemExit(UNHEALTHY)


def _examined(url: str | None) -> list[Finding]:
    """The findings; a room that cannot even be opened is one."""
    from postroom.cli.store import opened
    from postroom.doctor import examine
    from postroom.errors import PostroomError
    from postroom.findings import bad

    try:
        with opened(url) as room, progress.patience("looking for"):
            return examine(room)
    except PostroomError as error:
        return [bad("room", str(error), "correct this first; which store is meant: postroom config show")]


def _lines(found: list[Finding]) -> list[str]:
    coloured = sys.stdout.isatty()
    width = max(len(finding.check) for finding in found)
    lines = []
    for finding in found:
        word = f"{finding.level:4}"
        if coloured:
            word = typer.style(word, fg=_COLOURS[finding.level].split()[-1], bold=finding.level == "fail")
        lines.append(f"{word}  {finding.check:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':4}  {'':{width}}  -> {finding.advice}")
    return lines
