"""`postroom celery worker --role …` starts a Celery worker with exactly what the matrix says."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest

from postroom.room import Room
from tests.celery import test_matrix, workers
from tests.celery.workers import REPO, Shop, WorkerProcess

pytestmark = pytest.mark.timeout(600)

APP, MATRIX = test_matrix.APP, test_matrix.MATRIX
COMMAND = [sys.executable, "-m", "postroom.cli", "celery", "worker"]


on_redis = pytest.mark.parametrize("broker", ["redis"], indirect=True)
on_sqlite = pytest.mark.parametrize("broker", ["sqlite"], indirect=True)


def start(shop: Shop, role: str, *more: str) -> WorkerProcess:
    name = f"{role}-{uuid.uuid4().hex[:6]}"
    command = [*COMMAND, "--role", role, "--app", f"{APP}:app", "-n", f"{name}@shop", "-l", "INFO", *more]
    worker = WorkerProcess(command, shop.environ, shop.folder / f"{name}.log", name)
    shop.workers.append(worker)
    return worker.until_ready()


def asked(shop: Shop, worker: WorkerProcess, what: str) -> Any:
    me = f"{worker.name}@shop"
    return json.loads(shop.celery("inspect", what, "--json", "--timeout", "30", "--destination", me))[me]


@pytest.mark.parametrize(
    ("broker", "pool"), [("redis", "prefork"), ("sqlite", "threads")], indirect=["broker"]
)
def test_its_pool_queues_and_prefetch_are_the_roles(shop: Shop, room: Room, pool: str) -> None:
    worker = start(shop, "both", "--pool", pool, "--metrics-port", "0", "--json")
    stats = asked(shop, worker, "stats")
    assert (stats["pool"]["max-concurrency"], stats["prefetch_count"]) == (6, 6)
    assert [queue["name"] for queue in asked(shop, worker, "active_queues")] == ["work", "few"]
    (seen,) = shop.until(room.workers)
    assert (seen.role, seen.queues, seen.concurrency) == ("both", ("work", "few"), 6)
    (port,) = re.findall(r'"metrics.served".*"port": (\d+)', worker.log())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=workers.PATIENCE) as answer:
        assert b'postroom_workers{state="live"} 1.0' in answer.read()
    assert worker.stop() == 0
    assert room.workers() == []


def test_a_worker_that_cannot_serve_its_metrics_does_not_start(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*COMMAND, "--app", f"{APP}:app", "--pool", "solo", "--metrics-port", port]
        ran = subprocess.run(
            command, cwd=workers.REPO, env=shop.environ, capture_output=True, text=True, check=False,
            timeout=workers.PATIENCE,
        )  # fmt: skip
    assert ran.returncode != 0
    assert f"cannot listen at 127.0.0.1:{port}" in ran.stdout + ran.stderr


@on_redis
def test_a_prefetch_is_held_beside_what_is_at_work(shop: Shop) -> None:
    stats = asked(shop, start(shop, "holding", "--pool", "threads"), "stats")
    assert (stats["pool"]["max-concurrency"], stats["prefetch_count"]) == (2, 5)


def send(shop: Shop, *messages: tuple[str, int]) -> None:
    """A note for each queue, with its priority; its label is both."""
    sent = [([f"{queue}{priority}"], queue, priority) for queue, priority in messages]
    code = f"for args, queue, priority in {sent!r}: note.apply_async(args, queue=queue, priority=priority)"
    shop.python(code)


def test_weights_are_shares(shop: Shop) -> None:
    send(shop, *[(queue, 0) for queue in "ab" for _ in range(8)])
    start(shop, "unfair", "--pool", "solo")
    shop.until(lambda: len(shop.lines("note")) == 16)
    for first in (0, 4):
        assert sorted(shop.labels("note")[first : first + 4]) == ["a0", "a0", "a0", "b0"]


@on_redis
def test_the_queue_with_the_most_urgent_message_is_first(shop: Shop) -> None:
    send(shop, ("a", 1), ("a", 9), ("b", 5), ("b", 3), ("b", 8))
    start(shop, "urgent", "--pool", "solo")
    shop.until(lambda: len(shop.lines("note")) == 5)
    assert shop.labels("note") == ["a9", "b8", "b5", "b3", "a1"]


def test_a_stop_waits_no_longer_than_the_role_says(shop: Shop, room: Room, tmp_path: Path) -> None:
    worker = start(shop, "holding", "--pool", "prefork")
    shop.python(f"hold.delay('a', {str(tmp_path / 'never')!r})")
    shop.until(lambda: shop.lines("begin", "a"))
    worker.stop()
    assert not shop.lines("end")
    stats = room.engine.stats("few")
    assert (stats.ready + stats.scheduled + stats.processing, stats.dead) == (1, 0)


@on_sqlite
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--role", "nobody", "--app", APP],
            "role 'nobody': unknown; there is both, holding, unfair, urgent",
        ),
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


@on_redis
def test_it_can_log_json(shop: Shop) -> None:
    worker = start(shop, "both", "--pool", "solo", "--json")
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.log().splitlines() if line.startswith("{")]
    assert any(line["message"].endswith(" ready.") for line in lines)
