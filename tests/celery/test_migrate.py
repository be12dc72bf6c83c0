"""`postroom celery migrate`: from a real Redis that real Celery apps filled through kombu's own transport."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Exchange, Queue, pools

import postroom
from postroom.celery.migrate import look
from postroom.celery.stock import StockRedis
from postroom.errors import EngineUnavailable, InvalidInput, MissingExtra
from postroom.model import State
from postroom.room import Room
from tests.celery.workers import PATIENCE, REPO, Shop, wait_until
from tests.redis import servers

pytestmark = pytest.mark.timeout(600)

COMMAND = [sys.executable, "-m", "postroom.cli", "celery", "migrate"]
NOTE = "tests.celery.shop.note"


class Old:
    """An app on kombu's own transport, and the Redis behind it."""

    def __init__(self, server: servers.Server, **options: Any) -> None:
        self.url = server.url()
        self.app = Celery("old", broker=self.url, set_as_current=False)
        self.app.conf.broker_transport_options = options
        self.client = redis.Redis(port=server.port)

    def send(self, *labels: str, **options: Any) -> None:
        for label in labels:
            self.app.send_task(NOTE, args=[label], **options)

    def waiting(self, queue: str = "celery") -> int:
        """In all its lists."""
        lists = [queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9))]
        return sum(self.client.llen(key) for key in lists)

    def close(self) -> None:
        self.app.close()
        pools.reset()  # else the next app on this Redis takes its queues for declared
        self.client.close()


@pytest.fixture
def old(redis_server: servers.Server) -> Iterator[Old]:
    opened = Old(redis_server)
    yield opened
    opened.close()


@pytest.fixture(params=["redis", "sqlite"])
def to(request: pytest.FixtureRequest, redis_server: servers.Server, tmp_path: Path) -> str:
    """The new store: the same Redis, as most will have it, or a file."""
    return (
        f"postroom+{redis_server.url()}"
        if request.param == "redis"
        else f"postroom+sqlite:///{tmp_path}/n.db"
    )


@pytest.fixture
def room(to: str) -> Iterator[Room]:
    with postroom.open(to.removeprefix("postroom+")) as opened:
        yield opened


