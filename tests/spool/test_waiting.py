"""Waiting for both sides, and a worker that goes on through an outage."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from pathlib import Path

import pytest

from postroom.delivery import Delivery
from postroom.engines.spool import SpoolEngine
from postroom.engines.spool.errands import Errands
from postroom.model import NewMessage
from postroom.worker import Worker
from tests.spool.stage import (
    PATIENCE,
    Remote,
    await_away,
    await_back,
    await_moved,
    claim,
    eventually,
    hanging,
    opened,
    put,
    room_on,
    sqlite,
)


def test_either_side_rings(remote: Remote, engine: SpoolEngine) -> None:
    with engine.waiter(["q"]) as waiter:
        waiter.arm()
        remote.engine.put("q", [NewMessage()])
        assert waiter.wait(PATIENCE) == {"q"}
        engine.spool.put("q", [NewMessage()])
        assert waiter.wait(PATIENCE) == {"q"}
        waiter.ring("hands")
        assert select.select([waiter], [], [], PATIENCE)[0]
        assert waiter.clear() == {"hands"}
        assert waiter.wait(0) == frozenset()


def test_a_switch_rings_everybody(remote: Remote, engine: SpoolEngine) -> None:
    with engine.waiter(["q"]) as waiter:
        waiter.arm()
        remote.refuse()
        put(engine)
        assert "" in waiter.wait(PATIENCE)
        waiter.clear()
        remote.answer()
        eventually(lambda: "" in waiter.wait(0.1))
        await_moved(engine)
        claim(engine)
        waiter.clear()
        put(engine)
        assert "q" in waiter.wait(PATIENCE), "it listens to Redis again"


def test_a_waiter_made_while_redis_is_away_hears_it_later(quick: None) -> None:
    remote = Remote()
    remote.refuse()
    with opened(remote) as engine, engine.waiter(["q"]) as waiter:
        waiter.arm()
        remote.answer()
        await_back(engine)
        eventually(lambda: "" in waiter.wait(0.1))
        waiter.clear()
        put(engine)
        eventually(lambda: "q" in waiter.wait(0.1))


def test_nothing_is_asked_of_the_waiter_of_a_redis_that_hangs(remote: Remote, engine: SpoolEngine) -> None:
    waiter = engine.waiter(["q"])
    waiter.arm()
    with hanging(remote, engine):
        put(engine)
        await_away(engine)
        began = time.monotonic()
        waiter.disarm()
        waiter.arm()
        waiter.clear()
        waiter.close()
        waiter.close()
        assert time.monotonic() - began < PATIENCE / 2, "it waited until Redis gave up"


def test_an_event_loop_can_wait_with_it(remote: Remote, engine: SpoolEngine) -> None:
    timer = threading.Timer(0.05, put, (engine,))

    async def wait() -> frozenset[str]:
        rung = asyncio.Event()
        asyncio.get_running_loop().add_reader(waiter.fileno(), rung.set)
        timer.start()
        await asyncio.wait_for(rung.wait(), PATIENCE)
        asyncio.get_running_loop().remove_reader(waiter.fileno())
        return waiter.clear()

    with engine.waiter(["q"]) as waiter:
        waiter.arm()
        assert asyncio.run(wait()) == {"q"}
        timer.join()


# --- a worker -------------------------------------------------------------------------------------


def test_a_worker_goes_on_through_an_outage(quick: None, tmp_path: Path) -> None:
    """Also one that holds work of Redis, held and begun, when that goes away."""
    remote, gate, seen = Remote(), threading.Event(), []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if delivery.body == "slow":
            gate.wait()

    with opened(remote, sqlite(tmp_path)) as engine:
        room = room_on(engine)
        queue = room.queue("q")
        queue.put("slow")
        with Worker(room, {"q": handler}, concurrency=2, prefetch=5):
            eventually(lambda: seen)
            remote.refuse()
            for number in range(20):
                queue.put(number)
            eventually(lambda: len(seen) == 21)
            gate.set()
            queue.put("last")
            eventually(lambda: len(seen) == 22)
            eventually(lambda: engine.side().owed == 1)
            remote.answer()
            await_moved(engine)
            eventually(lambda: remote.engine.stats("q").counters["acked"] == 1)
            queue.put("after")
            eventually(lambda: remote.engine.stats("q").counters["acked"] == 2)
    assert sorted(map(str, seen)) == sorted(["slow", *map(str, range(20)), "last", "after"])


def test_what_a_worker_held_of_redis_comes_again_at_once(quick: None, tmp_path: Path) -> None:
    remote, gate, seen = Remote(), threading.Event(), []

    def handler(delivery: Delivery) -> None:
        seen.append((delivery.body, delivery.attempt))
        gate.wait()

    with opened(remote, sqlite(tmp_path)) as engine:
        room = room_on(engine)
        queue = room.queue("q")
        queue.put_many(range(6))
        with Worker(room, {"q": handler}, prefetch=5):
            eventually(lambda: remote.engine.stats("q").processing == 6)
            remote.refuse()
            gate.set()
            await_away(engine)
            remote.answer()
            await_back(engine)
            eventually(lambda: remote.engine.stats("q").counters["acked"] == 6)
    assert sorted(seen) == [(number, 0) for number in range(6)]


# --- forks and errands ----------------------------------------------------------------------------


def test_a_child_has_a_watch_of_its_own(quick: None, tmp_path: Path) -> None:
    remote = Remote(sqlite(tmp_path, "primary.db"))
    with opened(remote, sqlite(tmp_path)) as engine:
        put(engine)
        child = os.fork()
        if child == 0:
            try:
                remote.refuse()
                put(engine)
                remote.answer()
                await_moved(engine)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(claim(engine)) == 2


def test_an_errand_gives_what_the_work_gives() -> None:
    errands = Errands(5.0)
    assert errands.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        errands.run(lambda: 1 // 0)
    assert errands._idle == 1, "one thread does for one caller"
    errands.close()


def test_a_late_errand_is_handed_over() -> None:
    errands, gate = Errands(0.05), threading.Event()
    late: list[int] = []

    def work() -> int:
        gate.wait()
        return 7

    with pytest.raises(TimeoutError):
        errands.run(work, late.append)
    errands.timeout = 30.0
    assert errands.run(lambda: 8, late.append) == 8, "others do not wait behind it"
    gate.set()
    eventually(lambda: late == [7])
    eventually(lambda: errands._idle == 2)
    errands.close()
