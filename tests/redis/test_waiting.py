"""Waiting across processes: who wakes, what it costs the server, and what a lost connection costs."""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from postroom.engine import ClaimRequest
from postroom.engines.redis import urls, waiting
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.engines.redis.faults import is_uncertain
from postroom.engines.redis.routes import Route
from postroom.engines.redis.waiting import Listener
from postroom.errors import EngineUnavailable
from postroom.model import NewMessage, Settlement
from postroom.policy import Policy
from postroom.testing import ManualClock
from postroom.waiter import Waiter
from tests.redis import servers

RING, QUIET = 30.0, 0.1

Maker = Callable[..., RedisEngine]


@pytest.fixture
def make(server: servers.Server) -> Iterator[Maker]:
    """Open engines on a server without data, each as if in a process of its own."""
    made: list[RedisEngine] = []

    def engine(clock: ManualClock | None = None) -> RedisEngine:
        made.append(RedisEngine(Client(urls.read(urlsplit(server.url()))), "test", clock))
        return made[-1]

    yield engine
    while _waiters:
        _waiters.pop().close()
    for each in made:
        each.close()


#: What a test has armed; closed after it.
_waiters: list[Waiter] = []


def armed(engine: RedisEngine, *queues: str, topics: tuple[str, ...] = ()) -> Waiter:
    waiter = engine.waiter(queues, topics)
    _waiters.append(waiter)
    waiter.arm()
    return waiter


def listening(server: servers.Server, command: str, count: int = 1) -> None:
    """Wait until so many connections are inside of this command."""
    until = time.monotonic() + RING
    while time.monotonic() < until:
        if server.ask("CLIENT", "LIST").count(f" cmd={command} ".encode()) >= count:
            return
        time.sleep(0.005)
    raise AssertionError(f"nobody is inside of {command}")


def commands(server: servers.Server) -> int:
    """How many commands came from outside since the last `CONFIG RESETSTAT`, those of the test left out."""
    found = re.findall(r"cmdstat_(\w+):calls=(\d+)", server.ask("INFO", "commandstats").decode())
    return sum(int(calls) for name, calls in found if name in ("evalsha", "eval", "blpop", "xread"))


def test_a_put_wakes_one_of_many_processes(make: Maker, server: servers.Server) -> None:
    waiters = [armed(make(), "q") for _ in range(10)]
    listening(server, "blpop", 10)
    make().put("q", [NewMessage()])
    ready, _, _ = select.select(waiters, [], [], RING)
    assert len(ready) == 1
    assert sum(bool(waiter.wait(QUIET)) for waiter in waiters) == 1


def test_a_queue_that_is_armed_later_is_heard_too(make: Maker, server: servers.Server) -> None:
    engine = make()
    first = armed(engine, "a")
    listening(server, "blpop")
    second = armed(engine, "b")
    make().put("b", [NewMessage()])
    assert second.wait(RING) == {"b"}
    assert first.wait(0) == frozenset()


def test_a_topic_that_is_armed_later_is_heard_too(make: Maker, server: servers.Server) -> None:
    engine = make()
    first = armed(engine, topics=("a",))
    listening(server, "xread")
    second = armed(engine, topics=("b",))
    make().publish("b", [b"news"])
    assert second.wait(RING) == {"b"}
    assert first.wait(0) == frozenset()


