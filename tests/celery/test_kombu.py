"""The transport as kombu's users see it: producers, consumers, exchanges, on every engine."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery
from celery._state import _task_stack
from kombu import Connection, Consumer, Exchange, Producer, Queue, exceptions
from kombu.exceptions import ChannelError, OperationalError
from kombu.serialization import loads

import postroom
from postroom.celery import publish_group
from postroom.celery.exchanges import Binding, Exchanges
from postroom.celery.options import read, url_of
from postroom.engine import ClaimRequest
from postroom.engines.redis import urls
from postroom.errors import ConfigError, EngineUnavailable, InvalidInput, QueueFull, Uncertain
from postroom.ids import new_id
from postroom.model import Settlement, State
from tests.redis import servers

PATIENCE = 30.0


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with Connection(url) as made:
        yield made


def office(connection: Any) -> Any:
    return connection.default_channel.office


def dead(connection: Any, queue: str) -> list[Any]:
    return list(office(connection).room.engine.find(queue, State.DEAD).entries)


class Inbox:
    """A consumer that keeps what it got; `take` waits for so many."""

    def __init__(self, connection: Any, *queues: Any, prefetch: int = 10, no_ack: bool = False) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(0, prefetch, False)
        self.messages: list[Any] = []
        self.consumer = Consumer(
            self.channel, list(queues), on_message=self.messages.append, accept=["json"], no_ack=no_ack
        )
        self.consumer.consume()

    def take(self, count: int) -> list[Any]:
        self.wait(lambda: len(self.messages) >= count)
        taken, self.messages[:] = self.messages[:count], self.messages[count:]
        return taken

    def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self.messages
            self.drain(0.1)

    def drain(self, seconds: float = 0.0) -> None:
        try:
            while True:
                self.connection.drain_events(timeout=seconds)
        except socket.timeout:  # noqa: UP041  (kombu's name for it)
            pass


def until(condition: Callable[[], object]) -> None:
    """For what other threads or the store do by themselves."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def send(connection: Any, queue: str, body: Any, **options: Any) -> None:
    if "content_type" not in options:
        options.setdefault("serializer", "json")  # kombu would send a plain str as text
    Producer(connection.default_channel).publish(body, routing_key=queue, **options)


# ---- order and time -------------------------------------------------------------------------------


def test_the_more_urgent_comes_first_and_equals_in_order(connection: Any) -> None:
    """What says nothing has 0."""
    options = [{"priority": 0}, {"priority": 255}, {"priority": 7}, {}, {"priority": 255}, {"priority": 7}]
    for n, said in enumerate(options):
        send(connection, "jobs", n, **said)
    got = [message.payload for message in Inbox(connection, Queue("jobs")).take(6)]
    assert got == [1, 4, 2, 5, 0, 3]


def test_priorities_of_stock_redis_on_demand(url: str) -> None:
    with Connection(url, transport_options={"priority_zero_is_highest": True}) as connection:
        for priority in (9, 0, 3):
            send(connection, "jobs", priority, priority=priority)
        got = [message.payload for message in Inbox(connection, Queue("jobs")).take(3)]
        assert got == [0, 3, 9]


def test_an_eta_is_kept_by_the_engine_and_not_by_the_consumer(connection: Any) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=0.6)
    for body, at in (("now", None), ("later", eta), ("much later", eta + timedelta(hours=1))):
        send(connection, "jobs", body, headers=task_headers(eta=at and at.isoformat()))
    assert office(connection).room.engine.stats("jobs").scheduled >= 1
    inbox = Inbox(connection, Queue("jobs"))
    assert inbox.take(1)[0].payload == "now"
    (later,) = inbox.take(1)
    assert later.payload == "later"
    assert datetime.now(UTC) >= eta - timedelta(milliseconds=2)  # by the clock of the store, in whole ms
    # Celery would hold it for as long as its clock is behind.
    assert later.headers["eta"] is None
    assert later.headers["x-postroom-eta"] == eta.isoformat()
    assert later.delivery_info["redelivered"] is False
    assert office(connection).room.engine.stats("jobs").scheduled == 1


@pytest.mark.parametrize("eta", ["aware", "naive", "elsewhere"])
def test_an_eta_in_many_years_is_kept_to_the_millisecond(connection: Any, url: str, eta: str) -> None:
    at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(days=30 * 365)
    given = {
        "aware": at,
        "naive": at.replace(tzinfo=None),
        "elsewhere": at.astimezone(timezone(timedelta(hours=-7))),
    }
    with Celery("app", broker=url, set_as_current=False) as app:
        app.send_task("shop.note", queue="jobs", eta=given[eta])
        app.send_task("shop.note", queue="jobs", countdown=31 * 365 * 86_400)
    first, second = office(connection).room.engine.find("jobs", State.SCHEDULED).entries
    assert first.message.due == int(at.timestamp() * 1_000)
    assert abs(second.message.due - first.message.due - 365 * 86_400_000) < 1_000 * PATIENCE
    assert (first.message.expires, second.message.expires) == (None, None)
    assert connection.default_channel.basic_get("jobs") is None


def test_an_eta_in_many_years_arrives_then_and_not_a_moment_before() -> None:
    years, now = timedelta(days=30 * 365), int(time.time() * 1_000)
    clock = [now]
    with Connection("postroom+memory://") as connection:
        office(connection).room.engine._clock = lambda: clock[0]
        eta = datetime.fromtimestamp(now / 1_000, UTC) + years
        send(connection, "jobs", 1, headers=task_headers(eta=eta.isoformat()))
        for _ in range(3):  # however many visibility timeouts there are until then
            clock[0] += int(years.total_seconds() * 250)
            office(connection).room.engine.sweep("jobs")
            assert connection.default_channel.basic_get("jobs") is None
        clock[0] = int(eta.timestamp() * 1_000) - 1
        assert connection.default_channel.basic_get("jobs") is None
        clock[0] += 1
        message = connection.default_channel.basic_get("jobs")
        assert message.headers["x-postroom-eta"] == eta.isoformat()
        assert (message.delivery_info["redelivered"], message.headers["x-delivery-count"]) == (False, 0)
        message.ack()
    postroom.celery.close_offices()


def test_delay_seconds_is_a_delay_too(connection: Any) -> None:
    send(connection, "jobs", "later", DelaySeconds=3600)
    stats = office(connection).room.engine.stats("jobs")
    assert (stats.ready, stats.scheduled) == (0, 1)


def task_headers(**more: Any) -> dict[str, Any]:
    id = str(uuid.uuid4())
    return {"task": "shop.note", "id": id, "root_id": id, "retries": 0, "timelimit": [None, None], **more}


