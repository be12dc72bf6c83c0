"""Before something is destroyed: ask the person, if there is one."""

from __future__ import annotations

import sys

import typer

from postroom.errors import InvalidInput


def consent(question: str, *, yes: bool) -> None:
    """Go on only if told so, by --yes or by whoever sits at the terminal.

    Raises InvalidInput when nobody is there to be asked; a no ends the command with exit code 1.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("nobody is here to be asked: say --yes, or --dry-run to see what would be done")
    typer.confirm(question, abort=True, err=True)
