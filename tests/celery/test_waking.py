"""What wakes a consumer that sleeps: a ring, a timer for what is due, and a net below both."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Producer, Queue

from postroom.celery.intake import Intake
from postroom.celery.office import Office

PATIENCE = 30.0


class Timer:
    def __init__(self, delay: float, call: Callable[[], Any]) -> None:
        self.delay, self.call = delay, call
        self.at = time.monotonic() + delay
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True

    def fire(self) -> None:
        self.is_over = True
        self.call()


class Loop:
    """What the intake knows of Celery's hub, which goes round when a test says so."""

    _create_waker = None  # as a hub that wakes by itself has

    def __init__(self) -> None:
        self.on_tick: set[Callable[[], Any]] = set()
        self._ready: set[Any] = set()
        self._readers: dict[int, tuple[Callable[..., Any], Any]] = {}
        self.timers: list[Timer] = []

    def call_later(self, delay: float, call: Callable[[], Any]) -> Timer:
        self.timers.append(Timer(delay, call))
        return self.timers[-1]

    def add_reader(self, fd: int, call: Callable[..., Any], *args: Any) -> None:
        self._readers[fd] = call, args

    def remove(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def rung(self) -> list[int]:
        """What can be read: a hub does not sleep then."""
        return select.select(list(self._readers), [], [], 0)[0]

    def due(self) -> list[Timer]:
        now = time.monotonic()
        return [timer for timer in self.timers if not timer.is_over and timer.at <= now]

    def go_round(self) -> None:
        for fd in self.rung():
            call, args = self._readers[fd]
            call(*args)
        for timer in self.due():
            timer.fire()
        for tick in list(self.on_tick):
            tick()

    def until_it_sleeps(self) -> Timer:
        """The timer that it sleeps by."""
        end = time.monotonic() + PATIENCE
        self.go_round()
        while self.rung() or self.due():
            assert time.monotonic() < end, "it does not come to rest"
            self.go_round()
        (timer,) = [timer for timer in self.timers if not timer.is_over]
        return timer


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with Connection(url, transport_options={"polling_interval": 3_600}) as made:
        yield made


def consume(connection: Any) -> list[Any]:
    got: list[Any] = []
    Consumer(connection.default_channel, [Queue("jobs")], on_message=got.append, accept=["json"]).consume()
    return got


def test_the_loop_sleeps_until_something_is_due(connection: Any) -> None:
    loop, got = Loop(), consume(connection)
    before = time.monotonic()
    Producer(connection.channel()).publish(1, routing_key="jobs", DelaySeconds=5)
    connection.transport.register_with_event_loop(connection, loop)
    timer = loop.until_it_sleeps()
    assert timer.delay <= 5.1
    assert timer.at > before + 4.9
    assert not got


def test_the_loop_wakes_for_what_is_due_where_there_is_little_room(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than half of the prefetch is free, and no keeper rings: the one that led was killed, maybe."""
    monkeypatch.setattr(Office, "keep", lambda office: None)
    loop, got = Loop(), consume(connection)
    connection.default_channel.basic_qos(0, 4, False)
    for delay in (0, 0, 0, 3):
        Producer(connection.channel()).publish(delay, routing_key="jobs", DelaySeconds=delay)
    connection.transport.register_with_event_loop(connection, loop)
    loop.until_it_sleeps()
    assert len(got) == 3
    end, rounds = time.monotonic() + PATIENCE, 0
    while len(got) < 4:
        assert time.monotonic() < end, "nobody asks for it"
        if loop.rung() or loop.due():
            loop.go_round()
            rounds += 1
        time.sleep(0.005)
    assert rounds < 50, "it spins until then"


def test_what_comes_in_wakes_the_loop(connection: Any) -> None:
    loop, got = Loop(), consume(connection)
    connection.transport.register_with_event_loop(connection, loop)
    loop.until_it_sleeps()
    Producer(connection.channel()).publish(1, routing_key="jobs")
    end = time.monotonic() + PATIENCE
    while not got:
        assert time.monotonic() < end, "nothing rang"
        if loop.rung():
            loop.go_round()


def test_a_timer_that_was_set_ends_the_sleep_that_the_hub_had_in_mind(connection: Any) -> None:
    """A hub asks its timers how long to sleep, and then lets us tick."""
    loop = Loop()
    consume(connection)
    connection.transport.register_with_event_loop(connection, loop)
    asleep = loop.until_it_sleeps()
    asleep.fire()
    for tick in list(loop.on_tick):
        tick()
    assert loop.timers[-1] is not asleep
    assert loop.rung()


def test_a_ring_that_is_lost_is_made_up_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "_heard", lambda intake, names: None)
    with Connection(url, transport_options={"polling_interval": 0.2}) as connection:
        got = consume(connection)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)
        Producer(connection.channel()).publish(1, routing_key="jobs")
        connection.drain_events(timeout=10)  # without a net the lease is next, which is 60 s
        assert len(got) == 1
