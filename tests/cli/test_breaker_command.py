"""`postroom breaker`, run as people run it: as a process, on a store that others use too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import postroom
from postroom.breaker import Breaker
from postroom.errors import BreakerOpen
from postroom.standing import State
from tests.cli.test_config_command import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(f'url = "sqlite:///{tmp_path}/jobs.db"')
    return shell


def test_a_breaker_is_listed_opened_and_closed(shell: Shell) -> None:
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        with Breaker("psp", room=room):
            pass
        listed = shell.run("breaker", "ls").stdout.splitlines()
        assert [line.split()[:2] for line in listed] == [["breaker", "state"], ["psp", "closed"]]

        guard = Breaker("psp", room=room)
        with guard:
            pass
        guard.failed("no answer")
        assert shell.run("breaker", "ls").stdout.splitlines()[1].split()[:4] == ["psp", "closed", "1", ".x"]

        shell.run("breaker", "open", "psp", "--reason", "maintenance")
        with pytest.raises(BreakerOpen, match="maintenance"), Breaker("psp", room=room):
            pytest.fail("it was called")
        shown = json.loads(shell.run("breaker", "ls", "--json").stdout)["psp"]
        assert (shown["state"], shown["forced"], shown["reason"]) == ("open", True, "maintenance")

        shell.run("breaker", "close", "psp", "-u", f"sqlite:///{shell.folder}/jobs.db")
        assert Breaker("psp", room=room).state is State.CLOSED
        rows = shell.run("breaker", "history", "psp").stdout.splitlines()
        assert [row.split()[2:5] for row in rows[1:]] == [
            ["psp", "closed", "open"],
            ["psp", "open", "closed"],
        ]
        assert json.loads(shell.run("breaker", "history", "other", "--json").stdout) == []


def test_closing_what_is_not_there_is_not_found(shell: Shell) -> None:
    assert "no shared breaker" in shell.run("breaker", "close", "psp", code=3).stderr


def test_a_store_that_is_not_there_has_its_exit_code(shell: Shell) -> None:
    shell.run("breaker", "ls", "--url", "redis://127.0.0.1:1/0", code=5)