# ---- what arrives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"\x00\xff raw", {"content_type": "application/octet-stream", "content_encoding": "binary"}),
        ("Zürich", {"content_type": "text/plain", "content_encoding": "utf-8"}),
        ({"n": [1, None, "ü"]}, {}),
        ({"n": 1}, {"serializer": "pickle"}),
    ],
)
def test_a_body_arrives_as_it_was_sent(connection: Any, body: Any, options: Any) -> None:
    send(connection, "jobs", body, **options)
    message = connection.default_channel.basic_get("jobs")
    got = loads(message.body, message.content_type, message.content_encoding, force=True)
    assert got == body
    message.ack()


def test_headers_and_properties_arrive_as_they_were_sent(connection: Any) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers = task_headers(group="g", timelimit=[30, 20], mine=at, stamps={"a": ["b"]}, ignore_result=True)
    send(connection, "jobs", 1, headers=headers, reply_to="me", correlation_id=headers["id"])
    message = connection.default_channel.basic_get("jobs")
    assert headers.items() <= message.headers.items()
    assert message.properties["reply_to"] == "me"
    assert message.properties["correlation_id"] == headers["id"]
    assert message.delivery_info["routing_key"] == "jobs"


def test_the_task_is_what_operators_see(connection: Any) -> None:
    headers = task_headers()
    send(connection, "jobs", {"to": "ada"}, headers=headers)
    (entry,) = office(connection).room.engine.find("jobs", State.READY).entries
    assert (entry.message.kind, entry.message.correlation_id) == ("shop.note", headers["id"])
    assert entry.message.body == b'{"to": "ada"}'


@pytest.mark.parametrize("name", ["i" * 250, "é" * 150, "é" * 99 + "€€"])
def test_a_long_name_arrives_as_it_was_sent(connection: Any, name: str) -> None:
    headers = task_headers(id=name, root_id=name, task=f"shop.{name}")
    send(connection, "jobs", 1, headers=headers, correlation_id=name)
    message = connection.default_channel.basic_get("jobs")
    assert headers.items() <= message.headers.items()
    assert message.properties["correlation_id"] == name
    (entry,) = office(connection).room.engine.find("jobs", State.PROCESSING).entries
    assert len(entry.message.correlation_id) >= 99, "and operators see how it begins"
    assert name.startswith(entry.message.correlation_id)


def test_a_publish_that_is_repeated_is_one_message(connection: Any) -> None:
    channel = connection.default_channel
    properties: dict[str, Any] = {"delivery_mode": 2}
    for _ in range(3):  # as kombu does it after an error: everything anew but the properties
        message = channel.prepare_message("{}", 0, "application/json", "utf-8", {}, properties)
        channel.basic_publish(message, "", "jobs")
    assert office(connection).room.engine.stats("jobs").ready == 1


def test_whoever_repeats_an_apply_async_can_name_its_message(connection: Any, url: str) -> None:
    app = Celery("app", broker=url, set_as_current=False)
    for id in (new_id(),) * 2:
        app.send_task("some.task", queue="jobs", postroom_id=id)
    assert office(connection).room.engine.stats("jobs").ready == 1
    app.close()


def test_a_publish_that_no_replica_confirms_is_repeated_under_its_id(redis_server: Any) -> None:
    """Also when its task is over before the repetition arrives."""
    url = f"postroom+{redis_server.url()}?durability=replicated&replication_timeout=20ms"
    with Connection(url) as connection:
        engine = office(connection).room.engine
        put = engine.put
        ids: list[str] = []

        def watched(queue: str, messages: Any) -> Any:
            ids.extend(message.id for message in messages)
            try:
                return put(queue, messages)
            finally:
                for leased in engine.claim(queue, ClaimRequest(n=10)).deliveries:
                    engine.settle(queue, [Settlement(leased.receipt)])

        engine.put = watched
        producer = Producer(connection.channel(), routing_key="sure")
        with pytest.raises(OperationalError) as caught:
            producer.publish({}, retry=True, retry_policy={"max_retries": 2})
        assert isinstance(caught.value.__cause__, Uncertain)
        assert len(ids) >= 3  # kombu before 5.7 tries once more
        assert len(set(ids)) == 1
        assert engine.stats("sure").counters["acked"] == 1


def test_a_retry_is_one_message_however_often_its_task_runs(connection: Any) -> None:
    """A task that ran twice publishes its retry twice; another message of the same task id is another."""
    app = Celery(set_as_current=False)

    @app.task(name="shop.flaky", shared=False)  # another test's app must not have it
    def flaky() -> None: ...

    def retry(task_id: str, message: str, retries: int) -> None:
        flaky.push_request(id=task_id, properties={"delivery_tag": f"{message}:token"})
        _task_stack.push(flaky)
        try:
            send(connection, "jobs", {}, headers=task_headers(id=task_id, retries=retries))
        finally:
            _task_stack.pop()
            flaky.pop_request()

    engine = office(connection).room.engine
    for task_id, message, retries, waiting in [
        ("t", "m", 1, 1), ("t", "m", 1, 1), ("t", "m", 2, 2), ("u", "m", 1, 3), ("t", "other", 1, 4),
    ]:  # fmt: skip
        retry(task_id, message, retries)
        assert engine.stats("jobs").ready == waiting
    while message := connection.default_channel.basic_get("jobs", no_ack=True):
        assert message.headers["task"] == "shop.note"
    retry("t", "m", 1)  # remembered, also when the first one is done
    assert engine.stats("jobs").ready == 0


# ---- how it ends ----------------------------------------------------------------------------------


def test_a_rejected_message_comes_back_and_says_so(connection: Any) -> None:
    send(connection, "jobs", 1)
    inbox = Inbox(connection, Queue("jobs"))
    (message,) = inbox.take(1)
    assert message.delivery_info["redelivered"] is False
    assert message.headers["x-delivery-count"] == 0
    message.reject(requeue=True)
    (again,) = inbox.take(1)
    assert again.delivery_info["redelivered"] is True
    assert again.headers["x-delivery-count"] == 1
    again.ack()
    inbox.channel.close()
    assert office(connection).room.engine.stats("jobs").counters["acked"] == 1


def test_what_is_rejected_waits_a_second_and_jumps_no_queue(connection: Any) -> None:
    for body in ("rejected", "next"):
        send(connection, "jobs", body)
    inbox = Inbox(connection, Queue("jobs"), prefetch=1)
    inbox.take(1)[0].reject(requeue=True)
    assert [message.payload for message in inbox.take(1)] == ["next"]
    find = office(connection).room.engine.find
    # Ready on a machine that is slow.
    (back,) = find("jobs", State.SCHEDULED).entries + find("jobs", State.READY).entries
    assert back.due - back.attempts[-1].ended_at == 1_000


