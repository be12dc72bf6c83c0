"""A replay whose process is killed at any point is gone on with, and nobody gets a message twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.deadletters import DeadLetters, Filter
from postroom.room import Room
from tests.dead.letters import bodies, bury
from tests.door.staging import eventually

COMMAND = [sys.executable, "-m", "postroom.cli", "dead", "replay", "--all", "--yes", "--rate", "20/s"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
LETTERS = 300  # at that rate for a quarter of a minute: whoever is to kill it may be late


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("to", [None, "fast_default"])
def test_a_killed_replay_is_gone_on_with(room: Room, url: str, to: str | None, tmp_path: Path) -> None:
    bury(room, "chat_events", *range(LETTERS))
    target = room.queue(to or "chat_events")
    command = [*COMMAND, "--url", url, *(["--to", to] if to else [])]
    with subprocess.Popen(
        command, cwd=tmp_path, env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            eventually(lambda: target.stats().ready >= 10, 60)
        finally:
            process.kill()
    assert 10 <= target.stats().ready < LETTERS
    result = DeadLetters(room).replay(Filter(), to=to)
    assert result.already + result.done == LETTERS
    assert result.already > 0
    assert sorted(bodies(room, target.name)) == list(range(LETTERS))
