"""What a Postroom engine has for events: delays of its own, and dead letters in place of the archive."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import postroom
from postroom.celery.events import archive, events_app
from postroom.celery.events.publisher import Outgoing
from postroom.celery.events.standing import look
from postroom.errors import EngineUnavailable, NotFound
from postroom.model import Failure, NewMessage, State
from postroom.policy import Policy
from tests.celery.workers import WorkerProcess
from tests.events.stage import Stage
from tests.redis import servers


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.Server]:
    with servers.single() as server:
        yield server


@pytest.mark.timeout(240)
@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_delays_and_dead_letters_are_the_engine_s(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """On memory the same is in docs/how-to/events-between-services.md, which is run by tests/docs."""
    url = f"sqlite:///{tmp_path}/events.db"
    if engine == "redis":
        url = request.getfixturevalue("redis").url()
    with Stage(f"postroom+{url}", tmp_path, max_retries=1) as stage, postroom.open(url) as room:
        stage.worker("billing")
        name = stage.name("billing")
        stage.publish("shop.order.late", 1_000)
        stage.publish("shop.order.placed", 7, fail_in=name)
        late = f"{name}.v1.event.shop.order.late"
        stage.until(lambda: room.engine.stats(late).scheduled == 1)
        assert room.engine.stats(late).processing == 0, "no part of a delay is spent in a worker"
        queue = f"{name}.v1.event.shop.order.placed"
        stage.until(lambda: room.engine.stats(queue).dead == 1)
        (letter,) = room.engine.find(queue, State.DEAD).entries
        assert letter.message.kind == "shop.order.placed"
        assert letter.failure is not None
        assert (letter.failure.type, letter.failure.text) == ("ValueError", "order 7 fails")
        tries = stage.lines("placed")
        assert [line["retries"] for line in tries] == [0, 1]
        assert tries[1]["at"] - tries[0]["at"] >= 0.95
        same = events_app(name, broker_url=f"postroom+{url}")
        same.handler("shop.order.placed", name="same")(lambda: None)
        room.queue("others").put(1)
        with archive.opened(same) as dead:
            assert [each.id for each in dead.find().letters] == [letter.id]
            assert dead.note(dead.groups().groups[0].group, "known").changes[-1].what == {"note": "known"}
            assert dead.replay([letter.id]).done == 1
        stage.until(lambda: len(stage.lines("placed")) == 4)


@pytest.mark.timeout(240)
def test_whatever_way_an_attempt_ends_in_the_last_one_is_a_dead_letter(tmp_path: Path) -> None:
    """As on RabbitMQ, which has its own in test_delivery.py."""
    url = f"sqlite:///{tmp_path}/events.db"
    with Stage(f"postroom+{url}", tmp_path) as stage, postroom.open(url) as room:
        stage.worker("billing", "--pool", "prefork")
        names = stage.name("billing") + ".v1"
        ends = {
            f"{names}.event.shop.order.deadly": ("WorkerLostError", 1),
            f"{names}.group.stock": ("ValueError", 1),
        }
        id = stage.publish("shop.order.deadly", "exit")
        stage.publish("shop.stock.cursed", "tea")
        for queue, (failure, retries) in ends.items():
            stage.until(lambda: room.engine.stats(queue).dead == 1)  # noqa: B023  # at once
            (letter,) = room.engine.find(queue, State.DEAD).entries
            assert letter.failure is not None
            assert (letter.failure.type, letter.attempt) == (failure, 1 + retries)
        assert [line["retries"] for line in stage.lines("deadly", id=id)] == [0, 1]


@pytest.mark.timeout(240)
def test_a_worker_serves_how_its_service_stands_beside_its_room(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stage = stack.enter_context(
            Stage(f"postroom+sqlite:///{tmp_path}/events.db", tmp_path, max_retries=0)
        )
        port, held = servers.claimed_port()
        stack.enter_context(held)
        command = [sys.executable, "-m", "postroom.cli", "events", "worker", "tests.events.service"]
        options = ["--pool", "solo", "--loglevel", "INFO", "--metrics-port", str(port)]
        log = tmp_path / "served.log"
        stage.workers.append(WorkerProcess([*command, *options], stage.environ("billing"), log, "served"))
        stage.workers[0].until_ready()
        name = stage.name("billing")
        stage.publish("shop.order.placed", 7, fail_in=name)

        def served() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        stage.until(lambda: f'postroom_events_archived{{service="{name}"}} 1.0' in served())
        text, queue = served(), f"{name}.v1.event.shop.order.placed"
        assert f'postroom_events_archive_filled_ratio{{service="{name}"}}' in text
        assert f'postroom_events_delayed{{rung="{queue}",service="{name}"}} 0.0' in text
        assert f'postroom_messages{{queue="{queue}",state="dead"}} 1.0' in text


def test_who_publishes_while_the_store_is_away_is_told_so() -> None:
    app = events_app("shop", broker_url="postroom+redis://127.0.0.1:1/0")
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"):
        app.event("a.b")(lambda: None)()
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"):  # as what is sent back is
        app.publisher.publish(Outgoing("", "queue", {"id": "x", "task": "a.b"}, b"[]"))


SPLITTING = """
import os, signal
from postroom.celery.events.publisher import StorePublisher
from tests.events.service import app

