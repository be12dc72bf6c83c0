"""The command run inside this process: what it prints and how it exits, in a fraction of the time."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NamedTuple

import pytest

from postroom import cli


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stdin at which somebody sits."""

    def isatty(self) -> bool:
        return True


class Inside:
    """Runs the command as `main` does, with nothing but these arguments and this stdin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *args: str, code: int = 0, stdin: io.TextIOBase | str = "") -> Ran:
        given = io.StringIO(stdin) if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "argv", ["postroom", *args])
        self._monkeypatch.setattr(sys, "stdin", given)
        try:
            exited = cli.main()
        except SystemExit as exit:
            exited = int(exit.code or 0)
        ran = Ran(exited, *self._capsys.readouterr())
        assert ran.code == code, ran
        return ran
