"""A real Redis that is killed, comes back with and without its data, freezes, or is not there at all."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from postroom.delivery import Delivery
from postroom.engine import Engine
from postroom.engines.redis import connect
from postroom.engines.redis.faults import is_uncertain
from postroom.engines.spool import SpoolEngine
from postroom.model import Outcome, Settlement, State
from postroom.policy import Policy
from postroom.worker import Worker
from tests.redis import servers
from tests.redis.servers import Server
from tests.spool.stage import (
    await_away,
    await_back,
    await_moved,
    claim,
    eventually,
    ids,
    put,
    room_on,
    sqlite,
)

PRODUCER = Path(__file__).with_name("producer.py")
AOF = {"appendonly": "yes", "appendfsync": "always"}
#: A claim whose answer is lost with the server costs its messages a lease; a worker that a busy machine
#: lets rest for as long loses them too, and then both sides may have given one out.
SHORT = Policy(lease="8s", ack_timeout="1m")
#: What a put may take when Redis hangs: the timeout, and something for a busy machine.
BOUND = 2.0
SLACK = 28.0


def to_redis(server: Server) -> Engine:
    return connect(urlsplit(server.url()), 2**20)


@contextmanager
def spooled(server: Server, folder: Path) -> Iterator[SpoolEngine]:
    """One that takes a Redis which is slow for an outage only where a test freezes it: see `frozen`."""
    spool = sqlite(folder)
    engine = SpoolEngine(partial(to_redis, server), spool, timeout=30_000, uncertain=is_uncertain)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def frozen(server: Server, engine: SpoolEngine) -> Iterator[None]:
    """Redis hangs, and is not waited for any longer than users do."""
    errands = engine._line.errands
    patient, errands.timeout = errands.timeout, BOUND
    server.freeze()
    try:
        yield
    finally:
        server.thaw()
        errands.timeout = patient


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.single(AOF) as server:
        yield server


class Ledger:
    """What was accepted and what was handled, kept apart from everything that is tested."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.slowest = 0.0
        #: Every run of a handler: the id, and how often its side had given it out by then.
        self.runs: list[tuple[str, int]] = []
        self.stop = threading.Event()

    def produce(self, engine: SpoolEngine) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            self.accepted.append(put(engine))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.stop.wait(0.002)

    def handle(self, delivery: Delivery) -> None:
        self.runs.append((delivery.id, delivery.deliveries))
        self.stop.wait(0.001)

    def more(self, count: int) -> None:
        """Let so many more be accepted."""
        goal = len(self.accepted) + count
        eventually(lambda: len(self.accepted) >= goal)

    @property
    def missing(self) -> set[str]:
        return set(self.accepted) - {id for id, _ in self.runs}

    def unexplained(self) -> list[tuple[str, list[int]]]:
        """What ran more often than any one side has given it out: so two sides had it."""
        runs: dict[str, list[int]] = {}
        for id, deliveries in self.runs:
            runs.setdefault(id, []).append(deliveries)
        return [(id, given) for id, given in runs.items() if len(given) > max(given)]


def test_killed_under_load_nothing_is_lost(server: Server, tmp_path: Path) -> None:
    ledger = Ledger()
    with spooled(server, tmp_path) as engine:
        engine.declare("q", SHORT)
        producers = [threading.Thread(target=ledger.produce, args=(engine,)) for _ in range(3)]
        with Worker(room_on(engine), {"q": ledger.handle}, concurrency=3):
            for producer in producers:
                producer.start()
            for _ in range(2):
                ledger.more(100)
                server.kill()
                ledger.more(1)
                await_away(engine)
                ledger.more(100)
                server.restart()
                await_back(engine)
            ledger.more(50)
            ledger.stop.set()
            for producer in producers:
                producer.join()
            eventually(lambda: not ledger.missing, "some were accepted and never worked on")
        assert ledger.unexplained() == []
        eventually(lambda: engine.side().owed == 0)


def test_restarted_empty_redis_lost_what_it_had_and_we_nothing(server: Server, tmp_path: Path) -> None:
    with spooled(server, tmp_path) as engine:
        engine.declare("q", Policy(max_attempts=7))
        lost = [put(engine) for _ in range(5)]
        held = claim(engine, n=2)
        server.kill()
        kept = [put(engine) for _ in range(5)]
        assert engine.settle("q", [Settlement(leased.receipt) for leased in held]) == [Outcome.OK] * 2
        server.restart(empty=True)
        await_moved(engine)
        assert engine.queues(["q"])[0].policy.max_attempts == 7
        # The first of them may be one whose connection broke under it: then it was moved behind the others.
        assert sorted(ids(claim(engine, n=20))) == sorted(kept)
        assert not set(kept) & set(lost)


