"""The archive by the verbs of dead letters: looked at without a loss, replayed to one service, discarded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import NotFound as NoSuchQueue
from amqp.exceptions import ResourceLocked

import postroom
from postroom.celery.events import EventsApp, archive, events_app, holding
from postroom.celery.events.declaring import declare
from postroom.celery.events.envelope import Envelope
from postroom.deadletters import Filter
from postroom.errors import Conflict, EngineUnavailable, InvalidInput, NotFound
from postroom.model import Failure
from tests.celery.workers import REPO, wait_until
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(300)
EVENT = "shop.order.placed"


def service(rabbit: Rabbit, name: str, **config: Any) -> EventsApp:
    """A service with one handler, declared, and without a worker."""
    app = events_app(name, broker_url=rabbit.url, **config)
    app.handler(EVENT, name=f"{name}.handler")(handle)
    with app.connection_for_write() as connection:
        declare(connection, app.topology)
    return app


def handle(number: int) -> None:
    """Nobody calls it."""


def die(app: EventsApp, number: int, text: str = "it failed", **told: Any) -> str:
    """Have an event fail for good, as a worker would."""
    envelope = Envelope.new(EVENT, "shop", 1, None)
    headers = {**envelope.headers(task=f"{app.service}.handler", retries=3), **told}
    failure = Failure(type="ValueError", text=text, traceback="Traceback: …")
    app.archive(headers, json.dumps([[number], {}, {}]).encode(), failure)
    return envelope.event_id


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('archive')}/notes.db"


@pytest.fixture
def app(rabbit: Rabbit, request: pytest.FixtureRequest) -> Iterator[EventsApp]:
    app = service(rabbit, request.node.name.replace("test_", "")[:50])
    yield app
    app.publisher.close()


def numbers(app: EventsApp, url: str) -> list[int]:
    with archive.opened(app, url) as dead:
        return sorted(letter.call.args[0] for letter in dead.find(limit=1_000).letters)


def in_order(app: EventsApp, rabbit: Rabbit) -> list[int]:
    """The letters as they are in the queue: those of one millisecond are found in another order."""
    return [json.loads(letter.body)[0][0] for letter in rabbit.peek(app.names.archive)]


def test_looking_changes_nothing(app: EventsApp, rabbit: Rabbit, url: str) -> None:
    ids = [die(app, number, "no" if number % 3 else "other") for number in range(30)]
    for _ in range(3):
        with archive.opened(app, url) as dead:
            found = dead.find(limit=1_000)
            assert sorted(letter.call.args[0] for letter in found.letters) == list(range(30))
            assert found.complete
            first, second = dead.groups().groups
            assert (first.count, first.exception, second.count) == (20, "ValueError: no", 10)
            letter = dead.get(ids[4])
            assert (letter.retries, letter.call.args, letter.kind) == (3, [4], EVENT)
            assert letter.call.task_name == f"{app.service}.handler"
            assert letter.failure.traceback == "Traceback: …"
            page = dead.find(Filter(error="other"), limit=4)
            assert page.cursor is not None
        # A cursor outlives the reader.
        with archive.opened(app, url) as dead:
            rest = dead.find(Filter(error="other"), cursor=page.cursor, limit=100)
            assert not {each.id for each in rest.letters} & {each.id for each in page.letters}
            assert len(rest.letters) == 6
    assert in_order(app, rabbit) == list(range(30))


def test_a_replay_reaches_this_service_alone(app: EventsApp, rabbit: Rabbit, url: str) -> None:
    other = service(rabbit, "bystander")
    id = die(app, 7)
    die(app, 8, task="gone.handler")
    with archive.opened(app, url) as dead:
        assert dead.replay(Filter(), dry_run=True).eligible == 2
        result = dead.replay(Filter())
        assert (result.done, result.refused) == (1, 1)
        assert "gone.handler handles shop.order.placed no more" in result.refusals[0].reason
        assert dead.find().scanned == 1
    assert numbers(app, url) == [8]
    assert rabbit.count(other.handlers.queue_of(EVENT)) == 0
    (event,) = rabbit.peek(app.handlers.queue_of(EVENT))
    headers = event.headers
    assert (headers["event_id"], headers["retries"], headers["replays"]) == (id, 0, 1)
    assert headers["task"] == f"{app.service}.handler"
    assert not [name for name in headers if name.startswith(("failure", "archived"))]
    with postroom.open(url) as store:
        noted = [(act.event, act.count) for act in postroom.audit.read(store.engine, after="").acts]
    assert noted[-2:] == [("replay", 0), ("replay", 1)]


def test_a_canary_and_another_queue_are_refused(
    app: EventsApp, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("postroom.toml").write_text("[queues.configured]", encoding="utf-8")
    die(app, 1)
    with archive.opened(app, url) as dead:
        with pytest.raises(InvalidInput, match="canary"):
            dead.replay(Filter(), canary=True)
        for queue in ("elsewhere", "configured"):
            with pytest.raises(NotFound, match=queue):
                dead.replay(Filter(), to=queue)
    assert numbers(app, url) == [1]
    with postroom.open(url) as store:
        assert store.queue("configured").stats().depth == 0, "a copy of the event is in the store"


def test_what_is_discarded_is_gone_with_its_copies(app: EventsApp, rabbit: Rabbit, url: str) -> None:
    for number in (1, 2, 2, 3):
        # As a worker leaves it that dies between the archive's confirm and its ack.
        die(app, number, id=f"{number:032x}")
    with archive.opened(app, url) as dead:
        assert len(dead.find().letters) == 3
        assert dead.discard([f"{2:032x}", "nobody"]).done == 1
    assert numbers(app, url) == [1, 3]
    wait_until(lambda: rabbit.count(app.names.archive) == 2, lambda: "who looked does not give them back")


def test_a_killed_reader_gives_everything_back_in_order(app: EventsApp, rabbit: Rabbit, url: str) -> None:
    for number in range(50):
        die(app, number)
    code = (
        "import sys, signal\n"
        "from postroom.celery.events import events_app, holding\n"
        "with holding.holding(events_app(sys.argv[1], broker_url=sys.argv[2])) as held:\n"
        "    held.remove(held.messages[10:12])\n"
        "    print(len(held.messages), flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-c", code, app.service, rabbit.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "50\n"
        assert rabbit.count(app.names.archive) == 0, "it holds them all"
        os.kill(reader.pid, signal.SIGKILL)
    die(app, 50)
    assert in_order(app, rabbit) == [*range(10), *range(12, 51)]
    with archive.opened(app, url) as dead:
        assert len(dead.find().letters) == 49


def test_a_reader_that_lost_its_letters_replays_none(app: EventsApp, rabbit: Rabbit, url: str) -> None:
    die(app, 1)
    with archive.opened(app, url) as dead:
        rabbit.ctl("close_all_connections", "maintenance")
        with pytest.raises(EngineUnavailable, match="back in the archive"):
            dead.replay(Filter())
    assert rabbit.count(app.handlers.queue_of(EVENT)) == 0
    assert numbers(app, url) == [1]


def test_a_rabbitmq_that_hangs_does_not_hang_who_reads(
    app: EventsApp, rabbit: Rabbit, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(app, 1)
    monkeypatch.setattr(holding, "_ANSWER", 2.0)
    with archive.opened(app, url) as dead:
        os.killpg(rabbit.pid, signal.SIGSTOP)
        try:
            with pytest.raises(EngineUnavailable):
                dead.discard(Filter())
        finally:
            os.killpg(rabbit.pid, signal.SIGCONT)
    wait_until(lambda: rabbit.count(app.names.archive) == 1, lambda: "the letter is not back")
    assert numbers(app, url) == [1]


def test_there_is_one_reader_at_a_time(app: EventsApp, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    die(app, 1)
    monkeypatch.setattr(holding, "_PATIENCE", 0.2)
    with archive.opened(app, url), pytest.raises(Conflict, match="another reader"):
        numbers(app, url)
    assert numbers(app, url) == [1]


def test_letters_in_the_hands_of_somebody_who_ends_are_waited_for(
    app: EventsApp, rabbit: Rabbit, url: str
) -> None:
    """As a restart leaves them: who held them is gone, and RabbitMQ has not missed it yet."""
    die(app, 1)
    held = rabbit.connect()
    assert held.channel().basic_get(app.names.archive) is not None
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(numbers, app, url)
        wait_until(lambda: is_being_read(app, rabbit), lambda: "nobody reads the archive")
        assert not found.done()
        held.release()
        assert found.result() == [1]


def is_being_read(app: EventsApp, rabbit: Rabbit) -> bool:
    with rabbit.connect() as connection:
        try:
            connection.channel().queue_declare(app.names.reader, passive=True)
        except ResourceLocked:
            return True
        except NoSuchQueue:
            return False
        raise AssertionError("the reader's queue is not exclusive")


def test_more_than_the_bound_is_told(app: EventsApp, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        die(app, number)
    monkeypatch.setattr(holding, "MOST", 3)
    with archive.opened(app, url) as dead:
        assert {letter.call.args[0] for letter in dead.find().letters} == {0, 1, 2}
        assert dead.unread == 2
    assert numbers(app, url) == [0, 1, 2]


def test_what_a_service_does_not_have_is_said(rabbit: Rabbit, url: str) -> None:
    with (
        pytest.raises(NotFound, match="no archive"),
        archive.opened(events_app("nowhere", broker_url=rabbit.url), url),
    ):
        pass
    careless = events_app("careless", broker_url=rabbit.url, archive=False)
    with pytest.raises(InvalidInput, match="archive=False"), archive.opened(careless, url):
        pass


def test_the_commands_are_those_of_dead_letters(rabbit: Rabbit, tmp_path: Path) -> None:
    """On the same service as its worker; on an engine the same is in test_engines.py."""
    with Stage(rabbit.url, tmp_path, max_retries=0) as stage:
        stage.worker("billing")
        for number in (1, 2):
            stage.publish(EVENT, number, fail_in=stage.name("billing"))
        stage.until(lambda: rabbit.count(f"{stage.name('billing')}.v1.archive") == 2)

        def dead(verb: str, *arguments: str) -> Any:
            ran = stage.postroom("dead", verb, *arguments, "--service", "tests.events.service", "--json")
            assert ran.returncode == 0, ran.stderr
            return json.loads(ran.stdout)

        first, second = dead("ls")["letters"]
        assert dead("note", first["group"], "known", "--status", "resolved")["status"] == "resolved"
        assert dead("groups")["groups"][0]["incident"]["status"] == "resolved"
        assert dead("replay", first["id"])["done"] == 1
        stage.until(lambda: len(stage.lines("placed", number=first["args"][0])) == 2)
        assert dead("discard", second["id"], "--yes")["done"] == 1
