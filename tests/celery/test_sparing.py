"""What a publish through kombu does without, and what it must not do without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import OperationalError

from postroom.errors import EngineUnavailable, QueueFull


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with Connection(url) as made:
        made.connect()
        yield made


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queues and exchanges that kombu makes copies of."""
    copied: list[str] = []
    for kind in (Queue, Exchange):
        monkeypatch.setattr(kind, "bind", _counted(kind.bind, copied))
    return copied


def _counted(bind: Any, copied: list[str]) -> Any:
    def counted(entity: Any, channel: Any) -> Any:
        copied.append(entity.name)
        return bind(entity, channel)

    return counted


def publish(producer: Any, queue: Any, **options: Any) -> None:
    producer.publish(1, routing_key=queue.name, declare=[queue], retry=True, **options)


def ready(connection: Any, queue: str) -> int:
    count: int = connection.default_channel.office.room.engine.stats(queue).ready
    return count


def test_a_queue_is_copied_for_the_first_publish_alone(connection: Any, bound: list[str]) -> None:
    producer, queue = Producer(connection), Queue("jobs", Exchange("shop"), routing_key="jobs")
    publish(producer, queue)
    assert "jobs" in bound
    bound.clear()
    for _ in range(3):
        producer.revive(connection)  # as a pool does whenever it hands a producer out
        publish(producer, queue)
    assert bound == []
    assert ready(connection, "jobs") == 4


def test_a_connection_that_was_lost_has_declared_nothing(connection: Any, bound: list[str]) -> None:
    producer, queue = Producer(connection), Queue("jobs", Exchange("shop"), routing_key="jobs")
    publish(producer, queue)
    connection.collect()
    bound.clear()
    publish(producer, queue)
    assert "jobs" in bound
    assert ready(connection, "jobs") == 2


def test_what_expires_is_declared_every_time(connection: Any, bound: list[str]) -> None:
    producer, queue = Producer(connection), Queue("reply", auto_delete=True)
    publish(producer, queue)
    once = bound.count("reply")
    publish(producer, queue)
    assert bound.count("reply") == 2 * once > 0


def test_an_exchange_of_its_own_is_left_to_a_producer(connection: Any) -> None:
    queue = Queue("jobs", Exchange("shop"), routing_key="a")
    producer = Producer(connection, exchange=Exchange("shop"), routing_key="a")
    for _ in range(2):
        producer.revive(connection)
        producer.publish(1, declare=[queue], retry=True)
    assert ready(connection, "jobs") == 2


class Failing:
    """An office's `put` that fails so often before it works."""

    def __init__(
        self, connection: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int
    ) -> None:
        office = connection.default_channel.office
        self.calls, self._error, self._times, self._put = 0, error, times, office.put
        monkeypatch.setattr(office, "put", self)

    def __call__(self, queue: str, messages: Any) -> Any:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self._put(queue, messages)


POLICY: dict[str, Any] = {"interval_start": 0, "interval_step": 0, "interval_max": 0}


@pytest.mark.parametrize(("most", "tries"), [(0, 1), (1, 2), (3, 4)])
def test_a_publish_is_tried_as_often_as_its_policy_says(
    connection: Any, monkeypatch: pytest.MonkeyPatch, most: int, tries: int
) -> None:
    put = Failing(connection, monkeypatch, EngineUnavailable("away"), 9)
    with pytest.raises(OperationalError, match="away"):
        publish(Producer(connection), Queue("jobs"), retry_policy={**POLICY, "max_retries": most})
    assert put.calls == tries


def test_a_publish_goes_on_where_it_was_interrupted(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Failing(connection, monkeypatch, EngineUnavailable("away"), 2)
    publish(Producer(connection), Queue("jobs"), retry_policy={**POLICY, "max_retries": 3})
    assert put.calls == 3
    assert ready(connection, "jobs") == 1


def test_what_no_retry_helps_is_raised_at_once(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Failing(connection, monkeypatch, QueueFull("full"), 9)
    with pytest.raises(QueueFull):
        publish(Producer(connection), Queue("jobs"), retry_policy={**POLICY, "max_retries": 3})
    assert put.calls == 1
