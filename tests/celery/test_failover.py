"""Several brokers: what a worker holds of the one that it left, while it works for another.

A prefork worker forgets what it had reserved when it loses its connection. Other pools have it in their own
queue already, and run it, whatever Celery's books say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import celery
import pytest
from celery import Celery

import postroom
from postroom.stats import QueueStats
from tests.celery.workers import APP, LEASE, Shop, WorkerProcess, pool
from tests.redis import servers

pytestmark = pytest.mark.timeout(600)

DURABLE: servers.Options = {"appendonly": "yes", "appendfsync": "always"}
#: A prefork worker of an older Celery loses track of what its children do when its connection is lost, and
#: keeps in its books what it forgot. That is nothing that a transport could mend.
NAMES = ["prefork", "threads"] if celery.VERSION >= (5, 7) else ["threads"]
POOLS = pytest.mark.parametrize("name", NAMES)
NOTES = ["0", "1", "2"]


@pytest.fixture
def first() -> Iterator[servers.Server]:
    with servers.single(DURABLE) as server:
        yield server


@pytest.fixture
def shop(first: servers.Server, tmp_path: Path) -> Iterator[Shop]:
    options = {"visibility_timeout": LEASE}
    with Shop(f"postroom+{first.url()}", tmp_path, broker_transport_options=options) as opened:
        yield opened


def stats(server: servers.Server) -> QueueStats:
    with postroom.open(server.url(), declare=False) as room:
        return room.engine.stats("shop")


def busy_worker(shop: Shop, name: str, first: servers.Server, second: servers.Server) -> WorkerProcess:
    """With both hands at work, and three tasks behind that."""
    brokers = f"postroom+{first.url()};postroom+{second.url()}"
    worker = shop.worker(*pool(name), "--prefetch-multiplier", "4", SHOP_BROKER=brokers)
    for label in ("long", "hand"):
        shop.send("until", str(shop.folder / label), label)
    shop.until(lambda: len(shop.lines("begin")) == 2)
    for label in NOTES:
        shop.send("note", label)
    shop.until(lambda: stats(first).processing == 5, "it does not reserve them")
    shop.hang_up()
    return worker


def assert_each_ran_once(shop: Shop, notes: list[str]) -> None:
    assert sorted(shop.labels("begin")) == ["hand", "long"]
    assert sorted(shop.labels("note")) == sorted(notes)


@POOLS
def test_what_a_worker_forgot_of_the_broker_it_left_is_for_others(
    name: str, shop: Shop, first: servers.Server
) -> None:
    with servers.single(DURABLE) as second:
        worker = busy_worker(shop, name, first, second)
        first.kill()
        with Celery("sender", broker=f"postroom+{second.url()}", set_as_current=False) as sender:
            sender.send_task(f"{APP}.note", ["by the second"], queue="shop")
        shop.until(lambda: stats(second).processing == 1, "no failover")
        (shop.folder / "hand").touch()  # only now: a free hand would have begun what is reserved
        shop.until(lambda: shop.lines("note", "by the second"))
        first.start()
        if name == "prefork":
            shop.until(lambda: stats(first).ready == 3, "they stay with who forgot them")
        shop.worker(*pool(name))
        shop.until(lambda: set(shop.labels("note")) >= set(NOTES), "they stay with who forgot them")
        (shop.folder / "long").touch()
        shop.until(lambda: stats(first).counters["acked"] == 5, "a late ack was lost")
        assert_each_ran_once(shop, [*NOTES, "by the second"])
        assert worker.stop() == 0


@POOLS
def test_what_a_worker_still_has_when_it_is_back_runs_once(
    name: str, shop: Shop, first: servers.Server
) -> None:
    """The other broker is the same one: the worker leaves it, and comes back to it."""
    worker = busy_worker(shop, name, first, first)
    first.kill()
    shop.until(lambda: "Connection to broker lost" in worker.log(), "it does not notice")
    first.start()
    shop.until(lambda: worker.log().count("Connected to ") == 2, "it does not come back")
    shop.send("note", "since")
    shop.until(lambda: stats(first).processing == 6, "it does not consume any more")
    for label in ("hand", "long"):
        (shop.folder / label).touch()
    shop.until(lambda: stats(first).counters["acked"] == 6, "a late ack was lost")
    assert_each_ran_once(shop, [*NOTES, "since"])
    assert worker.stop() == 0
