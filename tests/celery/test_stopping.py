"""A worker that is asked to stop while its store is away ends what it works on, and waits for little else.

What could not be settled comes back when its lease is over, and that is said.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postroom
from tests.celery.workers import Shop, WorkerProcess, pool
from tests.redis import servers
from tests.redis.servers import Server

pytestmark = pytest.mark.timeout(300)

#: It takes three seconds (`office.CLOSING_PATIENCE`) and a call or two; much longer on a machine that has no
#: time for it (seconds). Without an end it went on trying until the store was back.
IN_TIME = 30.0


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.single({"appendonly": "yes", "appendfsync": "always"}) as started:
        yield started


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Iterator[Shop]:
    with Shop(f"postroom+{server.url()}", tmp_path) as opened:
        yield opened


def _until_told_of_it(shop: Shop, worker: WorkerProcess) -> None:
    """The worker knows that the store is away, and has wanted to send a heartbeat since."""
    shop.until(lambda: "the store is away" in worker.log(), "nobody noticed")
    known = time.time()
    shop.until(lambda: any(line["at"] > known for line in shop.lines("beat")), "its event loop stands still")


@pytest.mark.parametrize(
    ("name", "away"),
    [("solo", Server.kill), ("prefork", Server.kill), ("threads", Server.kill), ("gevent", Server.kill),
     ("solo", Server.freeze)],
)  # fmt: skip
def test_a_warm_stop_waits_for_tasks_but_not_for_the_store(
    shop: Shop,
    server: Server,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    name: str,
    away: Callable[[Server], None],
) -> None:
    worker = shop.worker(*pool(name), "--heartbeat-interval", "1", SHOP_BEATS="yes")
    held = ["before"] if name == "solo" else ["before", "after"]
    for label in held:  # one ends before the worker is asked to stop, one afterwards
        shop.send("until", str(tmp_path / label), label)
    shop.until(lambda: len(shop.lines("begin")) == len(held))
    shop.hang_up()
    away(server)
    (tmp_path / "before").touch()
    shop.until(lambda: shop.lines("end", "before"))
    _until_told_of_it(shop, worker)
    worker.ask_to_stop()
    shop.until(lambda: "Warm shutdown" in worker.log())
    if name != "solo":
        assert worker.process.poll() is None, "a task runs"
    (tmp_path / "after").touch()
    began = time.monotonic()
    assert worker.wait() == 0
    record_property("stops after (s)", round(time.monotonic() - began, 1))
    assert time.monotonic() - began < IN_TIME
    assert len(shop.lines("end")) == len(held)
    assert f"closed with {len(held)} deliveries not settled: they come back" in worker.log()
    assert "Traceback" not in worker.log()
    server.thaw() if away is Server.freeze else server.start()
    with postroom.open(server.url(), declare=False) as room:
        stats = room.engine.stats("shop")
        # A server that hung may carry out an ack that it got before.
        acked = stats.counters["acked"] if away is Server.freeze else 0
        assert stats.processing == len(held) - acked, "they are not lost: they come back"


def test_a_cold_stop_of_a_worker_without_work(shop: Shop, server: Server) -> None:
    worker = shop.worker(*pool("prefork"), "--heartbeat-interval", "1", SHOP_BEATS="yes")
    server.kill()
    _until_told_of_it(shop, worker)
    worker.process.send_signal(signal.SIGQUIT)
    began = time.monotonic()
    worker.wait()
    assert time.monotonic() - began < IN_TIME
    assert "not settled" not in worker.log()


def test_a_worker_that_never_saw_its_store_stops_too(shop: Shop, server: Server) -> None:
    server.kill()
    worker = shop.worker(*pool("solo"), ready=False)
    shop.until(lambda: "Cannot connect to postroom+redis" in worker.log())
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < IN_TIME


def test_the_event_loop_goes_on_and_its_events_are_told_later(shop: Shop, server: Server) -> None:
    worker = shop.worker(*pool("prefork"), "--heartbeat-interval", "1", SHOP_BEATS="yes")
    server.kill()
    _until_told_of_it(shop, worker)
    seen = len(shop.lines("beat"))
    shop.until(lambda: len(shop.lines("beat")) >= seen + 3, "its event loop stands still")
    server.start()
    shop.until(lambda: "the store is back" in worker.log())
    with postroom.open(server.url(), declare=False) as room:
        kept = "exchange/celeryev/worker"
        shop.until(lambda: len(room.engine.read(kept, after="").entries) >= seen + 4, "events are missing")