def test_a_topic_that_is_armed_while_the_listener_begins_is_heard_too(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_BLOCK", 10 * RING)
    engine = make()
    waiters, command = list[Waiter](), engine._client.command

    def slow(*args: Any, key: bytes | None = None) -> Any:
        if args[0] == "XREVRANGE" and not waiters:
            waiters.append(armed(engine, topics=("second",)))
        return command(*args, key=key)

    monkeypatch.setattr(engine._client, "command", slow)
    armed(engine, topics=("first",))
    servers.until(lambda: bool(waiters), "nobody listens")
    make().publish("second", [b"!"])
    assert waiters[0].wait(RING) == {"second"}, "it is heard only when the command ends"


def test_a_token_that_nobody_here_waits_for_is_left_to_others(make: Maker, server: servers.Server) -> None:
    engine, other = make(), make()
    gone = armed(engine, "q")
    listening(server, "blpop")
    gone.disarm()
    make().put("q", [NewMessage()])
    assert armed(other, "q").wait(RING) == {"q"}


def test_a_token_is_left_to_others_although_the_server_is_full(make: Maker, server: servers.Server) -> None:
    engine, other, producer = make(), make(), make()
    producer.put("q", [NewMessage()])
    server.ask("DEL", "test:{q}:wake")
    gone = armed(engine, "q")
    listening(server, "blpop")
    gone.disarm()
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    try:
        producer._ringing.push("q", 1)
        assert armed(other, "q").wait(RING) == {"q"}
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


def test_a_step_without_an_answer_wakes_who_waits_here() -> None:
    """It may have been done, and its script has left them to this process."""
    with servers.single() as own:
        engine = RedisEngine(Client(urls.read(urlsplit(own.url(socket_timeout="500ms")))), "test")
        try:
            engine.put("q", [NewMessage()])
            waiter = armed(engine, "q")
            own.freeze()
            with pytest.raises(EngineUnavailable) as caught:
                engine.put("q", [NewMessage()])
            assert is_uncertain(caught.value)
            assert waiter.clear() == {"q"}
        finally:
            own.thaw()
            waiter.close()
            engine.close()


def test_whoever_waits_after_the_work_is_gone_is_not_woken(make: Maker) -> None:
    engine = make()
    for _ in range(3):
        engine.put("q", [NewMessage()])
    engine.claim("q", ClaimRequest(n=3))
    assert armed(make(), "q").wait(QUIET) == frozenset()


def test_of_many_processes_three_wake_for_a_due_time_and_the_others_later(make: Maker) -> None:
    clock = ManualClock()
    make(clock).put("q", [NewMessage(delay=5_000)])
    wakes = []
    for _ in range(6):
        engine = make(clock)
        request = ClaimRequest(waiter=armed(engine, "q"))
        wakes.append(engine.claim("q", request).next_wake)
    assert wakes == [5_000, 5_025, 5_050, 6_000, 6_000, 6_000]


def test_those_who_hear_of_an_earlier_due_time_wake_for_it(make: Maker) -> None:
    clock = ManualClock()
    producer = make(clock)
    producer.put("q", [NewMessage(delay=8_000)])
    engines = [make(clock) for _ in range(6)]
    waiters = [armed(engine, "q") for engine in engines]
    for engine, waiter in zip(engines, waiters, strict=True):
        engine.claim("q", ClaimRequest(waiter=waiter))
    producer.put("q", [NewMessage(delay=3_000)])
    # Whoever hears of it need not be one of the three who sat first.
    late = engines[5].claim("q", ClaimRequest(waiter=waiters[5]))
    assert late.next_wake <= 3_000


def test_a_seat_is_free_for_others_when_its_waiter_leaves(make: Maker) -> None:
    clock = ManualClock()
    make(clock).put("q", [NewMessage(delay=9_000)])
    engines = [make(clock) for _ in range(4)]
    waiters = [armed(engine, "q") for engine in engines]
    wakes = [
        engine.claim("q", ClaimRequest(waiter=waiter)).next_wake
        for engine, waiter in zip(engines, waiters, strict=True)
    ]
    assert wakes[3] - wakes[0] > 900
    waiters[0].close()
    assert engines[3].claim("q", ClaimRequest(waiter=waiters[3])).next_wake <= 9_000


def test_who_waits_costs_the_server_less_than_a_command_a_second(make: Maker, server: servers.Server) -> None:
    waiters = [armed(make(), "q", topics=("news",)) for _ in range(3)]
    listening(server, "blpop", 3)
    listening(server, "xread", 3)
    server.ask("CONFIG", "RESETSTAT")
    began = time.monotonic()
    time.sleep(3.0)  # a rate needs a span, in which each of them may have to ask anew once
    assert commands(server) < len(waiters) * (time.monotonic() - began)


def test_a_wake_up_takes_one_blocking_command(make: Maker, server: servers.Server) -> None:
    consumer, producer = make(), make()
    waiter = armed(consumer, "q")
    producer.put("q", [NewMessage()])
    assert waiter.wait(RING)
    # Whoever was rung listens again, and that command is counted when it begins.
    servers.until(lambda: b"blocked_clients:1" in server.ask("INFO", "clients"), "nobody listens again")
    server.ask("CONFIG", "RESETSTAT")
    for _ in range(50):  # while nobody listens, because the only waiter is awake
        producer.put("q", [NewMessage()])
    assert commands(server) == 50


def test_whoever_lost_its_connection_hears_again(make: Maker, server: servers.Server) -> None:
    waiter = armed(make(), "q", topics=("news",))
    listening(server, "blpop")
    listening(server, "xread")
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    other = make()
    other.put("q", [NewMessage()])
    heard = waiter.wait(RING)
    other.publish("news", [b"!"])
    until = time.monotonic() + RING
    while heard != {"q", "news"} and time.monotonic() < until:
        heard |= waiter.wait(0.5)
    assert heard == {"q", "news"}


def test_a_reader_whose_connections_are_cut_reads_every_entry_once_and_in_order(
    make: Maker, server: servers.Server
) -> None:
    reader = RedisEngine(Client(urls.read(urlsplit(server.url(client_name="reader")))), "test")
    publisher, read = make(), list[bytes]()
    expected = [b"%d" % number for number in range(300)]
    cursor = reader.read("news").cursor
    with reader.waiter((), ("news",)) as waiter:
        waiter.arm()
        end = time.monotonic() + 3 * RING
        for entry in expected:
            publisher.publish("news", [entry])
        cut(server, b"name=reader")
        while len(read) < len(expected) and time.monotonic() < end:
            waiter.wait(0.1)
            with contextlib.suppress(EngineUnavailable):
                page = reader.read("news", after=cursor, limit=7)
                cursor, missed = page.cursor, page.missed
                read += [entry.data for entry in page.entries]
                assert missed == 0
                cut(server, b"name=reader")
                waiter.ring()
    reader.close()
    assert read == expected


def cut(server: servers.Server, mark: bytes) -> None:
    """End all connections of one who is marked so."""
    for line in server.ask("CLIENT", "LIST").splitlines():
        if mark in line:
            server.ask("CLIENT", "KILL", "ID", line.split()[0].removeprefix(b"id="))


def test_a_turn_is_one_round_trip(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, calls = make(), list[object]()
    engine.put("q", [NewMessage() for _ in range(30)])
    request = ClaimRequest(n=10, start=0)
    first = engine.claim("q", request).deliveries
    asked = Client._translated

    def counted(client: Client, ask: Callable[[Route], Any]) -> Any:
        calls.append(ask)
        return asked(client, ask)

    monkeypatch.setattr(Client, "_translated", counted)
    receipts = [each.receipt for each in first]
    turned = engine.turn("q", [Settlement(receipt) for receipt in receipts[:5]], receipts[5:], request)
    assert (len(turned.settled), len(turned.started), len(turned.claimed.deliveries)) == (5, 5, 10)
    assert len(calls) == 1


def test_closing_ends_the_threads_that_listen(make: Maker, server: servers.Server) -> None:
    engine = make()
    armed(engine, "q", topics=("news",))
    listening(server, "blpop")
    listening(server, "xread")
    engine.close()
    servers.until(lambda: not _listeners(), "they listen although nobody can wait any more")


def test_closing_while_another_thread_begins_to_wait_ends_everything(
    make: Maker, server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make()
    armed(engine, "q")
    late, stop = engine.waiter([], ["news"]), Listener.stop
    _waiters.append(late)

    def stopped(listener: Listener) -> None:
        late.arm()  # as another thread may at this moment
        stop(listener)

    monkeypatch.setattr(Listener, "stop", stopped)
    engine.close()
    servers.until(lambda: len(server.ask("CLIENT", "LIST").splitlines()) == 1, "somebody is connected")


def _listeners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "postroom-waiter"]


def inside(server: servers.Server, command: str) -> int:
    """How many connections are inside of this command."""
    return int(server.ask("CLIENT", "LIST").count(f" cmd={command} ".encode()))


def test_however_many_wait_one_thread_listens_for_queues_and_one_for_topics(
    make: Maker, server: servers.Server
) -> None:
    engine = make()
    before = len(_listeners())
    names = [f"q{number}" for number in range(20)]
    waiters = [armed(engine, *names[place:], topics=("news", name)) for place, name in enumerate(names)]
    producer = make()
    for name, waiter in zip(names, waiters, strict=True):
        producer.publish(name, [b"!"])
        servers.until(lambda: name in waiter.wait(0.1), "it is not heard")  # noqa: B023 - called at once
    servers.until(lambda: inside(server, "blpop") == inside(server, "xread") == 1, "too many listen, or none")
    assert len(_listeners()) - before == 2


def test_in_a_cluster_so_many_threads_at_most(cluster_setup: servers.Cluster) -> None:
    """The queues beyond are left to the timers of who waits: a third of a lease at most."""
    engine = RedisEngine(Client(urls.read(urlsplit(cluster_setup.url()))), "many")
    names, before = [f"q{number}" for number in range(40)], len(_listeners())
    try:
        with engine.waiter(names) as waiter:
            waiter.arm()
            assert 1 < len(_listeners()) - before <= 16
            engine.declare(names[-1], Policy(lease="9s"))
            claimed = engine.claim(names[-1], ClaimRequest(waiter=waiter))
            assert claimed.next_wake <= 3_000
    finally:
        engine.close()


def test_a_forked_child_works_and_waits_for_itself(make: Maker) -> None:
    engine = make()
    mine = armed(engine, "q")
    pid = os.fork()
    if pid == 0:
        heard: frozenset[str] = frozenset()
        try:
            waiter = armed(engine, "answers")
            engine.put("q", [NewMessage(body=b"from the child")])
            heard = waiter.wait(RING)
        finally:
            os._exit(0 if heard == {"answers"} else 1)
    assert mine.wait(RING) == {"q"}
    (delivery,) = engine.claim("q", ClaimRequest()).deliveries
    engine.settle("q", [Settlement(delivery.receipt)])
    engine.put("answers", [NewMessage()])
    assert os.waitpid(pid, 0)[1] == 0