def test_what_is_rejected_for_good_is_a_dead_letter(connection: Any) -> None:
    send(connection, "jobs", 1, headers=task_headers())
    inbox = Inbox(connection, Queue("jobs"))
    (message,) = inbox.take(1)
    try:
        raise ValueError("no such customer")
    except ValueError:
        message.reject()
    inbox.channel.close()
    (letter,) = dead(connection, "jobs")
    assert letter.failure.summary == "ValueError: no such customer"


def test_the_delivery_limit_ends_in_a_dead_letter(url: str) -> None:
    with Connection(url, transport_options={"delivery_limit": 2}) as connection:
        send(connection, "jobs", 1)
        inbox = Inbox(connection, Queue("jobs"))
        for _ in range(2):
            inbox.take(1)[0].reject(requeue=True)
        inbox.wait(lambda: dead(connection, "jobs"))


class Worker:
    """What Celery's worker keeps in `celery.worker.state`, for a consumer that is one."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.active_requests: set[Any] = set()
        self.reserved_requests: set[Any] = set()

    def begin(self, message: Any) -> None:
        self.active_requests.add(Request(message))


class Request:
    def __init__(self, message: Any) -> None:
        self.message = message


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setitem(sys.modules, "celery.worker.state", made)
    monkeypatch.setattr("postroom.celery.presence._joined", [True])
    return made


def test_a_lost_connection_takes_nothing_from_a_worker(connection: Any, worker: Worker) -> None:
    for n in range(2):
        send(connection, "jobs", n)
    begun, reserved = Inbox(connection, Queue("jobs")).take(2)
    worker.begin(begun)
    connection.collect()
    engine = office(connection).room.engine
    assert engine.stats("jobs").processing == 2
    # Celery forgets what it had not begun; that goes back, and nothing of it counts.
    payload = reserved.payload
    del reserved
    (again,) = Inbox(connection, Queue("jobs")).take(1)
    assert again.payload == payload
    begun.ack()
    office(connection).flush()
    stats = engine.stats("jobs")
    assert (stats.processing, stats.counters["acked"], stats.counters["retried"]) == (1, 1, 0)


def test_a_lost_connection_gives_back_what_only_its_error_still_holds(
    connection: Any, worker: Worker
) -> None:
    """A traceback has the frames that had the message, and itself; nobody else does."""
    send(connection, "jobs", 1)
    (message,) = Inbox(connection, Queue("jobs")).take(1)
    gc.disable()
    try:
        message.itself = message
        del message
        connection.collect()
        (again,) = Inbox(connection, Queue("jobs")).take(1)
        assert again.payload == 1
    finally:
        gc.enable()


def test_a_lost_connection_leaves_to_a_pool_what_is_in_its_hands(connection: Any, worker: Worker) -> None:
    """Celery strikes it from its books, but threads have a queue of their own, and run it."""
    send(connection, "jobs", 1)
    (queued,) = Inbox(connection, Queue("jobs")).take(1)
    connection.collect()
    inbox = Inbox(connection, Queue("jobs"))
    send(connection, "jobs", 2)
    (other,) = inbox.take(1)  # so it has looked what was forgotten
    assert other.payload == 2
    for message in (queued, other):
        message.ack()
    office(connection).flush()
    stats = office(connection).room.engine.stats("jobs")
    assert (stats.depth, stats.counters["acked"], stats.counters["released"]) == (0, 2, 0)


def test_a_lost_connection_gives_back_what_another_consumer_had(connection: Any) -> None:
    send(connection, "jobs", 1)
    (message,) = Inbox(connection, Queue("jobs")).take(1)
    connection.collect()
    message.ack()  # too late, and no error
    (again,) = Inbox(connection, Queue("jobs")).take(1)
    assert again.delivery_info["redelivered"] is True


def test_a_start_is_reported_and_a_prefetch_is_not(connection: Any, worker: Worker) -> None:
    for n in range(3):
        send(connection, "jobs", n)
    inbox = Inbox(connection, Queue("jobs"))
    begun, *_ = inbox.take(3)
    worker.begin(begun)
    engine = office(connection).room.engine

    def started() -> list[str]:
        entries = engine.find("jobs", State.PROCESSING).entries
        return [entry.id for entry in entries if entry.started_at is not None]

    inbox.wait(started)
    assert started() == [begun.delivery_tag.partition(":")[0]]


def test_a_task_with_a_long_id_is_known_to_be_acked_early(
    connection: Any, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    early: list[str] = []
    monkeypatch.setattr(office(connection), "ack_early", early.append)
    send(connection, "jobs", 1, headers=task_headers(id="i" * 250))
    message = connection.default_channel.basic_get("jobs")
    worker.requests["i" * 250] = Request(message)
    message.ack()
    assert early == [message.delivery_tag]


def test_what_nobody_was_handed_goes_back_when_the_channel_closes(connection: Any) -> None:
    for n in range(5):
        send(connection, "jobs", n)
    inbox = Inbox(connection, Queue("jobs"), prefetch=5)
    connection.drain_events(timeout=PATIENCE)  # hands on one, claims all
    engine = office(connection).room.engine
    assert engine.stats("jobs").processing == 5
    inbox.channel.close()
    stats = engine.stats("jobs")
    assert (stats.ready, stats.processing, stats.counters["retried"]) == (5, 0, 0)


def test_a_full_queue_is_the_publishers_to_know(connection: Any) -> None:
    room = office(connection).room
    room.queue("jobs", postroom.Policy(capacity=1))
    send(connection, "jobs", 1)
    with pytest.raises(postroom.QueueFull):
        send(connection, "jobs", 2, retry=True, retry_policy={"max_retries": 2, "interval_start": 0.01})
    assert not issubclass(postroom.QueueFull, connection.connection_errors)
    assert issubclass(EngineUnavailable, connection.connection_errors)


# ---- exchanges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_every_queue_that_is_bound_gets_a_copy_of_its_own(connection: Any, kind: str) -> None:
    exchange = Exchange("shop", kind)
    queues = [Queue(name, exchange, routing_key="order.new") for name in ("bills", "parcels")]
    inbox = Inbox(connection, *queues)
    send(connection, "order.new", 1, exchange=exchange)
    first, second = inbox.take(2)
    assert {first.delivery_info["routing_key"], second.delivery_info["routing_key"]} == {"order.new"}
    first.ack()
    inbox.channel.close()
    engine = office(connection).room.engine
    assert sorted(engine.stats(name).ready for name in ("bills", "parcels")) == [0, 1]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [("order.*", "order.new", "order.new.big"), ("order.#", "order", "orders"), ("#", "a.b.c", None)],
)
def test_a_topic_exchange_matches_words(
    connection: Any, pattern: str, matching: str, other: str | None
) -> None:
    exchange = Exchange("shop", "topic")
    inbox = Inbox(connection, Queue("orders", exchange, routing_key=pattern))
    if other:
        send(connection, other, "other", exchange=exchange)
    send(connection, matching, "matching", exchange=exchange)
    assert inbox.take(1)[0].payload == "matching"


def test_a_process_that_declared_nothing_reaches_a_fanout_exchange(connection: Any, url: str) -> None:
    news = Exchange("news", "fanout")
    boxes = [Inbox(connection, Queue(f"reader{n}", news, auto_delete=True)) for n in range(2)]
    office(connection).exchanges._types.clear()  # as in a process that never declared it
    with Connection(url) as other:
        send(other, "whatever", "extra", exchange="news")
    boxes[0].wait(lambda: all(box.messages for box in boxes))
    for box in boxes:
        (message,) = box.take(1)
        assert message.payload == "extra"
        message.ack()


def test_broadcasts_are_not_lost_while_a_connection_is(connection: Any, url: str) -> None:
    queue = Queue("reader", Exchange("news", "fanout"), auto_delete=True)
    Inbox(connection, queue)
    connection.collect()
    with Connection(url) as other:
        send(other, "", "meanwhile", exchange="news")
    assert Inbox(connection, queue).take(1)[0].payload == "meanwhile"


def test_a_broadcast_is_neither_acked_nor_requeued_in_the_store(connection: Any) -> None:
    news = Exchange("news", "fanout")
    inbox = Inbox(connection, Queue("reader", news, auto_delete=True))
    for text in ("acked", "rejected", "last"):
        send(connection, "", text, exchange="news")
    acked, rejected, last = inbox.take(3)
    acked.ack()
    rejected.reject(requeue=True)
    last.ack()
    send(connection, "", "next", exchange="news")
    assert inbox.take(1)[0].payload == "next", "what was rejected does not come again"
    engine = office(connection).room.engine
    assert [info.name for info in engine.queues() if any(held(engine.stats(info.name)))] == []


def test_what_nobody_can_read_stops_no_reader_of_broadcasts(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(connection, Queue("reader", Exchange("news", "fanout"), auto_delete=True), no_ack=True)
    (topic,) = office(connection).fanout.topics("reader")
    office(connection).room.engine.publish(topic, [b"by somebody else"])
    send(connection, "", "ours", exchange="news")
    assert inbox.take(1)[0].payload == "ours"
    assert [vars(record)["event"] for record in caplog.records] == ["celery.unreadable"]


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_nobody_can_read_is_a_dead_letter_for_who_gets_it(connection: Any, no_ack: bool) -> None:
    room = office(connection).room
    room.queue("jobs").put(b"by somebody else", headers={"k": "[]"})
    send(connection, "jobs", "ours")
    channel = connection.channel()
    assert channel.basic_get("jobs", no_ack=no_ack).payload == "ours", "it is no empty queue"
    assert channel.basic_get("jobs", no_ack=no_ack) is None
    assert len(office(connection).held) == (0 if no_ack else 1)
    until(lambda: room.engine.stats("jobs").dead == 1)


def test_an_ack_that_fails_takes_no_message_from_who_gets_it(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(connection, "jobs", "ours")
    engine, failing = office(connection).room.engine, [EngineUnavailable("away")]
    real = engine.turn

    def turn(queue: str, settlements: Any, *rest: Any) -> Any:
        if settlements and failing:
            raise failing.pop()
        return real(queue, settlements, *rest)

    monkeypatch.setattr(engine, "turn", turn)
    assert connection.channel().basic_get("jobs", no_ack=True).payload == "ours"
    assert not failing
    until(lambda: engine.stats("jobs").counters["acked"] == 1)


def test_a_header_called_task_is_whatever_a_program_says(connection: Any) -> None:
    send(connection, "jobs", "ours", headers={"task": ["no", "name"]})
    got: list[Any] = []
    with connection.Consumer([Queue("jobs")], callbacks=[lambda body, message: got.append(message)]):
        connection.drain_events(timeout=PATIENCE)
    assert [message.headers["task"] for message in got] == [["no", "name"]]
    got[0].ack()


def held(stats: Any) -> list[int]:
    """What a queue holds."""
    return [stats.ready, stats.scheduled, stats.processing, stats.dead]


@pytest.mark.parametrize(("patterns", "heard"), [(True, ["worker"]), (False, ["task", "worker"])])
def test_a_wildcard_in_a_fanout_binding_filters_unless_that_is_off(
    url: str, patterns: bool, heard: list[str]
) -> None:
    events = Exchange("celeryev", "fanout")
    gossip = Queue("gossip", events, routing_key="worker.#", auto_delete=True)
    with Connection(url, transport_options={"fanout_patterns": patterns}) as connection:
        inbox = Inbox(connection, gossip, no_ack=True)
        send(connection, "task.sent", "task", exchange="celeryev")
        send(connection, "worker.heartbeat", "worker", exchange="celeryev")
        assert sorted(message.payload for message in inbox.take(len(heard))) == heard


def test_a_transient_queue_goes_with_its_user(connection: Any) -> None:
    replies = Queue("reply.1", Exchange("replies"), routing_key="1", auto_delete=True, expires=10)
    inbox = Inbox(connection, replies, no_ack=True)
    send(connection, "1", "pong", exchange="replies")
    assert inbox.take(1)[0].payload == "pong"
    inbox.consumer.cancel()
    inbox.channel.after_reply_message_received("reply.1")
    engine = office(connection).room.engine
    assert "reply.1" not in [info.name for info in engine.queues()]
    assert office(connection).exchanges.bindings("replies") == []


def test_a_transient_queue_whose_user_died_is_collected(connection: Any) -> None:
    replies = Queue("reply.2", Exchange("replies"), routing_key="2", auto_delete=True, expires=0.2)
    replies(connection.default_channel).declare()
    send(connection, "2", "pong", exchange="replies")
    transients = office(connection).transients
    transients.ours.clear()  # as after kill -9
    until(transients.collect)
    engine = office(connection).room.engine
    assert "reply.2" not in [info.name for info in engine.queues()]
    until(lambda: not office(connection).exchanges.bindings("replies"))  # which live a moment longer


def test_a_transient_queue_lives_while_its_user_only_waits(connection: Any) -> None:
    """A client of remote control has nothing to do until the first answer, however late that is."""
    replies = Queue("reply.3", Exchange("replies"), routing_key="3", auto_delete=True, expires=1)
    Inbox(connection, replies, no_ack=True)
    ours = office(connection).transients.ours["reply.3"]
    declared = ours.signed_at
    until(lambda: ours.signed_at > declared + 1)


def test_declare_purge_delete(connection: Any) -> None:
    channel = connection.default_channel
    with pytest.raises(ChannelError):
        channel.queue_declare("jobs", passive=True)
    queue = Queue("jobs", Exchange("jobs"), routing_key="jobs")(channel)
    queue.declare()
    for n in range(3):
        send(connection, "jobs", n, exchange="jobs")
    assert channel.queue_declare("jobs", passive=True).message_count == 3
    assert queue.purge() == 3
    queue.delete()
    with pytest.raises(ChannelError):
        channel.queue_declare("jobs", passive=True)
    assert channel.get_table("jobs") == []


def test_a_store_that_lost_everything_is_told_again_what_queues_promise(redis_server: Any) -> None:
    """As a Redis without persistence after a restart, while its workers go on."""
    with Connection(f"postroom+{redis_server.url()}") as connection:
        inbox = Inbox(
            connection, Queue("jobs"), Queue("others", Exchange("shop", "topic"), routing_key="a.#")
        )
        stranger = Connection(f"postroom+{redis_server.url()}?client_name=stranger")
        engine = office(connection).room.engine
        inbox.drain()
        promised = engine.queues(["jobs"])[0].policy
        redis_server.ask("FLUSHALL")
        send(connection, "jobs", 1)  # by a process that has declared it, and does not ask again
        inbox.wait(lambda: [info.policy for info in engine.queues(["jobs"])] == [promised])
        assert (promised.lease, promised.ack_timeout, promised.max_attempts) == (60_000, None, 20)
        with stranger:  # has told the store nothing
            send(stranger, "a.b", "topic", exchange="shop")
        inbox.wait(lambda: "topic" in [message.payload for message in inbox.messages])
    postroom.celery.close_offices()


def test_a_publisher_binds_again_what_the_store_has_lost(redis_server: Any) -> None:
    with Connection(f"postroom+{redis_server.url()}") as connection:
        Queue("jobs", Exchange("shop", "topic"), routing_key="a.#")(connection.default_channel).declare()
        redis_server.ask("FLUSHALL")
        for n in range(2):
            send(connection, "a.b", n, exchange="shop")
        assert office(connection).room.engine.stats("jobs").ready == 2
    postroom.celery.close_offices()


def test_what_is_bound_to_nothing_is_said(connection: Any, caplog: pytest.LogCaptureFixture) -> None:
    Exchange("shop", "topic")(connection.default_channel).declare()
    send(connection, "a.b", 1, exchange="shop")
    assert [(vars(each)["event"], vars(each)["routing_key"]) for each in caplog.records] == [
        ("celery.unroutable", "a.b")
    ]


def test_what_others_have_unbound_stays_unbound(connection: Any) -> None:
    queue = Queue("jobs", Exchange("shop", "topic"), routing_key="a.#")(connection.default_channel)
    queue.declare()
    Exchanges(office(connection).room.engine.records).unbind("shop", Binding("a.#", "jobs"))
    send(connection, "a.b", 1, exchange="shop")
    assert office(connection).room.engine.stats("jobs").ready == 0


@pytest.mark.parametrize("theirs", [postroom.Policy(lease="5s"), postroom.Policy(capacity=9)])
def test_a_policy_that_somebody_else_gave_is_left_alone(connection: Any, theirs: postroom.Policy) -> None:
    inbox = Inbox(connection, Queue("jobs"))
    room = office(connection).room
    room.queue("jobs", theirs)
    room.forget_policy("jobs")
    send(connection, "jobs", 1)
    inbox.take(1)
    assert room.engine.queues(["jobs"])[0].policy == theirs


# ---- batches --------------------------------------------------------------------------------------


def test_a_batch_is_one_put(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, puts = office(connection).room.engine, []
    real = engine.put

    def put(queue: str, messages: Any) -> Any:
        puts.append(len(messages))
        return real(queue, messages)

    monkeypatch.setattr(engine, "put", put)
    producer = Producer(connection.default_channel)
    if not hasattr(producer, "batch"):
        pytest.skip("kombu before 5.7 has no batches")
    with producer.batch():
        for n in range(100):
            producer.publish(n, routing_key="jobs")
    assert puts == [100]
    assert engine.stats("jobs").ready == 100


def test_a_group_is_one_put_a_queue(connection: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery("app", broker=url, set_as_current=False)
    engine, puts = office(connection).room.engine, []
    real = engine.put

    def put(queue: str, messages: Any) -> Any:
        puts.append((queue, len(messages)))
        return real(queue, messages)

    monkeypatch.setattr(engine, "put", put)
    publish_group([app.signature("some.task", queue=name) for name in ("red", "blue") * 20], app=app)
    assert sorted(puts) == [("blue", 20), ("red", 20)]
    app.close()


def test_a_group_that_finds_no_room_says_so(connection: Any, url: str) -> None:
    app = Celery("app", broker=url, set_as_current=False)
    room = office(connection).room
    room.queue("jobs", postroom.Policy(capacity=1))
    with pytest.raises(QueueFull):
        publish_group([app.signature("some.task", queue="jobs")] * 2, app=app)
    assert room.engine.stats("jobs").ready == 0
    app.close()


def test_a_flush_that_failed_can_be_repeated(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(exceptions, "BatchPublishError"):
        pytest.skip("kombu before 5.7 has no batches")
    batch = connection.default_channel.create_publish_batch(10)
    engine, failing = office(connection).room.engine, [EngineUnavailable("away")]
    real = engine.put

    def put(queue: str, messages: Any) -> Any:
        if queue == "blue" and failing:
            raise failing.pop()
        return real(queue, messages)

    monkeypatch.setattr(engine, "put", put)
    for queue in ("red", "blue"):
        message = connection.default_channel.prepare_message("1")
        batch.publish(message, exchange="", routing_key=queue)
    with pytest.raises(exceptions.BatchPublishError, match="away"):
        batch.flush()
    batch.flush()
    assert [engine.stats(queue).counters["put"] for queue in ("red", "blue")] == [1, 1]


def test_a_flush_that_was_put_in_part_is_repeated_without_that_part(connection: Any) -> None:
    if not hasattr(exceptions, "BatchPublishError"):
        pytest.skip("kombu before 5.7 has no batches")
    queue = office(connection).room.queue("jobs", postroom.Policy(capacity=1_000))
    batch = connection.default_channel.create_publish_batch(5_000)
    for n in range(1_500):
        message = connection.default_channel.prepare_message(str(n))
        batch.publish(message, exchange="", routing_key="jobs")
    with pytest.raises(exceptions.BatchPublishError, match="1000 messages are safely put, 500 are not"):
        batch.flush()
    got = [message.data for message in done(queue)]
    batch.flush()
    got += [message.data for message in done(queue)]
    assert sorted(map(int, got)) == list(range(1_500))
    batch.flush()
    assert queue.stats().counters["put"] == 1_500


def done(queue: Any) -> Iterator[Any]:
    """All that a queue holds, worked on to its end."""
    while deliveries := queue.claim_many(500, 0):
        for delivery in deliveries:
            delivery.ack()
            yield delivery


def test_a_group_declares_each_queue_once_and_reaches_what_its_exchange_is_bound_to(
    connection: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has declared the exchanges before: the group itself must bind them, but not task by task."""
    app = Celery("app", broker=url, set_as_current=False)
    topic = Exchange("topics", type="topic")
    app.conf.task_queues = [Queue(name, topic, routing_key=f"{name}.*") for name in ("red", "blue")]
    bound: list[str] = []
    bind = Queue.bind

    def counted(queue: Any, channel: Any) -> Any:
        bound.append(queue.name)
        return bind(queue, channel)

    monkeypatch.setattr(Queue, "bind", counted)
    tasks = [app.signature("some.task", queue=name, routing_key=f"{name}.x") for name in ("red", "blue") * 5]
    for _ in range(2):
        publish_group(tasks, app=app)
    engine = office(connection).room.engine
    assert [engine.stats(name).ready for name in ("red", "blue")] == [10, 10]
    assert bound == ["red", "blue"]
    app.close()


