"""`postroom worker --role`: the settings of the file, the handlers of the app, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postroom
from postroom.room import Room
from tests.cli.shell import Shell
from tests.door.staging import eventually

PATIENCE = 60.0

MATRIX = """
url = "sqlite:///jobs.db"
app = "shop.jobs:handlers"

[roles.fast]
queues = ["small", "other"]
concurrency = 6
prefetch = 0
stop_timeout = "1m"

[roles.all]
queues = ["small", "other", "nobody"]

[queues.small]
concurrency = 2
visibility_timeout = "5m"
retries = 4
dead_letter = "dlq_small"

[queues.other]
ack_timeout = "off"
[queues.nobody]
"""

#: Every handler writes a line when it begins, waits until there is a file "go", and writes another.
JOBS = """
import os, pathlib, time
import postroom

def note(line):
    with open("notes", "a") as notes:
        notes.write(line + "\\n")

def work(delivery):
    note(f"begin {delivery.queue} {delivery.body}")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    note(f"end {delivery.queue} {delivery.body}")

handlers = postroom.Handlers({"small": work, "other": work})
plain = {"small": work, "other": work, "nobody": work}
number = 5
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(MATRIX)
    shell.write(JOBS, "shop/jobs.py")
    shell.write("rate = 1\nrate / 0\n", "shop/broken.py")
    shell.write("x = (\n", "shop/half.py")
    return shell


@pytest.fixture
def room(shell: Shell) -> Iterator[Room]:
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        yield room


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    """Start the command; it is ended with the test, whatever happens."""
    running: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        running.append(shell.start(*args))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(PATIENCE)


def notes(shell: Shell) -> list[str]:
    file = shell.folder / "notes"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def begun(shell: Shell, queue: str) -> int:
    return sum(line.startswith(f"begin {queue} ") for line in notes(shell))


def let_go(shell: Shell) -> None:
    shell.write("", "go")


