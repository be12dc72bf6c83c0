"""`postroom celery worker --role …` starts a Celery worker with exactly what the matrix says."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.room import Room
from tests.celery import workers
from tests.celery.test_matrix import MATRIX
from tests.celery.workers import REPO, Shop, WorkerProcess

pytestmark = pytest.mark.timeout(600)

APP = "tests.celery.matrix_app"
COMMAND = [sys.executable, "-m", "postroom.cli", "celery", "worker"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(workers, "APP", APP)
    (tmp_path / "postroom.toml").write_text(MATRIX, encoding="utf-8")
    with Shop(f"postroom+sqlite:///{tmp_path}/jobs.db", tmp_path) as opened:
        opened.environ["SHOP_MATRIX"] = str(tmp_path / "postroom.toml")
        yield opened


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db", declare=False) as opened:
        yield opened


def start(shop: Shop, role: str, *more: str) -> WorkerProcess:
    name = f"{role}-{uuid.uuid4().hex[:6]}"
    command = [*COMMAND, "--role", role, "--app", f"{APP}:app", "-n", f"{name}@shop", "-l", "INFO", *more]
    worker = WorkerProcess(command, shop.environ, shop.folder / f"{name}.log", name)
    shop.workers.append(worker)
    return worker.until_ready()


def asked(shop: Shop, worker: WorkerProcess, what: str) -> Any:
    me = f"{worker.name}@shop"
    return json.loads(shop.celery("inspect", what, "--json", "--timeout", "30", "--destination", me))[me]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_its_pool_queues_and_prefetch_are_the_roles(shop: Shop, pool: str) -> None:
    worker = start(shop, "both", "--pool", pool)
    stats = asked(shop, worker, "stats")
    assert (stats["pool"]["max-concurrency"], stats["prefetch_count"]) == (6, 6)
    assert [queue["name"] for queue in asked(shop, worker, "active_queues")] == ["work", "few"]
    assert worker.stop() == 0


def test_a_prefetch_is_held_beside_what_is_at_work(shop: Shop) -> None:
    stats = asked(shop, start(shop, "holding", "--pool", "threads"), "stats")
    assert (stats["pool"]["max-concurrency"], stats["prefetch_count"]) == (2, 5)


def test_a_stop_waits_no_longer_than_the_role_says(shop: Shop, room: Room, tmp_path: Path) -> None:
    worker = start(shop, "holding", "--pool", "prefork")
    shop.python(f"hold.delay('a', {str(tmp_path / 'never')!r})")
    shop.until(lambda: shop.lines("begin", "a"))
    worker.stop()
    assert not shop.lines("end")
    stats = room.engine.stats("few")
    assert (stats.ready + stats.scheduled + stats.processing, stats.dead) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--role", "unfair", "--app", APP], "[roles.unfair] order: a Celery worker knows"),
        (["--role", "nobody", "--app", APP], "role 'nobody': unknown; there is both, holding, unfair"),
        (["--role", "both", "--app", "nowhere.at_all"], "--app: there is no Celery app in 'nowhere.at_all'"),
    ],
)
def test_what_makes_no_sense_is_one_line(shop: Shop, arguments: list[str], complaint: str) -> None:
    ran = subprocess.run(
        [*COMMAND, *arguments], cwd=REPO, env=shop.environ, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert ran.returncode in (1, 2)
    assert complaint in ran.stderr
    assert "Traceback" not in ran.stderr


def test_it_can_log_json(shop: Shop) -> None:
    worker = start(shop, "both", "--pool", "solo", "--json")
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.log().splitlines() if line.startswith("{")]
    assert any(line["message"].endswith(" ready.") for line in lines)