def test_a_prefetch_is_claimed_in_one_turn_and_acks_ride_along(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(64):
        send(connection, "jobs", n)
    engine, turns = office(connection).room.engine, []
    real = engine.turn

    def turn(queue: str, settlements: Any, starts: Any, request: Any) -> Any:
        turns.append((len(settlements), request.n if request else None))
        return real(queue, settlements, starts, request)

    # Nothing is sent or claimed because of a pause of the machine.
    monkeypatch.setattr("postroom.celery.office.PATIENCE", 10 * PATIENCE)
    monkeypatch.setattr("postroom.celery.intake._POSTPONE", 10 * PATIENCE)
    monkeypatch.setattr(engine, "turn", turn)
    inbox = Inbox(connection, Queue("jobs"), prefetch=16)
    done = 0
    while done < 64:
        connection.drain_events(timeout=PATIENCE)
        for message in inbox.take(1):
            message.ack()
            done += 1
    inbox.channel.close()
    assert turns == [(0, 16), (16, 16), (16, 16), (16, 16), (16, None)]
    assert engine.stats("jobs").counters["acked"] == 64


def test_a_flush_waits_for_what_another_thread_is_sending(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(connection, "jobs", 1)
    inbox = Inbox(connection, Queue("jobs"))
    (message,) = inbox.take(1)
    engine = office(connection).room.engine
    real, sending, arrives = engine.turn, threading.Event(), threading.Event()

    def slow(*turn: Any) -> Any:
        sending.set()
        assert arrives.wait(PATIENCE)
        return real(*turn)

    monkeypatch.setattr(engine, "turn", slow)
    message.ack()
    assert sending.wait(PATIENCE)  # the office's own thread, by its timer
    flushing = threading.Thread(target=office(connection).flush)
    flushing.start()
    flushing.join(0.2)
    assert flushing.is_alive()
    arrives.set()
    flushing.join(PATIENCE)
    assert not flushing.is_alive()
    assert engine.stats("jobs").counters["acked"] == 1


def test_a_flush_does_not_wait_for_what_is_sent_after_it_began(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy process always has something on its way."""
    for n in range(2):
        send(connection, "jobs", n)
    first, second = Inbox(connection, Queue("jobs")).take(2)
    shared, engine = office(connection), office(connection).room.engine
    real, sending = engine.turn, threading.Semaphore(0)
    arrive = {message.delivery_tag: threading.Event() for message in (first, second)}
    waiting = threading.Event()
    wait_for = shared._came_back.wait_for

    def slow(queue: str, settlements: Any, *turn: Any) -> Any:
        sending.release()
        (receipt,) = (settlement.receipt for settlement in settlements)
        assert arrive[f"{receipt.id}:{receipt.token}"].wait(PATIENCE)
        return real(queue, settlements, *turn)

    def noted(*given: Any) -> Any:
        waiting.set()
        return wait_for(*given)

    monkeypatch.setattr("postroom.celery.office._LONGEST_TURN", 4 * PATIENCE)
    monkeypatch.setattr(engine, "turn", slow)
    first.ack()
    assert sending.acquire(timeout=PATIENCE)  # by the office's own thread, which waits for it
    monkeypatch.setattr(shared._came_back, "wait_for", noted)
    flushing = threading.Thread(target=shared.flush)
    flushing.start()
    assert waiting.wait(PATIENCE)
    second.ack()
    later = threading.Thread(target=shared.turn, args=("jobs",))
    later.start()
    assert sending.acquire(timeout=PATIENCE)
    arrive[first.delivery_tag].set()
    flushing.join(PATIENCE)
    ended = not flushing.is_alive()
    arrive[second.delivery_tag].set()
    later.join(PATIENCE)
    assert ended


def test_a_queue_without_room_keeps_no_event_loop_awake(connection: Any) -> None:
    send(connection, "full", 1)
    full, other = Inbox(connection, Queue("full"), prefetch=1), Inbox(connection, Queue("other"))
    full.take(1)
    began, intake = time.monotonic(), connection.transport.intake
    other.wait(lambda: intake._ask_at["other"] > began)  # until it was heard to have nothing
    assert other.messages == []
    # The second channel has room, but not for the first queue, which would like to be asked at once.
    assert intake._ask_at["full"] < began < intake._wake_at()


# ---- one process, forks, brokers ------------------------------------------------------------------


def test_a_forked_child_settles_nothing(connection: Any) -> None:
    send(connection, "jobs", 1)
    inbox = Inbox(connection, Queue("jobs"))
    (message,) = inbox.take(1)
    child = os.fork()
    if child == 0:
        inherited = office(connection)
        message.ack()  # what an exit handler of a library might do
        os._exit(0 if not inherited.held and not inherited.waits else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert office(connection).room.engine.stats("jobs").processing == 1
    message.ack()
    office(connection).flush()
    assert office(connection).room.engine.stats("jobs").counters["acked"] == 1


def test_an_ack_that_waits_while_its_process_forks_is_the_parents_to_send(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.celery.office.PATIENCE", 10 * PATIENCE)
    send(connection, "jobs", 1)
    (message,) = Inbox(connection, Queue("jobs")).take(1)
    message.ack()
    child = os.fork()
    if child == 0:
        office(connection).flush()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine = office(connection).room.engine
    assert engine.stats("jobs").counters["acked"] == 0
    office(connection).flush()
    assert (engine.stats("jobs").counters["acked"], engine.stats("jobs").processing) == (1, 0)


ENDS = """
import sys
import postroom.celery.office
from kombu import Connection, Consumer, Queue
postroom.celery.office.PATIENCE = 1_000
connection = Connection(sys.argv[1])
channel = connection.channel()
channel.basic_qos(0, 3, False)
got = []
Consumer(channel, [Queue("jobs")], on_message=got.append, accept=["json"]).consume()
while len(got) < 2:
    connection.drain_events(timeout=30)
got[0].ack()
sys.exit()
"""


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_a_program_that_ends_without_a_word_sends_its_acks_and_hands_back_the_rest(
    connection: Any, url: str
) -> None:
    for n in range(3):
        send(connection, "jobs", n)
    subprocess.run([sys.executable, "-c", ENDS, url], check=True, timeout=4 * PATIENCE)
    stats = office(connection).room.engine.stats("jobs")
    assert (stats.counters["acked"], stats.processing, stats.ready) == (1, 0, 2)


def test_connections_of_one_process_share_their_room(connection: Any, url: str) -> None:
    with Connection(url) as other:
        assert office(other) is office(connection)


def test_the_next_broker_is_on_postroom_too(redis_server: Any) -> None:
    urls = f"{redis_server.url()};{redis_server.url(path='/1')}"
    with Connection(urls, transport="postroom.celery:Transport") as connection:
        connection.connect()
        send(connection, "jobs", 1)
        connection.maybe_switch_next()
        connection.ensure_connection(max_retries=1)
        assert connection.transport.driver_name == "postroom"
        send(connection, "jobs", 2)
        assert connection.default_channel.basic_get("jobs").payload == 2
    postroom.celery.close_offices()


@pytest.mark.parametrize("query", ["", "?db=3", "?virtual_host=3"])
def test_a_unix_socket(query: str) -> None:
    with servers.single({"unixsocket": "redis.sock"}) as server:
        url = f"postroom+redis+socket://{server.folder}/redis.sock{query}"
        with Connection(url, transport_options={"client_name": "by-socket"}) as connection:
            send(connection, "jobs", 1)
            assert connection.default_channel.basic_get("jobs", no_ack=True).payload == 1
            assert b"db3" in server.ask("INFO", "keyspace") or not query
            assert b"name=by-socket" in server.ask("CLIENT", "LIST")
        postroom.celery.close_offices()


def test_plain_redis_urls_work_with_the_transport_by_name(redis_server: Any) -> None:
    with Connection(redis_server.url(), transport="postroom.celery:Transport") as connection:
        send(connection, "jobs", 1)
        assert connection.default_channel.basic_get("jobs", no_ack=True).payload == 1
    postroom.celery.close_offices()


def test_who_wants_to_hear_of_workers_does_not_read_what_is_said_of_tasks(connection: Any) -> None:
    """Each worker's gossip would read every event of every task."""
    events = Exchange("celeryev", type="fanout")
    gossip = Inbox(connection, Queue("gossip", events, routing_key="worker.#", auto_delete=True), no_ack=True)
    everything = Inbox(
        connection, Queue("everything", events, routing_key="#", auto_delete=True), no_ack=True
    )
    for key in ("task.sent", "worker.online", "other"):
        Producer(connection.default_channel).publish(key, exchange=events, routing_key=key, serializer="json")
    assert {message.payload for message in everything.take(3)} == {"task.sent", "worker.online", "other"}
    assert [message.payload for message in gossip.take(1)] == ["worker.online"]
    assert office(connection).fanout.topics("gossip") == ["exchange/celeryev/worker"]
    assert {key for queue, _, key in connection.default_channel.list_bindings() if queue == "gossip"} == {
        "worker.#"
    }


# ---- options --------------------------------------------------------------------------------------


def test_unknown_options_are_named(caplog: pytest.LogCaptureFixture) -> None:
    read({"visibility_timeout": 30, "visibilty_timeout": 30})
    assert [vars(record)["option"] for record in caplog.records] == ["visibilty_timeout"]
    assert "did you mean visibility_timeout?" in caplog.text


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"stream_maxlen": 10, "sep": "."}, []),
        ({"fanout_prefix": False}, ["fanout_prefix"]),
        ({"fanout_prefix": True}, []),  # what holds anyway
        ({"fanout_prefix": "/{db}.shop."}, []),
        ({"socket_keepalive_options": {}, "sentinel_kwargs": {"username": "u", "password": "p"}}, []),
        ({"socket_keepalive_options": {4: 60}}, ["socket_keepalive_options"]),
        ({"sentinel_kwargs": {"password": "p", "db": 1}}, ["sentinel_kwargs"]),
    ],
)
def test_options_without_effect_are_named_too(
    caplog: pytest.LogCaptureFixture, given: dict[str, Any], named: list[str]
) -> None:
    read(given)
    assert [vars(record)["option"] for record in caplog.records] == named


