"""The doors to the marketplace's dead letters, asked while its workers run: do they tell the same?"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from examples.marketplace.workers import ROOT, Workers
from postroom.deadletters import DeadLetters

CLI = (sys.executable, "-m", "postroom.cli")
NAMES = ("dlq_fast", "dlq_heavy")


def run(workers: Workers, *command: str) -> str:
    ran = subprocess.run(
        command, cwd=ROOT, env=workers.environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}\n{ran.stderr}"
    return ran.stdout


def by_id(letters: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {letter["id"]: letter for letter in letters}


def by_python(dead: DeadLetters) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The letters by id, and the groups."""
    letters = by_id([letter.as_dict() for letter in dead.find(limit=100).letters])
    assert letters
    return letters, [group.as_dict() for group in dead.groups().groups]


def compare_the_command(workers: Workers, dead: DeadLetters) -> None:
    """Python and the command line, asked for one dead-letter name."""
    name = str(dead.name)
    letters, groups = by_python(dead)
    listed = json.loads(run(workers, *CLI, "dead", "ls", name, "--limit", "100", "--json"))
    assert by_id(listed["letters"]) == letters
    assert json.loads(run(workers, *CLI, "dead", "groups", name, "--json"))["groups"] == groups
    exported = [json.loads(line) for line in run(workers, *CLI, "dead", "export", name).splitlines()]
    assert all(letters[line["id"]].items() <= line.items() for line in exported)
    assert len(exported) == len(letters)
    first = next(iter(letters))
    shown = json.loads(run(workers, *CLI, "dead", "show", first, "--json"))
    assert shown == letters[first] | {"on_dead": dead.on_dead()[letters[first]["queue"]]}
