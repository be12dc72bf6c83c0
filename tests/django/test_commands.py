"""`manage.py dead_letters` and `manage.py replay_task`, in a Django project of one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.deadletters import DeadLetters
from postroom.room import Room
from tests.redis import servers

pytestmark = pytest.mark.timeout(400)

MANAGE = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(INSTALLED_APPS=["postroom.django"], POSTROOM_URL={url!r}, USE_TZ=True)
execute_from_command_line(sys.argv)
"""


@pytest.fixture(scope="module")
def redis_server() -> Iterator[servers.Server]:
    with servers.single() as server:
        yield server


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"postroom+sqlite:///{tmp_path}/jobs.db"
    if request.param == "redis":
        server: servers.Server = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        url = f"postroom+{server.url()}"
    (tmp_path / "manage.py").write_text(MANAGE.format(url=url), encoding="utf-8")
    return url


@pytest.fixture
def room(url: str) -> Iterator[Room]:
    with postroom.open(url.removeprefix("postroom+")) as opened:
        yield opened


def manage(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("POSTROOM_")}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=folder, env=environ, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


def kill_one(room: Room, task: str = "task-1") -> str:
    put = room.queue("fast").put({"order": 1}, kind="shop.pay", correlation_id=task)
    delivery = room.queue("fast").claim(timeout=0)
    assert delivery is not None
    delivery.bury(ValueError("no customer"))
    return put.id


def test_it_lists_what_python_finds(room: Room, tmp_path: Path) -> None:
    kill_one(room)
    ran = manage(tmp_path, "dead_letters", "--json")
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [
        letter.as_dict() for letter in DeadLetters(room).find().letters
    ]
    (line,) = manage(tmp_path, "dead_letters", "fast", "--where", "class=exception").stdout.splitlines()
    assert "shop.pay" in line
    assert "ValueError: no customer" in line
    assert manage(tmp_path, "dead_letters", "--where", "class=timeout").stdout == ""


def test_it_replays_by_message_or_task_here_or_there(room: Room, tmp_path: Path) -> None:
    first = kill_one(room)
    ran = manage(tmp_path, "replay_task", first)
    assert (ran.returncode, ran.stdout.startswith(f"replayed {first} as ")) == (0, True)
    assert room.engine.stats("fast").ready == 1
    ran = manage(tmp_path, "replay_task", first)
    assert ran.returncode == 1
    assert "was replayed before; --again does so once more" in ran.stderr
    room.queue("fast").purge()
    kill_one(room, "task-2")
    room.queue("slow").put("makes the queue")
    ran = manage(tmp_path, "replay_task", "task-2", "--queue", "slow")
    assert ran.stdout.rstrip().endswith(" in slow")
    assert room.engine.stats("slow").ready == 2


def test_what_is_wrong_is_one_line(room: Room, tmp_path: Path) -> None:
    ran = manage(tmp_path, "replay_task", "nobody")
    assert (ran.returncode, ran.stderr) == (1, "CommandError: there is no dead letter nobody\n")
    kill_one(room)
    assert "'elsewhere' is neither a queue" in manage(tmp_path, "dead_letters", "elsewhere").stderr