def test_as_many_broadcasts_are_kept_as_the_options_say(url: str, caplog: pytest.LogCaptureFixture) -> None:
    news = Exchange("news", "fanout")
    with Connection(url, transport_options={"stream_maxlen": 3}) as connection:
        inbox = Inbox(connection, Queue("slow", news), no_ack=True)
        for number in range(5):
            Producer(connection.channel(), news).publish(number)
        assert [message.payload for message in inbox.take(3)] == [2, 3, 4]
        assert "2 broadcasts are gone" in caplog.text


@pytest.mark.parametrize("wrong", [0, -1, True, "10", 100_001])
def test_a_number_of_broadcasts_has_bounds(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="stream_maxlen"):
        read({"stream_maxlen": wrong})


def test_a_fanout_prefix_sets_broadcasts_apart(url: str) -> None:
    news = Exchange("news", "fanout")
    with ExitStack() as stack:
        mine, theirs = (
            stack.enter_context(Connection(url, transport_options={"fanout_prefix": prefix}))
            for prefix in ("/{db}.mine.", "/{db}.theirs.")
        )
        inboxes = [Inbox(of, Queue(f"inbox-{n}", news, no_ack=True)) for n, of in enumerate((mine, theirs))]
        for n, connection in enumerate((mine, theirs)):
            Producer(connection.channel(), news).publish({"for": n})
        assert [inbox.take(1)[0].payload["for"] for inbox in inboxes] == [0, 1]
        assert not any(inbox.messages for inbox in inboxes)