def migrate(old: Old, to: str, *args: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [*COMMAND, "--from", old.url, "--to", to, *args], cwd=REPO, env={**os.environ, **environ},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr or code < 0, ran.stderr
    return ran


def finish(room: Room, queue: str = "celery") -> list[str]:
    """Do and acknowledge everything that is ready, as a worker would: the labels."""
    done: list[str] = []
    while deliveries := room.queue(queue).claim_many(500, timeout=0):
        for delivery in deliveries:
            done.append(json.loads(delivery.message.body)[0][0])
            delivery.ack()
    return done


# ---- what moves ---------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing_and_says_what_it_knows(old: Old, to: str, room: Room) -> None:
    old.send("a", "b", "c")
    old.send("urgent?", queue="emails", priority=6)
    old.client.rpush("shopping", "milk")
    before = {key: old.client.dump(key) for key in old.client.keys("[!p]*")}
    ran = migrate(old, to, "--dry-run")
    assert [line.split() for line in ran.stdout.splitlines()] == [
        ["queue", "priority", "waiting", "holds", "moves"],
        ["celery", "0", "3", "tasks", "yes"],
        ["emails", "6", "1", "tasks", "yes"],
    ]
    assert "0 is the most urgent" in ran.stderr
    assert "none of kombu's, left alone: shopping" in ran.stderr
    assert "exchanges with bindings, which the app declares again: celery, emails" in ran.stderr
    plan = json.loads(migrate(old, to, "--dry-run", "--json").stdout)
    assert (plan["unknown"], plan["unacked"], plan["workers"]) == (["shopping"], 0, 0)
    assert {key: old.client.dump(key) for key in old.client.keys("[!p]*")} == before
    assert room.queues() == []


def test_without_a_yes_nothing_moves(old: Old, to: str) -> None:
    old.send("a")
    assert "--yes" in migrate(old, to, code=2).stderr
    assert old.waiting() == 1


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, *args: str) -> None:
        self._ours, its = pty.openpty()
        environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [*COMMAND, *args],
            cwd=REPO,
            env=environ,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        self._shown = b""

    def read_until(self, words: str) -> str:
        """All that was shown, when these words have come."""
        while words not in (text := re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._shown.decode())):
            assert select.select([self._ours], [], [], PATIENCE)[0], text
            self._shown += os.read(self._ours, 65_536)
        return text

    def answer(self, word: str) -> None:
        os.write(self._ours, f"{word}\n".encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_on_a_terminal_it_asks_and_a_bar_says_how_far_it_is(old: Old, to: str, room: Room) -> None:
    labels = [f"task {n}" for n in range(120)]
    old.send(*labels)
    terminal = Terminal("--from", old.url, "--to", to)
    try:
        assert "moving" not in terminal.read_until("move 120 messages? [y/N]")
        assert old.waiting() == 120
        terminal.answer("y")
        assert "120/120" in terminal.read_until("moved: 120")
        assert re.search("moving ━+ +120/120", terminal.read_until("120/120"))
        assert terminal.process.wait(PATIENCE) == 0
    finally:
        terminal.close()
    assert finish(room) == labels


def test_everything_that_waits_runs_on_postroom_in_its_order_and_at_its_time(
    old: Old, to: str, tmp_path: Path
) -> None:
    """A real producer on the old transport, a real worker on the new one."""
    for priority in (9, 3, 0, 6):
        old.send(*(f"{priority}-{n}" for n in range(3)), priority=priority, queue="shop")
    old.send("later", countdown=3_600, queue="shop")
    old.send("soon", countdown=2, queue="shop")
    migrate(old, to, "--yes")
    assert old.waiting("shop") == 0
    options = {"priority_zero_is_highest": True}
    with Shop(to, tmp_path, broker_transport_options=options, worker_prefetch_multiplier=1) as shop:
        shop.worker("--pool", "solo")
        shop.until(lambda: len(shop.labels("note")) == 13)
        ran = [label for label in shop.labels("note") if label != "soon"]
        assert ran == [f"{priority}-{n}" for priority in (0, 3, 6, 9) for n in range(3)]
    with postroom.open(to.removeprefix("postroom+")) as room:
        (entry,) = room.queue("shop").find(State.SCHEDULED).entries
        assert entry.message.kind == NOTE
        assert json.loads(entry.message.body)[0] == ["later"]
        acts = postroom.audit.newest(room.engine, 10).acts
        assert [(act.event, act.queue, act.count) for act in acts] == [("migrate", "shop", 14)]


@pytest.mark.parametrize(
    ("priorities", "stored"),
    [("zero-is-highest", (255, 250, 246)), ("turned", (9, 4, 0)), ("same", (0, 5, 9))],
)
def test_priorities_become_what_was_asked_for(
    old: Old, tmp_path: Path, priorities: str, stored: tuple[int, ...]
) -> None:
    for priority in (0, 5, 9):
        old.send(str(priority), priority=priority)
    migrate(old, f"sqlite:///{tmp_path}/n.db", "--yes", "--priorities", priorities)
    with postroom.open(f"sqlite:///{tmp_path}/n.db") as room:
        found = {
            json.loads(entry.message.body)[0][0]: entry.message.priority
            for entry in room.queue("celery").find(State.READY).entries
        }
    assert found == dict(zip(("0", "5", "9"), stored, strict=True))


def test_only_what_is_asked_for_moves_and_other_keys_stay(old: Old, to: str, room: Room) -> None:
    old.send("a")
    old.send("b", queue="emails")
    with old.app.connection_for_write() as connection, connection.SimpleQueue("plain") as plain:
        plain.put({"no": "task"})
    old.client.lpush("12.reply.celery.pidbox", old.client.lindex("plain", 0) or b"")
    for key, value in {"celery-task-meta-1": "{}", "counter": "7"}.items():
        old.client.set(key, value)
    migrate(old, to, "--yes", "--queue", "emails")
    assert (old.waiting(), old.waiting("emails")) == (1, 0)
    migrate(old, to, "--yes")
    assert (old.waiting(), old.client.llen("plain"), old.client.llen("12.reply.celery.pidbox")) == (0, 1, 1)
    migrate(old, to, "--yes", "-q", "plain")
    assert old.client.llen("plain") == 0
    assert old.client.get("counter") == b"7"
    assert old.client.exists("celery-task-meta-1", "_kombu.binding.celery") == 2
    assert {name: room.queue(name).stats().ready for name in ("celery", "emails", "plain")} == {
        "celery": 1, "emails": 1, "plain": 1
    }  # fmt: skip


def test_a_key_prefix_is_respected(redis_server: servers.Server, to: str, room: Room) -> None:
    mine, theirs = Old(redis_server, global_keyprefix="mine:"), Old(redis_server)
    try:
        mine.send("a")
        theirs.send("b")
        migrate(mine, to, "--yes", "--prefix", "mine:")
        assert finish(room) == ["a"]
        assert theirs.waiting() == 1
    finally:
        mine.close()
        theirs.close()


# ---- another separator ---------------------------------------------------------------------------

#: As Celery's documentation has it for priorities.
BY_COLON = {"sep": ":", "priority_steps": list(range(10)), "queue_order_strategy": "priority"}


@pytest.fixture
def by_colon(redis_server: servers.Server) -> Iterator[Old]:
    opened = Old(redis_server, **BY_COLON)
    yield opened
    opened.close()


def test_lists_with_another_separator_move_into_their_queue_with_their_priorities(
    by_colon: Old, to: str, room: Room
) -> None:
    for priority in (3, 0, 9):
        by_colon.send(str(priority), priority=priority)
    assert by_colon.client.llen("celery:3") == 1
    ran = migrate(by_colon, to, "--dry-run", "--sep", ":")
    assert [line.split() for line in ran.stdout.splitlines()[1:]] == [
        ["celery", priority, "1", "tasks", "yes"] for priority in ("0", "3", "9")
    ]
    migrate(by_colon, to, "--yes", "--sep", ":")
    assert by_colon.client.exists("celery", "celery:3", "celery:9") == 0
    assert [info.name for info in room.queues()] == ["celery"]
    assert finish(room) == ["0", "3", "9"]


@pytest.mark.parametrize(
    ("options", "given"),
    [(BY_COLON, ()), (BY_COLON, ("--sep", "|")), ({"sep": "\xff"}, ())],
    ids=["none given", "another given", "not ASCII"],
)
def test_a_binding_that_nobody_can_read_is_named_and_nothing_moves(
    redis_server: servers.Server, to: str, options: dict[str, Any], given: tuple[str, ...]
) -> None:
    old = Old(redis_server, **options)
    try:
        old.send("a", priority=3)
        keys = sorted(old.client.keys("celery*"))
        for way in ("--dry-run", "--yes"):
            (line,) = migrate(old, to, way, *given, code=2).stderr.splitlines()
            assert "--sep" in line
            assert "exchange 'celery'" in line
            assert "nothing was moved" in line
        assert sorted(old.client.keys("celery*")) == keys
    finally:
        old.close()


def test_a_separator_of_nothing_is_refused(old: Old, to: str) -> None:
    assert "sep" in migrate(old, to, "--dry-run", "--sep", "", code=2).stderr


def test_what_was_left_from_before_the_separator_changed_moves_too(
    old: Old, by_colon: Old, to: str, room: Room
) -> None:
    old.send("before", priority=9)
    pools.reset()  # the second app declares for itself
    by_colon.send("since", priority=3)
    assert old.client.scard("_kombu.binding.celery") == 2
    migrate(by_colon, to, "--yes", "--sep", ":")
    assert finish(room) == ["since", "before"]


def test_a_queue_whose_name_ends_like_a_priority_keeps_its_name(by_colon: Old, to: str, room: Room) -> None:
    by_colon.send("a", queue="shop:7")
    by_colon.send("b", queue="shop:7", priority=3)
    migrate(by_colon, to, "--yes", "--sep", ":")
    assert [info.name for info in room.queues()] == ["shop:7"]
    assert finish(room, "shop:7") == ["a", "b"]


def test_what_nobody_can_read_stays_and_the_rest_moves(old: Old, to: str, room: Room) -> None:
    old.send("a", "b")
    old.client.lpush("celery", "not JSON", '{"body": 1}')
    old.send("c", "d")
    ran = migrate(old, to, "--yes", code=1)
    assert "2 stay in their old lists" in ran.stderr
    assert old.client.lrange("celery", 0, -1) == [b'{"body": 1}', b"not JSON"]
    assert finish(room) == ["a", "b", "c", "d"]


# ---- what workers hold --------------------------------------------------------------------------


def test_what_a_killed_worker_held_moves_only_when_asked_to(
    old: Old, to: str, room: Room, tmp_path: Path
) -> None:
    old.app.conf.task_queues = [Queue("shop", Exchange("shop"), routing_key="shop")]
    gate = tmp_path / "gate"
    with Shop(old.url, tmp_path, broker_transport_options={}, worker_prefetch_multiplier=4) as shop:
        worker = shop.worker("--pool", "solo")
        shop.python(f"until.delay({str(gate)!r}, 'begun'); note.delay('held')")
        shop.until(lambda: shop.labels("begin") and old.client.hlen("unacked") >= 1)
        assert "stop them first" in migrate(old, to, "--yes", code=4).stderr + migrate(old, to, "-n").stderr
        worker.kill()
    held = old.client.hlen("unacked")
    wait_until(
        lambda: json.loads(migrate(old, to, "-n", "--json").stdout)["workers"] == 0, lambda: "a worker?"
    )
    assert f"{held} messages are in the hands of workers" in migrate(old, to, "--yes").stderr
    assert old.client.hlen("unacked") == held
    ran = migrate(old, to, "--yes", "--unacked")
    assert "will run twice" in ran.stderr
    assert old.client.exists("unacked", "unacked_index", "shop") == 0
    assert room.queue("shop").stats().ready == 2


def test_what_a_worker_held_until_its_eta_moves_once_it_was_asked_to_stop(
    old: Old, to: str, room: Room, tmp_path: Path
) -> None:
    with Shop(old.url, tmp_path) as shop:
        worker = shop.worker("--pool", "solo")
        shop.python("note.apply_async(['later'], countdown=3_600); note.delay('now')")
        shop.until(lambda: shop.labels("note") == ["now"] and old.client.hlen("unacked") == 1)
        assert worker.stop() == 0
    assert old.client.hlen("unacked") == 0, "it was put back"
    migrate(old, to, "--yes")
    (entry,) = room.queue("shop").find(State.SCHEDULED).entries
    assert entry.message.kind == NOTE
    assert room.queue("shop").stats().ready == 0


def test_a_redis_behind_sentinels_is_found(tmp_path: Path) -> None:
    with servers.sentinel() as made:
        url = ";".join(f"sentinel://{servers.HOST}:{watcher.port}/0" for watcher in made.watchers)
        app = Celery("old", broker=url, set_as_current=False)
        app.conf.broker_transport_options = {"master_name": servers.SERVICE}
        try:
            app.send_task(NOTE, args=["a"])
        finally:
            app.close()
            pools.reset()
        with StockRedis(url, master=servers.SERVICE) as store:
            (waiting,) = look(store).move
            assert (waiting.queue, waiting.count) == ("celery", 1)
        with pytest.raises(InvalidInput, match="master_name"):
            StockRedis(url)


# ---- killed in the middle -----------------------------------------------------------------------

#: Killed with some put and not yet taken out of their list: the worst moment.
SABOTAGE = """
import os, signal
from postroom.celery import stock

cut = stock.StockRedis.cut
calls = []


def cut_or_die(self, waiting, raws, behind=0):
    calls.append(1)
    if len(calls) == int(os.environ["DIE_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return cut(self, waiting, raws, behind)


stock.StockRedis.cut = cut_or_die
"""


def test_killed_between_put_and_removal_nothing_is_lost_or_twice(
    old: Old, to: str, room: Room, tmp_path: Path
) -> None:
    labels = [f"task {n}" for n in range(1_200)]
    old.send(*labels)
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SABOTAGE, encoding="utf-8")
    done: list[str] = []
    for at in ("1", "2", "2"):
        migrate(old, to, "--yes", code=-signal.SIGKILL, PYTHONPATH=str(folder), DIE_AT=at)
        left = old.waiting()
        done += finish(room)  # a worker is done with them before anybody runs it again
        assert len(done) + left > len(labels), "some were in both places"
    assert "were here already" in migrate(old, to, "--yes").stderr
    done += finish(room)
    assert done == labels, "each once, and in their order"
    assert old.waiting() == 0


