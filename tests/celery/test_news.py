"""What a worker tells while its store is away: kept within bounds, told in its order, never waited for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import celery.worker.state  # noqa: F401  (what a worker has loaded)
import pytest
from kombu import Connection, Exchange, Producer

from postroom.celery import close_offices, presence
from postroom.celery.news import MOST_KEPT
from postroom.errors import EngineUnavailable

TOPIC = "exchange/celeryev/worker"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One of a worker."""
    monkeypatch.setattr(presence, "_joined", [True])
    with Connection("postroom+memory://") as made:
        made.connect()
        yield made
    close_offices()


@pytest.fixture
def office(connection: Any) -> Any:
    return connection.default_channel.office


def _tell(connection: Any, number: int, **more: Any) -> None:
    events = Exchange("celeryev", "fanout")
    producer = Producer(connection.default_channel)
    # As Celery does for its heartbeat: kombu would try again without an end.
    producer.publish(
        {"n": number, **more}, exchange=events, routing_key="worker.heartbeat", declare=[events], retry=True
    )


def _told(office: Any) -> list[bytes]:
    entries = office.room.engine.read(TOPIC, after="", limit=1_000).entries
    return [entry.data for entry in entries]


def test_events_wait_for_a_store_that_is_away(
    connection: Any, office: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tell(connection, 0)

    def fails(*_: Any, **__: Any) -> None:
        raise EngineUnavailable("it is away")

    with monkeypatch.context() as while_away:
        while_away.setattr(office.room.engine, "publish", fails)
        while_away.setattr(office.upkeep, "stir", lambda: None)  # nobody sees that it is back
        _tell(connection, 1)
        assert office.away
    _tell(connection, 2)
    assert len(_told(office)) == 1, "not tried: somebody else looks whether it is back"
    office.upkeep.away = False
    _tell(connection, 3)
    assert [f'"n": {number}'.encode() in data for number, data in enumerate(_told(office))] == [True] * 4


def test_the_oldest_events_are_given_up_and_that_is_said(
    connection: Any, office: Any, caplog: pytest.LogCaptureFixture
) -> None:
    office.upkeep.away = True
    for number in range(MOST_KEPT + 5):
        _tell(connection, number)
    office.upkeep.away = False
    with caplog.at_level(logging.WARNING):
        _tell(connection, MOST_KEPT + 5)
    told = _told(office)
    assert len(told) == MOST_KEPT
    assert b'"n": 6' in told[0]
    assert f'"n": {MOST_KEPT + 5}'.encode() in told[-1]
    given_up = [record for record in caplog.records if "given up" in record.msg]
    assert [record.args for record in given_up] == [(6,)]


def test_large_events_are_told_in_portions_and_one_that_is_too_large_is_dropped(
    connection: Any, office: Any, caplog: pytest.LogCaptureFixture
) -> None:
    office.upkeep.away = True
    for number in range(40):
        _tell(connection, number, traceback="x" * 500_000)
    _tell(connection, 40, traceback="x" * 2**20)
    office.upkeep.away = False
    _tell(connection, 41)
    assert [f'"n": {number}'.encode() in data for number, data in enumerate(_told(office)[:40])] == [
        True
    ] * 40
    assert b'"n": 41' in _told(office)[40]
    assert "was dropped: worker.heartbeat" in caplog.text


def test_an_answer_to_remote_control_is_not_waited_for(
    connection: Any, office: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Exchange("reply.celery.pidbox", "direct")
    producer = Producer(connection.default_channel)
    answers(connection.default_channel).declare()
    office.upkeep.away = True
    with caplog.at_level(logging.WARNING):
        producer.publish({"ok": "pong"}, exchange=answers, routing_key="someone", retry=True)
    assert [getattr(record, "event", "") for record in caplog.records] == ["celery.answer_dropped"]