@pytest.mark.parametrize(
    ("url", "path"), [("a,b", "/main/0"), ("a,b/3", "/main/3"), ("a,b/other/1", "/other/1")]
)
def test_the_primary_of_a_sentinel_setup_may_be_an_option(url: str, path: str) -> None:
    options = {"master_name": "main"}
    connection = Connection(f"postroom+redis+sentinel://{url}", transport_options=options)
    assert url_of(connection) == f"redis+sentinel://a,b{path}"


@pytest.mark.parametrize("sign", ["/", "?", "#"])
def test_a_password_that_is_not_written_as_it_must_be_is_in_no_message(sign: str) -> None:
    with pytest.raises(ConfigError, match="inside a password") as told:
        Connection(f"postroom+redis://:a{sign}s3cret@127.0.0.1:1/0").connect()
    assert "s3cret" not in str(told.value)


def test_sentinels_with_a_password_of_their_own_get_it_as_kombu_has_it() -> None:
    options = {"master_name": "main", "sentinel_kwargs": {"username": "watch", "password": "p@"}}
    login = "sentinel_username=watch&sentinel_password=p%40"
    sentinels = Connection("postroom+redis+sentinel://a,b", transport_options=options)
    assert url_of(sentinels) == f"redis+sentinel://a,b/main/0?{login}"
    # Kombu ignores it where there are no sentinels.
    assert url_of(Connection("postroom+redis://a/0", transport_options=options)) == "redis://a/0"


