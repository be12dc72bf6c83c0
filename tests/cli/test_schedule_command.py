"""`postroom schedule`, run as a process against a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import postroom
import postroom.config
from postroom.keeper import Keeper
from tests.cli.test_config_command import Shell

TABLES = """
url = "sqlite:///jobs.db"

[schedule.nightly]
cron = "30 2 * * *"
timezone = "Europe/Berlin"
queue = "reports"
kind = "report"

[schedule.often]
every = "15m"
queue = "reports"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(TABLES)
    return shell


def test_ls_tells_all_schedules(shell: Shell) -> None:
    header, nightly, often = shell.run("schedule", "ls").stdout.splitlines()
    assert header.split() == ["schedule", "when", "queue", "next", "last", "state"]
    assert nightly.startswith("nightly   30 2 * * * (Europe/Berlin)  reports")
    assert nightly.endswith(" on")
    assert "every 15m" in often


def test_a_pause_is_told_and_ends(shell: Shell) -> None:
    shell.run("schedule", "pause", "nightly", "--reason", "the warehouse moves")
    assert "paused: the warehouse moves" in shell.run("schedule", "ls").stdout
    found = {each["name"]: each for each in json.loads(shell.run("schedule", "ls", "--json").stdout)}
    assert (found["nightly"]["paused"], found["nightly"]["next_slot"]) == (True, None)
    assert found["often"]["next_slot"] % 900_000 == 0
    assert "next due" in shell.run("schedule", "resume", "nightly").stderr
    assert "paused" not in shell.run("schedule", "ls").stdout


def test_run_now_prints_the_id_of_the_message(shell: Shell) -> None:
    id = shell.run("schedule", "run-now", "nightly").stdout.strip()
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        assert room.queue("reports").get(id).message.kind == "report"


def test_a_schedule_of_another_configuration_is_listed_too(shell: Shell) -> None:
    config = postroom.config.load(shell.folder / "postroom.toml", environ={})
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db", config=config) as room:
        keeper = Keeper(room)
        keeper.tick()
        keeper.stop()
    shell.write('url = "sqlite:///jobs.db"')
    assert shell.run("schedule", "ls").stdout.count("not in this configuration") == 2
    shell.run("schedule", "run-now", "often")


def test_an_unknown_schedule_is_not_found(shell: Shell) -> None:
    assert "nobody" in shell.run("schedule", "pause", "nobody", code=3).stderr


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('cron = "61 * * * *"\nqueue = "q"', "[schedule.it] cron: '61 * * * *' is not a cron expression"),
        ('evry = "1h"\nqueue = "q"', "[schedule.it] evry: unknown setting; did you mean every?"),
        ('every = "1h"\nqueue = "q"\npriority = "vip"', "[schedule.it] priority: 'vip' is not one of"),
        ('every = "1h"', "[schedule.it] "),
    ],
)
def test_config_check_finds_what_is_wrong(shell: Shell, table: str, complaint: str) -> None:
    shell.write(f"[schedule.it]\n{table}\n")
    assert complaint in shell.run("config", "check", code=1).stderr


def test_config_show_tells_where_a_schedule_comes_from(shell: Shell) -> None:
    lines = shell.run("config", "show").stdout.splitlines()
    (cron,) = [line for line in lines if line.startswith("schedule.nightly.cron")]
    assert cron.split("  ")[-1].strip() == "postroom.toml [schedule.nightly]"
    shown = json.loads(shell.run("config", "show", "--json").stdout)["schedule"]["often"]
    assert shown["every"] == {"value": "15m", "origin": "postroom.toml [schedule.often]"}
