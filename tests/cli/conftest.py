"""A command line in a folder of its own, on a SQLite file, and the room that it sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.room import Room
from tests.cli.inside import Inside


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_URL", "sqlite:///jobs.db")
    return Inside(monkeypatch, capsys)


@pytest.fixture
def seen(inside: Inside) -> Iterator[Room]:
    """The room that the command opens too."""
    with postroom.open("sqlite:///jobs.db") as room:
        yield room