@pytest.mark.parametrize(
    ("given", "read_as"),
    [("redis", "rediss"), ("rediss", "rediss"), ("valkey", "valkeys"), ("valkeys", "valkeys"),
     ("redis+sentinel", "rediss+sentinel"), ("valkey+cluster", "valkeys+cluster")],
)  # fmt: skip
def test_broker_use_ssl_is_tls_whatever_the_server_is_called(given: str, read_as: str) -> None:
    trusted = {"ssl_ca_certs": "/ca.pem"}
    for said in ({"ssl": trusted}, {"transport_options": {"ssl": trusted}}):
        connection = Connection(f"postroom+{given}://host/0", **said)
        assert url_of(connection) == f"{read_as}://host/0?ssl_ca_certs=%2Fca.pem"


def test_options_of_the_store_go_into_its_url() -> None:
    options = {"global_keyprefix": "app1", "socket_timeout": 3, "max_connections": 4, "client_name": "web"}
    options |= {"socket_connect_timeout": 1.5, "health_check_interval": 30}
    options |= {"socket_keepalive": False, "retry_on_timeout": True}
    connection = Connection("postroom+redis://u:p%40@host:1234/2", transport_options=options)
    assert url_of(connection).startswith("redis://u:p%40@host:1234/2?prefix=app1&socket_timeout=3s&")
    made = urls.read(urlsplit(url_of(connection)))
    assert (made.prefix, made.max_connections, made.client_name) == ("app1", 4, "web")
    assert (made.socket_timeout, made.socket_connect_timeout, made.health_check_interval) == (3, 1.5, 30)
    assert (made.socket_keepalive, made.retry_on_timeout) == (False, True)
    assert "p%40" not in connection.as_uri()


