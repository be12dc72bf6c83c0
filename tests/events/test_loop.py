"""Inside of Celery's event loop nobody waits: the acks of what was handled would wait, too."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery.worker.loops import _quick_drain
from kombu import Connection
from kombu.asynchronous import Hub

from tests.events.rabbit import Rabbit

TRANSPORT = "postroom.celery.events.amqp:Transport"


@pytest.fixture
def connection(rabbit: Rabbit) -> Any:
    with Connection(rabbit.url, transport=TRANSPORT) as made:
        made.connect()
        yield made


def waited(connection: Any) -> list[float | None]:
    """The timeouts with which the connection is read from now on."""
    seen: list[float | None] = []
    read = connection.connection.drain_events

    def noted(timeout: float | None = None) -> Any:
        seen.append(timeout)
        return read(timeout=timeout)

    connection.connection.drain_events = noted
    return seen


def test_the_first_turn_of_a_loop_waits_for_nothing(connection: Any) -> None:
    """Celery's own function, which by itself waits for a tenth of a second."""
    seen = waited(connection)
    connection.register_with_event_loop(Hub())
    _quick_drain(connection)
    assert seen == [0]


def test_without_a_loop_whoever_waits_does(connection: Any) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.05)
    assert time.monotonic() - began >= 0.05