def test_killed_at_any_moment_nothing_is_lost_or_twice(old: Old, to: str, room: Room) -> None:
    labels = [f"task {n}" for n in range(3_000)]
    with old.app.producer_pool.acquire() as producer:
        for label in labels:
            old.app.send_task(NOTE, args=[label], producer=producer)
    done: list[str] = []
    kills = 0
    while (before := old.waiting()) > 0 and kills < 5:
        process = subprocess.Popen(
            [*COMMAND, "--from", old.url, "--to", to, "--yes"], cwd=REPO, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_until(lambda: old.waiting() < before or process.poll() is not None, lambda: "nothing moves")  # noqa: B023  (called before the next round)
        finally:
            process.kill()
            process.wait()
        kills += 1
        done += finish(room)
    migrate(old, to, "--yes")
    done += finish(room)
    assert Counter(done) == Counter(labels)


def test_two_at_a_time_are_as_good_as_one(old: Old, to: str, room: Room) -> None:
    labels = [f"task {n}" for n in range(1_000)]
    old.send(*labels)
    command = [*COMMAND, "--from", old.url, "--to", to, "--yes"]
    both = [
        subprocess.Popen(command, cwd=REPO, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        assert [process.wait(120) for process in both] == [0, 0]
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert Counter(finish(room)) == Counter(labels)
    assert old.waiting() == 0


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["amqp://localhost", "postroom+redis://localhost/0", "localhost"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="no broker_url of kombu's Redis transport"):
        StockRedis(url)


def test_a_redis_that_is_away_is_one_line(tmp_path: Path) -> None:
    with servers.silent_port() as port, pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1"):
        StockRedis(f"redis://:secret@127.0.0.1:{port}/0")


def test_what_kombus_transport_lacks_is_named_with_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kombu.transport.redis", None)  # as where an import of it fails
    monkeypatch.setattr("kombu.transport._transport_cache", {})
    with pytest.raises(MissingExtra, match=r"postroom\[celery,redis\].*kombu\.transport\.redis"):
        StockRedis("redis://127.0.0.1:1")


def test_a_large_list_is_read_in_small_pieces(old: Old, redis_server: servers.Server) -> None:
    """What it asks of the server in one go is bounded, whatever waits."""
    old.send("x" * 200_000)
    raw: Any = old.client.lindex("celery", 0)
    for n in range(100):
        old.client.lpush("celery", raw.replace(b'"delivery_tag": "', b'"delivery_tag": "%d-' % n))
    with StockRedis(old.url) as store:
        (waiting,) = look(store).move
        assert waiting.count == 101
    redis_server.ask("CONFIG", "RESETSTAT")
    migrate(old, "memory://", "--yes")
    stats = dict(
        line.split(":") for line in redis_server.ask("INFO", "commandstats").decode().split() if ":" in line
    )
    calls = int(stats["cmdstat_lrange"].split(",")[0].removeprefix("calls="))
    assert calls >= 101 * len(raw) // (2 * 2**20), "no more than about 2 MB at once"
