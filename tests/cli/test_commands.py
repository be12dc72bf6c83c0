"""What holds for all commands: they are documented, they teach, they can speak JSON, they show progress."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from postroom.cli import progress
from postroom.cli.app import app
from postroom.room import Room
from tests.cli.inside import Inside
from tools.reference import every_command

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


COMMANDS = dict(every_command(typer.main.get_command(app)))


def test_the_page_lists_every_command_and_no_other() -> None:
    headings = re.findall(r"^### `([a-z -]+)( [A-Z\[].*)?`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for name, _ in headings) == sorted(COMMANDS)


def test_the_page_names_only_options_that_exist() -> None:
    for section in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        name = re.match(r"`([a-z -]+)", section)
        assert name
        known = {option for param in COMMANDS[name[1].strip()].params for option in param.opts}
        text = section.split("\n## ")[0]
        assert set(re.findall(r"`(--[a-z-]+)", text)) <= known, name[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches_by_examples(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert "Examples:" in text
    assert name in text.partition("Examples:")[2]


#: What they print is a story, JSON anyway, a script.
OF_THEIR_OWN = {"postroom demo", "postroom dead export", "postroom completion"}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in OF_THEIR_OWN])
def test_every_command_speaks_json(name: str) -> None:
    assert "--json" in {option for param in COMMANDS[name].params for option in param.opts}


# ---- Progress -------------------------------------------------------------------------------------


class Screen(io.StringIO):
    def __init__(self, live: bool) -> None:
        super().__init__()
        self._live = live

    def isatty(self) -> bool:
        return self._live


@pytest.mark.parametrize("live", [True, False])
def test_what_takes_longer_than_a_second_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    screen, now = Screen(live), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in progress.counted(range(40), "swept"):
        now[0] += 0.25
    if live:
        assert screen.getvalue().startswith("\r\x1b[Kswept: 4\r\x1b[Kswept: 5")
        assert screen.getvalue().endswith("\r\x1b[K"), "the line is gone when it is over"
    else:
        assert screen.getvalue() == "swept: 4\nswept: 24\n"


@pytest.mark.parametrize("live", [True, False])
def test_what_is_quick_says_nothing(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    screen = Screen(live)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert list(progress.counted("abc", "letters")) == ["a", "b", "c"]
    assert screen.getvalue() == ""


@pytest.mark.parametrize("live", [True, False])
def test_one_long_call_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    screen = Screen(live)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.patience("purge of emails"):
        while "purge of emails: 1 s" not in screen.getvalue():
            time.sleep(0.01)
    assert screen.getvalue().endswith("\r\x1b[K" if live else "s\n")
    said = screen.getvalue()
    with progress.patience("purge of emails"):
        pass
    assert screen.getvalue() == said, "what is quick says nothing"


@pytest.mark.parametrize(
    "args",
    [
        ("queue", "purge", "q", "--yes"),
        ("queue", "drop", "q", "--yes", "--force"),
        ("dead", "ls"),
        ("dead", "groups"),
        ("doctor",),
        ("sla",),
    ],
)
def test_what_may_take_long_in_one_call_is_watched(
    inside: Inside, seen: Room, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    watched: list[str] = []

    @contextlib.contextmanager
    def patience(what: str) -> Iterator[None]:
        watched.append(what)
        yield

    monkeypatch.setattr(progress, "patience", patience)
    seen.queue("q").put(1)
    inside.run(*args)
    assert len(watched) == 1
