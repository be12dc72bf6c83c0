"""The marketplace plays its scenario on SQLite and Redis, and its judge can tell right from wrong."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postroom
from examples.marketplace import cases, judge, scenario
from examples.marketplace.cases import Case
from examples.marketplace.payouts import Payouts
from examples.marketplace.workers import Workers
from postroom.config import load
from postroom.deadletters import DeadLetters, Groups
from postroom.room import Room
from tests.cli.shell import CLEAN, COMMAND
from tests.docs.blocks import commands, of
from tests.door.staging import PATIENCE, eventually, room_on
from tests.examples.doors import NAMES, compare_the_command
from tests.redis import servers

REPO = Path(__file__).parents[2]


def silently(text: str) -> None:
    """A scenario that is not watched."""


def same_everywhere(room: Room, workers: Workers) -> list[str]:
    for name in NAMES:
        compare_the_command(workers, DeadLetters(room, name))
    return []


@pytest.mark.timeout(600)
def test_the_scenario_on_sqlite(tmp_path: Path) -> None:
    said: list[str] = []
    url = f"sqlite:///{tmp_path}/market.db"
    assert scenario.play(url, tmp_path, say=said.append, look=same_everywhere) == []
    assert said[-3:] == [
        "dlq_fast: 10 dead letters", "dlq_heavy: 6 dead letters", "replayed 6 after the fix, one first",
    ]  # fmt: skip
    assert [line.split()[0] for line in said[-10:-3]] == ["queue", *sorted(cases.WORK)], (
        "the table of the SLA"
    )


@pytest.mark.timeout(600)
def test_the_scenario_on_redis(tmp_path: Path) -> None:
    with servers.single() as server:
        assert scenario.play(server.url(), tmp_path, kills=1, say=silently, look=same_everywhere) == []


# ---- The judge ------------------------------------------------------------------------------------


@pytest.fixture
def room() -> Any:
    with room_on() as room:
        room.queue("q").put("makes the queue")
        room.queue("q").purge()
        yield room


def done(*keys: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"what": "done", "queue": queue, "id": id} for queue, id in keys]


def put_dead(room: Room, failure: str, attempts: int = 3) -> tuple[str, str]:
    put = room.queue("q").put("x", max_attempts=attempts)
    for _ in range(attempts):
        delivery = room.queue("q").claim(timeout=0)
        assert delivery is not None
        delivery.fail(type(failure, (Exception,), {})("no"), after=0)
    return "q", put.id


def test_it_passes_what_is_as_it_has_to_be(room: Room) -> None:
    key = put_dead(room, "ValueError")
    put = {key: Case("q", "poison"), ("q", "1"): Case("q", "well"), ("q", "2"): Case("q", "flaky")}
    assert judge.verdict(room, put, done(("q", "1"), ("q", "2")), killed=0) == []
    assert judge.dead_letters(room) == {"dead": 1}


def test_it_finds_everything_that_is_not(room: Room) -> None:
    dead_well, other_error = put_dead(room, "ValueError"), put_dead(room, "KeyError")
    too_few, unknown = put_dead(room, "ValueError", attempts=2), put_dead(room, "ValueError")
    room.queue("q").put("left")
    put = {
        dead_well: Case("q", "well"),
        other_error: Case("q", "poison"),
        too_few: Case("q", "poison"),
        ("q", "1"): Case("q", "well"),
        ("q", "2"): Case("q", "poison"),
        ("q", "3"): Case("q", "killer"),
    }
    wrong = judge.verdict(room, put, done(dead_well), killed=2)
    expected = [
        "well message 1 of q was never done",
        f"{dead_well} is healthy, but dead",
        f"{unknown} is healthy, but dead",
        f"poison message {other_error[1]} of q should be dead of ValueError, not of KeyError: no",
        f"poison message {too_few[1]} of q had 2 attempts, not 3",
        "poison message 2 of q is not dead",
        "killer message 3 of q is not dead",
        "2 workers were killed, not 3",
        "q still holds 1 messages",
    ]
    assert len(wrong) == len(expected)
    for line in expected:
        assert [found for found in wrong if found.startswith(line)], (line, wrong)


def test_it_finds_poison_under_another_name_of_another_class_and_in_no_group(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, other = put_dead(room, "ValueError")[1], put_dead(room, "TimeoutError")[1]
    poison = Case("q", "poison")
    assert list(judge.misplaced(room, {right: poison})) == []
    wrong = list(judge.misplaced(room, {right: poison, other: poison, "lost": poison}))
    assert wrong == [
        f"poison message {other} of q is of class timeout",
        "poison message lost of q is not in dead",
    ]
    monkeypatch.setattr(DeadLetters, "groups", lambda self: Groups([], True))
    assert list(judge.misplaced(room, {right: poison})) == [
        f"poison message {right} of q is in no group of dead that counts it"
    ]


def test_a_tick_has_to_have_put_what_it_is_for(room: Room) -> None:
    put = {("beat", "1"): Case("beat", "well", {"puts": [["q", "kind"]]})}
    assert judge.verdict(room, put, done(("beat", "1"), ("q", "1")), killed=0) == []
    (wrong,) = judge.verdict(room, put, done(("beat", "1")), killed=0)
    assert wrong == "what tick 1 put into q was never done"


def test_it_finds_invoices_that_nobody_paid(room: Room, tmp_path: Path) -> None:
    payouts = Payouts(tmp_path)
    with payouts.open():
        payouts.ask_for(room, 2)
        wrong = list(payouts.wrong())
    assert [line.partition(":")[0] for line in wrong] == ["invoices charged never", "invoices paid never"]
    assert "INV-0001" in wrong[0]


# ---- What is played -------------------------------------------------------------------------------


def test_every_queue_of_the_matrix_has_healthy_flaky_and_poisonous_messages() -> None:
    config = load(scenario.MATRIX, environ={})
    played = cases.everyday(config, 20) + cases.late() + cases.killing(40)
    fates = {queue: {case.fate for case in played if case.queue == queue} for queue in config.declared}
    assert all(fates[queue] >= {"well", "flaky", "poison", "garbled"} for queue in cases.WORK)
    assert {*cases.WORK, "beat"} == set(config.declared)
    assert set.union(*fates.values()) == {"well", "flaky", *cases.FAILURES}
    assert cases.CLASSES.keys() == cases.FAILURES.keys()


def test_a_hurried_matrix_differs_only_in_its_waits(tmp_path: Path) -> None:
    real, hurried = load(scenario.MATRIX, environ={}), load(scenario.hurried(tmp_path), environ={})
    assert hurried.roles == real.roles
    for queue, policy in real.declared.items():
        quick, times = hurried.declared[queue], 1 if queue == "beat" else 1_000
        assert quick.backoff.unit * times == policy.backoff.unit
        lease = {"lease": policy.to_text()["lease"]} if queue == "heavy_payouts" else {}
        assert {**quick.to_text(), "backoff": "", **lease} == {**policy.to_text(), "backoff": ""}
    assert hurried.schedules.keys() == real.schedules.keys() == {"refresh_metrics"}


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    """In their order; the worker has a terminal of its own, and is stopped when the message is done."""
    url = f"sqlite:///{tmp_path}/market.db"
    environ = CLEAN | {"POSTROOM_URL": url}
    with ExitStack() as stack:
        for program, *args in commands(of("sh", "examples/marketplace/README.md")[0].text):
            if program == "export":
                name, _, value = args[0].partition("=")
                environ[name] = value
                continue
            process = subprocess.Popen([*COMMAND, *args], cwd=REPO, env=environ)
            if args[0] != "worker":
                assert process.wait(PATIENCE) == 0, args
                continue
            worker = stack.enter_context(process)
            stack.callback(process.terminate)
        with postroom.open(url) as room:
            eventually(lambda: room.engine.stats("chat_events").counters["acked"] == 1)
    assert worker.returncode == 0


def test_the_readme_names_what_is_there() -> None:
    page = (REPO / "examples" / "marketplace" / "README.md").read_text(encoding="utf-8")
    for file in re.findall(r"`(\w+\.(?:py|toml|conf))`", page):
        assert (REPO / "examples" / "marketplace" / file).exists(), file