def test_a_queue_promises_what_the_options_say(url: str) -> None:
    options = {"visibility_timeout": 7, "delivery_limit": 4}
    with Connection(url, transport_options=options) as connection:
        Queue("jobs")(connection.default_channel).declare()
        (info,) = office(connection).room.engine.queues(["jobs"])
        policy = info.policy
        assert (policy.lease, policy.ack_timeout, policy.max_attempts) == (7_000, None, 4)


def test_a_message_lives_as_long_as_the_options_say(url: str) -> None:
    """Nothing is lost for its age unless that is asked for, and then it is a dead letter."""
    expires = []
    for options in ({}, {"message_ttl": -1}, {"message_ttl": 259_200}):
        with Connection(url, transport_options=options) as connection:
            send(connection, "jobs", 1)
            (entry,) = office(connection).room.engine.find("jobs", State.READY).entries
            expires.append(entry.message.expires and entry.message.expires - entry.message.put_at)
            connection.default_channel.queue_purge("jobs")
    assert expires == [None, None, 259_200_000]
    with Connection(url, transport_options={"message_ttl": 0.05}) as connection:
        send(connection, "jobs", 1)
        engine = office(connection).room.engine
        until(lambda: engine.sweep("jobs") and engine.stats("jobs").dead == 1)
        assert dead(connection, "jobs")[0].failure.type == "Expired"


@pytest.mark.parametrize(
    "when", [{"headers": {"eta": 3_600}}, {"headers": {"eta": -3_600}}, {"DelaySeconds": 3_600}, {}]
)
def test_a_message_that_waits_for_its_time_does_not_expire_meanwhile(url: str, when: dict[str, Any]) -> None:
    """Its life begins when somebody may take it; an eta that is over is now."""
    ahead = max(0, when.get("DelaySeconds", 0) + when.get("headers", {}).get("eta", 0))
    if headers := when.get("headers"):
        eta = datetime.now(UTC) + timedelta(seconds=headers["eta"])
        when = {"headers": task_headers(eta=eta.isoformat())}
    with Connection(url, transport_options={"message_ttl": 60}) as connection:
        send(connection, "jobs", 1, **when)
        state = State.SCHEDULED if ahead else State.READY
        (entry,) = office(connection).room.engine.find("jobs", state).entries
        life = entry.message.expires - entry.message.put_at
        # The clocks of this process and of the store are read one after the other.
        assert abs(life - (ahead + 60) * 1_000) < PATIENCE * 1_000


def test_the_polling_interval_does_not_make_kombu_sleep(url: str) -> None:
    with Connection(url, transport_options={"polling_interval": 10}) as connection:
        assert connection.transport.polling_interval is None