def test_it_works_with_exactly_the_settings_of_its_role(shell: Shell, room: Room, start: Start) -> None:
    for name in ("small", "other", "nobody"):
        room.queue(name).put_many(range(10))
    start("worker", "--role", "fast", "--json")
    eventually(lambda: (begun(shell, "small"), begun(shell, "other")) == (2, 4), PATIENCE)
    stats = {name: room.queue(name).stats() for name in ("small", "other", "nobody")}
    assert {name: stat.processing for name, stat in stats.items()} == {"small": 2, "other": 4, "nobody": 0}
    (info,) = room.engine.queues(["small"])
    assert info.policy == postroom.Policy(ack_timeout="5m", retries=4, dead_letter="dlq_small")
    let_go(shell)
    eventually(lambda: room.queue("small").stats().counters["acked"] == 10, PATIENCE)
    eventually(lambda: room.queue("other").stats().counters["acked"] == 10, PATIENCE)
    started = json.loads(shell.log().splitlines()[0])
    assert started["event"] == "worker.started"
    assert started["worker"].endswith("/fast")
    assert "6 hands on small (2), other" in started["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(shell: Shell, room: Room, start: Start, number: signal.Signals) -> None:
    queue = room.queue("small")
    queue.put_many(range(5))
    process = start("worker", "--role", "fast")
    eventually(lambda: begun(shell, "small") == 2, PATIENCE)
    process.send_signal(number)
    eventually(lambda: room.engine.stats("small").processing <= 2, PATIENCE)
    assert process.poll() is None, "it waits for what runs"
    let_go(shell)
    assert process.wait(PATIENCE) == 0, shell.log()
    stats = queue.stats()
    assert (stats.counters["acked"], stats.ready, stats.processing) == (2, 3, 0)
    assert shell.log().rstrip().endswith("stopped")


def test_a_second_signal_stops_it_at_once(shell: Shell, room: Room, start: Start) -> None:
    room.queue("small").put("x")
    process = start("worker", "--role", "fast")
    eventually(lambda: begun(shell, "small") == 1, PATIENCE)
    # Two different ones: two alike that are both on their way are one to the kernel.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, shell.log()
    assert room.queue("small").stats().processing == 1, "its lease brings it back"


def test_drain_ends_when_nothing_is_ready(shell: Shell, room: Room) -> None:
    let_go(shell)
    room.queue("small").put_many(range(5))
    shell.run("worker", "--role", "fast", "--drain")
    assert room.queue("small").stats().counters["acked"] == 5


def test_the_app_may_be_a_dict_and_may_be_named(shell: Shell, room: Room) -> None:
    let_go(shell)
    room.queue("nobody").put("x")
    shell.run("worker", "--role", "all", "--drain", "--app", "shop.jobs:plain")
    assert room.queue("nobody").stats().counters["acked"] == 1


def test_it_serves_its_metrics(shell: Shell, room: Room, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = shell.run("worker", "--role", "fast", "--metrics-port", port, code=1)
        assert f"cannot listen at 127.0.0.1:{port}" in refused.stderr
    start("worker", "--role", "fast", "--metrics-port", "0", "--json")

    def served() -> list[int]:
        lines = (json.loads(line) for line in shell.log().splitlines(keepends=True) if line.endswith("\n"))
        return [line["port"] for line in lines if line["event"] == "metrics.served"]

    eventually(served, PATIENCE)
    eventually(room.workers, PATIENCE)
    url = f"http://127.0.0.1:{served()[0]}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        assert b'postroom_workers{state="live"} 1.0' in answer.read()


def test_ls_shows_who_works_until_it_stops(shell: Shell, room: Room, start: Start) -> None:
    room.queue("small").put("x")
    process = start("worker", "--role", "fast")
    eventually(room.workers, PATIENCE)
    (worker,) = json.loads(shell.run("worker", "ls", "--json").stdout)
    assert worker["name"].endswith(f":{process.pid}/fast")
    assert (worker["role"], worker["queues"], worker["lost"]) == ("fast", ["small", "other"], False)
    head, row = shell.run("worker", "ls").stdout.splitlines()
    columns = ["worker", "id", "state", "role", "queues", "busy", "holds", "seen", "for", "release"]
    assert head.split() == columns
    assert row.split()[:5] == [worker["name"], worker["id"], "live", "fast", "small,"]
    let_go(shell)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, shell.log()
    assert json.loads(shell.run("worker", "ls", "--json").stdout) == []


def test_a_worker_is_told_to_be_quiet_and_to_stop(shell: Shell, room: Room, start: Start) -> None:
    process = start("worker", "--role", "fast")
    eventually(room.workers, PATIENCE)
    (worker,) = room.workers()
    said = shell.run("worker", "quiet", worker.name, "--reason", "deploy").stderr
    assert said.strip() == f"told {worker.name} to be quiet; it hears that within 10 s"
    eventually(lambda: room.workers()[0].state == "quiet", PATIENCE)
    assert " quiet " in shell.run("worker", "ls").stdout
    assert json.loads(shell.run("worker", "stop", worker.id, "--json").stdout)["told"] == "stop"
    assert process.wait(PATIENCE) == 0, shell.log()
    assert "is here: it has stopped" in shell.run("worker", "stop", worker.id, code=3).stderr


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (["--role", "slow"], 1, "role 'slow': unknown; there is fast, all"),
        (["--role", "all"], 2, "role 'all': there is no handler for nobody"),
        (
            ["--role", "fast", "--app", "nowhere:x"],
            1,
            "app: nowhere cannot be imported: No module",
        ),
        (["--role", "fast", "--app", "shop.broken:x"], 1, "shop/broken.py:2: ZeroDivisionError: division by"),
        (
            ["--role", "fast", "--app", "shop.half:x"],
            1,
            "'(' was never closed (half.py, line 1)",
        ),
        (["--role", "fast", "--app", "shop.jobs:nope"], 1, "app: module 'shop.jobs' has no attribute 'nope'"),
        (["--role", "fast", "--app", "shop.jobs:number"], 1, "app: shop.jobs:number is neither a dict of"),
        (["--role", "fast", "--app", "shop.jobs"], 1, "app: say where the handlers are"),
        ([], 2, "Missing option '--role'"),
    ],
)
def test_what_cannot_work_is_one_line(shell: Shell, args: list[str], code: int, line: str) -> None:
    assert line in shell.run("worker", *args, code=code).stderr
