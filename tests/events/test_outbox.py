"""An event of a transaction is published if and only if that commits, whoever is killed when."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, select
from sqlalchemy.orm import Session

from postroom.celery import close_offices
from postroom.celery.events import EventsApp, events_app, outbox
from postroom.celery.events.outbox import Relay, event_outbox
from postroom.errors import NotFound, QueueFull
from tests.celery.workers import REPO, wait_until
from tests.events.rabbit import Rabbit
from tests.events.test_archive import EVENT, service
from tests.redis import servers
from tests.sql import postgres

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def on_postgresql() -> Iterator[Engine]:
    with postgres.running() as server:
        yield from prepared(server.url)


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        yield from prepared(f"sqlite:///{tmp_path}/shop.db")
    else:
        yield request.getfixturevalue("on_postgresql")


def prepared(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(outbox.ddl())
    yield engine
    engine.dispose()


@pytest.fixture
def app(rabbit: Rabbit) -> Iterator[EventsApp]:
    app = service(rabbit, f"outbox{secrets.token_hex(4)}")
    app.event(EVENT)(checked)
    yield app
    app.publisher.close()


def checked(number: int) -> None:
    if number < 0:
        raise ValueError("below zero")


def arrived(app: EventsApp, rabbit: Rabbit) -> list[str]:
    return [message.headers["event_id"] for message in rabbit.peek(app.handlers.queue_of(EVENT))]


def waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(event_outbox)).scalar_one())


def test_an_event_is_published_after_the_commit_and_never_without(
    app: EventsApp, rabbit: Rabbit, engine: Engine
) -> None:
    paid = app.declared[EVENT]
    with Relay(app, engine), Session(engine) as session:
        with pytest.raises(ValueError, match="below zero"):
            paid.within(session, -1)
        paid.within(session, 1)
        session.rollback()
        ids = [paid.within(session, number) for number in range(300)]
        assert arrived(app, rabbit) == []
        session.commit()
        wait_until(lambda: not waiting(engine), lambda: f"{waiting(engine)} wait")
    assert arrived(app, rabbit) == ids, "in their order"
    with engine.begin() as connection:  # without a session there is nobody to wake a relay
        last = paid.within(connection, 301)
    assert Relay(app, engine).pass_on() == 1
    assert arrived(app, rabbit)[-1] == last


KILLED = """
import os, signal, sys
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from postroom.celery.events import events_app
from postroom.celery.events.outbox import Relay

service, broker, database, way = sys.argv[1:]
app = events_app(service, broker_url=broker)
paid = app.event("shop.order.placed")(lambda number: None)
engine = create_engine(database)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

with Session(engine) as session:
    for number in range(400):
        print(paid.within(session, number))
    if way == "before":
        sys.stdout.flush()
        die()
    session.commit()
sys.stdout.flush()
if way == "relaying":  # after the broker has confirmed, before the rows are gone
    relay = Relay(app, engine)
    inner = relay._publish
    relay._publish = lambda rows: die(inner(rows))
    relay.pass_on()