put = StorePublisher.publish

def killing(self, message):  # the store goes away just before an event is split
    StorePublisher.publish = put
    os.kill(int(os.environ["STORE"]), signal.SIGKILL)
    put(self, message)

StorePublisher.publish = killing
app.worker_main(["worker", "-P", "solo", "-l", "INFO", "--without-mingle", "--without-gossip"])
"""


@pytest.mark.timeout(240)
def test_a_worker_that_cannot_split_an_event_begins_anew(tmp_path: Path) -> None:
    persistent = {"appendonly": "yes", "appendfsync": "always"}
    with servers.single(persistent) as server, Stage(f"postroom+{server.url()}", tmp_path) as stage:
        environ = {**stage.environ("billing"), "STORE": str(server.pid)}
        worker = WorkerProcess([sys.executable, "-c", SPLITTING], environ, tmp_path / "w.log", "splitting")
        stage.workers.append(worker)
        worker.until_ready()
        stage.publish("shop.stock.low", "tea")
        stage.until(lambda: "Connection to broker lost" in worker.log() or worker.process.poll() is not None)
        server.restart()
        for what in ("count", "order_more"):
            stage.until(lambda: stage.lines(what, item="tea"))  # noqa: B023  # at once
        assert worker.stop() == 0


def test_an_event_that_nobody_is_bound_to_is_counted_or_an_error(tmp_path: Path) -> None:
    url = f"postroom+sqlite:///{tmp_path}/events.db"
    careless = events_app("careless", broker_url=url)
    careless.event("a.b")(lambda: None)()
    assert careless.publisher.unrouted == 1
    careful = events_app("careful", broker_url=url, unrouted="error")
    with pytest.raises(NotFound, match=r"a\.b"):
        careful.event("a.b")(lambda: None)()
    for app in (careless, careful):
        app.pool.force_close_all()
    postroom.celery.close_offices()


def test_an_archive_that_fills_up_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/events.db"
    app = events_app("billing", broker_url=f"postroom+{url}")
    app.handler("a.b", name="handler")(lambda: None)
    queue = app.queue_of("a.b")
    with postroom.open(url) as room:
        room.queue(queue, Policy(dead_limit=10))
        failure = Failure(type="ValueError")
        for dead, expected in ((7, 0), (1, 1), (1, 0)):
            room.engine.put(queue, [NewMessage(failure=failure) for _ in range(dead)])
            caplog.clear()
            app.watch.look()
            told = [record for record in caplog.records if "archive" in record.getMessage()]
            assert len(told) == expected
    assert (look(app).archived, look(app).filled) == (9, 0.9)
    app.pool.force_close_all()
    postroom.celery.close_offices()