def test_restarted_from_its_log_redis_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    with spooled(server, tmp_path) as engine:
        before = [put(engine) for _ in range(5)]
        done, going, *_ = claim(engine, n=2, lease=30_000)
        server.kill()
        during = [put(engine) for _ in range(5)]
        assert engine.settle("q", [Settlement(done.receipt)]) == [Outcome.OK]
        assert engine.renew("q", [going.receipt], 30_000) == [Outcome.OK]
        server.restart()
        await_moved(engine)
        assert engine.stats("q").counters["acked"] == 1
        assert engine.get("q", [done.message.id]) == [None]
        assert engine.get("q", [going.message.id])[0].state is State.PROCESSING  # type: ignore[union-attr]
        assert engine.renew("q", [going.receipt], 30_000) == [Outcome.OK]
        assert sorted(ids(claim(engine, n=20))) == sorted(before[2:] + during)


def test_frozen_with_its_socket_open_each_put_returns_in_time(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spooled(server, tmp_path) as engine:
        before = put(engine)
        ask, asked = engine._line.ask, list[object]()

        def counted(*call: Any) -> Any:
            asked.append(call)
            return ask(*call)

        monkeypatch.setattr(engine._line, "ask", counted)
        accepted: list[str] = []
        spans: list[float] = []

        def produce() -> None:
            for _ in range(3):
                began = time.monotonic()
                accepted.append(put(engine))
                spans.append(time.monotonic() - began)

        with frozen(server, engine):
            producers = [threading.Thread(target=produce) for _ in range(4)]
            for producer in producers:
                producer.start()
            for producer in producers:
                producer.join()
            assert max(spans) < BOUND + SLACK
            assert len(asked) <= 4, "each caller waits once at most"
            # Of those who waited some were still connecting, so that their puts certainly did not arrive.
            here = ids(claim(engine, n=20))
            assert 8 <= len(here) < 12, "what Redis may have is left alone"
        await_back(engine)
        # Its puts were in the socket all the time and are done now: once.
        held = sorted(set(accepted) - set(here))
        eventually(lambda: engine.spool.stats("q").depth == 0)
        assert sorted(ids(claim(engine, n=20))) == sorted([before, *held])


def test_frozen_under_load_nothing_is_lost(server: Server, tmp_path: Path) -> None:
    ledger = Ledger()
    with spooled(server, tmp_path) as engine:
        engine.declare("q", SHORT)
        producers = [threading.Thread(target=ledger.produce, args=(engine,)) for _ in range(3)]
        with Worker(room_on(engine), {"q": ledger.handle}, concurrency=3):
            for producer in producers:
                producer.start()
            ledger.more(50)
            with frozen(server, engine):
                await_away(engine)
                ledger.more(100)
                handled = len(ledger.runs)
                eventually(lambda: len(ledger.runs) > handled + 50, "local workers do not go on")
            await_back(engine)
            ledger.more(50)
            ledger.stop.set()
            for producer in producers:
                producer.join()
            eventually(lambda: not ledger.missing, "some were accepted and never worked on")
        assert ledger.unexplained() == []
        assert ledger.slowest < BOUND + SLACK


def test_not_there_at_all_at_the_start(server: Server, tmp_path: Path) -> None:
    server.kill()
    ledger = Ledger()
    with spooled(server, tmp_path) as engine:
        assert not engine.redis_active
        with Worker(room_on(engine), {"q": ledger.handle}):
            first = put(engine)
            eventually(lambda: ledger.runs == [(first, 1)])
        later = put(engine, delay=1)
        server.restart()
        await_moved(engine)
        with Worker(room_on(engine), {"q": ledger.handle}):
            eventually(lambda: ledger.runs[1:] == [(later, 1)])
            put(engine)
            eventually(lambda: len(ledger.runs) == 3)


def test_processes_that_share_a_spool_may_be_killed_at_any_time(server: Server, tmp_path: Path) -> None:
    """Two producers, a Redis that goes and comes, and then they go too, one while it is away."""
    ledgers = [tmp_path / "first", tmp_path / "second"]

    def accepted() -> list[str]:
        lines = [ledger.read_text().split("\n")[:-1] for ledger in ledgers if ledger.exists()]
        return [id for ids in lines for id in ids]

    def more(count: int) -> None:
        goal = len(accepted()) + count
        eventually(lambda: len(accepted()) >= goal, "nothing is accepted")

    producers = [
        subprocess.Popen([sys.executable, PRODUCER, server.url(), tmp_path / "spool.db", ledger])
        for ledger in ledgers
    ]
    try:
        eventually(lambda: all(ledger.exists() for ledger in ledgers))
        more(50)
        server.kill()
        more(50)
        producers[0].kill()
        more(30)
        server.restart()
        more(30)
    finally:
        for producer in producers:
            producer.kill()
            producer.wait()
    with spooled(server, tmp_path) as engine:
        await_moved(engine)
        there = [id for _ in range(10) for id in ids(claim(engine, n=1_000))]
    assert len(there) == len(set(there))
    assert set(accepted()) <= set(there)
    assert len(there) <= len(accepted()) + 2, "one a process was accepted and not written down"
