"""The marketplace with Celery's workers: every door tells the same of its dead letters."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from examples.marketplace import cases, celery_scenario, scenario
from examples.marketplace.cases import Case
from examples.marketplace.workers import Workers
from postroom.config import load
from postroom.deadletters import DeadLetters
from postroom.model import Failure, NewMessage
from postroom.room import Room
from tests.door.staging import room_on
from tests.examples.doors import NAMES, by_id, by_python, compare_the_command, run
from tests.redis import servers

pytestmark = [
    pytest.mark.timeout(600),
    # Celery gives every app the tasks of all others, also those that other tests made.
    pytest.mark.filterwarnings("ignore:Task name .* is already registered"),
]

CELERY = (sys.executable, "-m", "celery", "-A", "examples.marketplace.tasks")
ASK = ("--json", "--timeout", "60", "--destination", "fast@market")


def same_everywhere(room: Room, workers: Workers) -> list[str]:
    """Python, the command line and Celery's remote control, asked for each dead-letter name."""
    for name in NAMES:
        dead = DeadLetters(room, name)
        compare_the_command(workers, dead)
        told = json.loads(run(workers, *CELERY, "inspect", "dead", name, "100", *ASK))["fast@market"]
        assert (by_id(told["letters"]), told["groups"]) == by_python(dead)
        assert told["on_dead"] == dead.on_dead([letter["queue"] for letter in told["letters"]])
        assert told["on_dead"]
    return []


def test_the_scenario_on_sqlite(tmp_path: Path) -> None:
    said: list[str] = []
    url = f"sqlite:///{tmp_path}/market.db"
    assert celery_scenario.play(url, tmp_path, say=said.append, look=same_everywhere) == []
    assert said[-4:-1] == [
        "dlq_fast: 10 dead letters", "dlq_heavy: 6 dead letters", "replayed 6 after the fix, one first",
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
    assert {case.fate for case in played} == {"well", "flaky", *cases.CLASSES}
    routes = config.routes
    for case in played:
        if case.fate != "stranger":
            assert routes[celery_scenario.task_name(case)] == case.queue
    assert set(routes.values()) == set(config.declared)
