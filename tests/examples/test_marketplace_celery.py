"""The marketplace with Celery's workers: every door tells the same of its dead letters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.marketplace import cases, celery_scenario, scenario
from examples.marketplace.cases import Case
from examples.marketplace.workers import ROOT, Workers
from postroom.config import load
from postroom.deadletters import DeadLetters
from postroom.model import Failure, NewMessage
from postroom.room import Room
from tests.door.staging import room_on
from tests.redis import servers

pytestmark = [
    pytest.mark.timeout(600),
    # Celery gives every app the tasks of all others, also those that other tests made.
    pytest.mark.filterwarnings("ignore:Task name .* is already registered"),
]

CLI = (sys.executable, "-m", "postroom.cli")
CELERY = (sys.executable, "-m", "celery", "-A", "examples.marketplace.tasks")


def run(workers: Workers, *command: str) -> str:
    ran = subprocess.run(
        command, cwd=ROOT, env=workers.environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}\n{ran.stderr}"
    return ran.stdout


def by_id(letters: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {letter["id"]: letter for letter in letters}


def same_everywhere(room: Room, workers: Workers) -> list[str]:
    """Python, the command line and Celery's remote control, asked for each dead-letter name."""
    for name in ("dlq_fast", "dlq_heavy"):
        dead = DeadLetters(room, name)
        python = by_id([letter.as_dict() for letter in dead.find(limit=100).letters])
        groups = [group.as_dict() for group in dead.groups().groups]
        exported = run(workers, *CLI, "dead", "export", name)
        told = json.loads(
            run(workers, *CELERY, "inspect", "dead", name, "100", "--json", "--timeout", "60",
                "--destination", "fast@market")
        )["fast@market"]  # fmt: skip
        shown = {id: json.loads(run(workers, *CLI, "dead", "show", id, "--json")) for id in list(python)[:1]}
        listed = json.loads(run(workers, *CLI, "dead", "groups", name, "--json"))
        assert python
        assert by_id(told["letters"]) == python
        assert told["groups"] == groups
        assert sorted(json.loads(line)["id"] for line in exported.splitlines()) == sorted(python)
        assert all(python[id].items() <= letter.items() for id, letter in shown.items())
        assert [group["group"] for group in listed["groups"]] == [group["group"] for group in groups]
    return []


def test_the_scenario_on_sqlite(tmp_path: Path) -> None:
    said: list[str] = []
    url = f"sqlite:///{tmp_path}/market.db"
    assert celery_scenario.play(url, tmp_path, say=said.append, look=same_everywhere) == []
    assert said[-4:-1] == [
        "dlq_fast: 7 dead letters", "dlq_heavy: 3 dead letters", "replayed 6 after the fix, one first",
    ]  # fmt: skip


def test_the_scenario_on_redis(tmp_path: Path) -> None:
    with servers.single() as server:
        assert celery_scenario.play(server.url(), tmp_path, say=lambda _: None, look=same_everywhere) == []


# ---- The judge ------------------------------------------------------------------------------------


def test_the_judge_finds_what_is_wrong(tmp_path: Path) -> None:
    with room_on() as room:
        letter = NewMessage(
            body=b'[[{"fate": "well"}], {}, {}]', kind="marketplace.pay_out", correlation_id="healthy",
            failure=Failure(type="ValueError", text="no"),
        )  # fmt: skip
        room.queue("heavy_payouts").put(letter)
        room.queue("heavy_payouts").put(
            NewMessage(body=b"[[], {}, {}]", kind="marketplace.pay_out", correlation_id="wrong",
                       failure=Failure(type="Expired"))
        )  # fmt: skip
        sent = {
            "healthy": Case("heavy_payouts", "well"),
            "undone": Case("heavy_payouts", "flaky"),
            "alive": Case("heavy_payouts", "poison"),
            "wrong": Case("heavy_payouts", "poison"),
        }
        wrong = list(celery_scenario._judge(room, sent, tmp_path / "notes"))
    assert [line.partition(" is ")[0] for line in wrong] == [
        "well task healthy of heavy_payouts", "flaky task undone of heavy_payouts",
        "poison task alive of heavy_payouts", "poison task wrong",
    ]  # fmt: skip


def test_every_queue_of_the_matrix_has_its_task_and_its_poison() -> None:
    config = load(scenario.MATRIX, environ={})
    played = celery_scenario.everyday(config, 6) + cases.killing(20)
    assert {case.fate for case in played} == {"well", "flaky", *celery_scenario.CLASSES}
    routes = config.routes
    for case in played:
        if case.fate != "stranger":
            assert routes[celery_scenario.task_name(case)] == case.queue
    assert set(routes.values()) == set(config.declared)