die()
"""


@pytest.mark.parametrize(("way", "twice"), [("before", 0), ("after", 0), ("relaying", 256)])
def test_a_kill_loses_nothing_that_was_committed(
    app: EventsApp, rabbit: Rabbit, tmp_path: Path, way: str, twice: int
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    for engine in prepared(url):
        command = [sys.executable, "-c", KILLED, app.service, rabbit.url, url, way]
        ran = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, text=True, check=False)
        assert ran.returncode == -9
        ids = ran.stdout.split()
        assert len(ids) == 400
        assert Relay(app, engine).pass_on() == (0 if way == "before" else 400)
        found = arrived(app, rabbit)
        assert set(found) == (set() if way == "before" else set(ids))
        assert len(found) - len(set(found)) == twice
        assert waiting(engine) == 0


def test_two_relays_share_the_work(app: EventsApp, rabbit: Rabbit, on_postgresql: Engine) -> None:
    """Where the database has locks of rows: on SQLite two relays may publish one event twice."""
    engine = on_postgresql
    with Session(engine) as session:
        for number in range(400):
            app.declared[EVENT].within(session, number)
        session.commit()
    other = events_app(app.service, broker_url=app.conf.broker_url)
    first, second = Relay(app, engine), Relay(other, engine)
    publish: Any = first._publish

    def slow(rows: Any) -> list[str]:
        assert second.pass_on() == 144, "the rows of the first are not given to the second"
        return list(publish(rows))

    first._publish = slow  # type: ignore[method-assign]
    assert first.pass_on() == 256
    other.publisher.close()
    assert len(arrived(app, rabbit)) == 400


def test_two_relays_on_one_file_take_turns(app: EventsApp, rabbit: Rabbit, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    for engine in prepared(url):
        with Session(engine) as session:
            ids = [app.declared[EVENT].within(session, number) for number in range(300)]
            session.commit()
        first, second = Relay(app, engine), Relay(app, create_engine(url))
        publish: Any = first._publish

        def meanwhile(rows: Any) -> list[str]:
            assert second.pass_on() == 0, "it is not its turn"  # noqa: B023  # at once
            with Session(engine) as session:  # noqa: B023  # at once
                ids.append(app.declared[EVENT].within(session, 0))  # noqa: B023  # at once
                session.commit()  # and the file is free for others
            return list(publish(rows))  # noqa: B023  # at once

        first._publish = meanwhile  # type: ignore[method-assign]
        assert first.pass_on() + second.pass_on() == len(ids)
        assert sorted(arrived(app, rabbit)) == sorted(ids)
        assert waiting(engine) == 0


def test_what_nobody_is_bound_to_stays_if_that_is_an_error(rabbit: Rabbit, tmp_path: Path) -> None:
    app = service(rabbit, "strict", unrouted="error")
    paid, nothing = app.event(EVENT)(checked), app.event("nobody.is.bound")(checked)
    for engine in prepared(f"sqlite:///{tmp_path}/shop.db"):
        with Session(engine) as session:
            nothing.within(session, 1)
            id = paid.within(session, 2)
            session.commit()
        assert Relay(app, engine).pass_on() == 1
        assert set(arrived(app, rabbit)) == {id}
        assert waiting(engine) == 1
    app.publisher.close()
    with pytest.raises(NotFound):
        nothing(1)


def _lives(relay: Relay) -> bool:
    return relay._thread is not None and relay._thread.is_alive()


def test_a_relay_goes_on_when_its_store_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    persistent = {"appendonly": "yes", "appendfsync": "always"}
    url = f"sqlite:///{tmp_path}/shop.db"
    with servers.single(persistent) as server:
        app = events_app("billing", broker_url=f"postroom+{server.url()}")
        app.handler(EVENT, name="handler")(checked)
        paid = app.event(EVENT)(checked)
        for engine in prepared(url):
            with Relay(app, engine) as relay, Session(engine) as session:
                paid.within(session, 1)
                session.commit()
                wait_until(lambda: not waiting(engine), lambda: "the first waits")  # noqa: B023  # at once
                server.kill()
                paid.within(session, 2)
                session.commit()
                # The first time its old connection fails, the second time there is none to be had.
                wait_until(lambda: caplog.text.count("the outbox waits") == 2 or not _lives(relay), str)
                assert _lives(relay)
                server.start()
                wait_until(lambda: not waiting(engine), lambda: "the relay is dead")  # noqa: B023  # at once
        app.pool.force_close_all()
        close_offices()


def test_a_relay_goes_on_whatever_its_disk_does(
    app: EventsApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = tmp_path / "shop.db-relay"
    lock.mkdir()  # a file that cannot be opened
    for engine in prepared(f"sqlite:///{tmp_path}/shop.db"):
        with Relay(app, engine), Session(engine) as session:
            app.declared[EVENT].within(session, 1)
            session.commit()
            wait_until(lambda: "the outbox waits" in caplog.text, lambda: caplog.text)
            lock.rmdir()
            wait_until(lambda: not waiting(engine), lambda: "the relay is dead")  # noqa: B023  # at once


def test_a_full_outbox_refuses(app: EventsApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST", 3)
    monkeypatch.setattr(outbox, "_COUNT_EVERY", 0.0)
    for engine in prepared(f"sqlite:///{tmp_path}/shop.db"):
        with Session(engine) as session:
            for number in range(3):
                app.declared[EVENT].within(session, number)
            with pytest.raises(QueueFull, match="does a relay run"):
                app.declared[EVENT].within(session, 4)
