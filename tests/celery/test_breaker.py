"""Breakers and Celery: a worker leaves a queue alone whose breaker is open, and no attempt is burnt."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from postroom.breaker import TOPIC, Breaker
from postroom.room import Room
from tests.celery.workers import Shop, pool
from tests.telemetry.test_metrics import scrape

pytestmark = pytest.mark.timeout(600)

APP = "tests.celery.guard_app"
MATRIX = """
[queues.charge]
tasks = ["charge.*"]
retries = 20
backoff = "20ms"

[queues.every]
tasks = ["every.*"]
"""
FIRST, MORE = 10, 60


def send(shop: Shop, up: Path, numbers: range) -> None:
    shop.python(f"[charge.delay(str(n), {str(up)!r}) for n in range({numbers.start}, {numbers.stop})]")


@pytest.mark.parametrize(
    ("broker", "name", "shared"),
    [("redis", "prefork", "yes"), ("sqlite", "threads", "")],
    indirect=["broker"],
)
def test_a_queue_waits_while_its_provider_is_down(
    shop: Shop, room: Room, tmp_path: Path, name: str, shared: str
) -> None:
    up = tmp_path / "up"
    shop.environ["SHOP_SHARED"] = shared
    worker = shop.worker("--queues", "charge,every", *pool(name))
    send(shop, up, range(FIRST))
    shop.until(lambda: "breaker 'psp' is open" in worker.log(), "the breaker does not open")
    # Whatever Celery had taken before comes back by itself; then only probes go, one at a time.
    probes = 3
    called = len(shop.lines("call"))
    send(shop, up, range(FIRST, FIRST + MORE))
    shop.until(lambda: len(shop.lines("call")) >= called + probes, "nothing is tried any more")
    claimed = room.engine.stats("charge").counters["claimed"]
    calls = len(shop.lines("call"))
    assert calls < MORE, "messages are burnt while the provider is down"
    # Far fewer than it could have had: not each of those that wait was taken and handed back.
    assert claimed <= calls + 3 * FIRST
    shop.python("plain.delay('beside')")
    shop.until(lambda: shop.lines("plain"), "the other queue waits, too")
    up.touch()
    shop.until(lambda: len(shop.lines("charged")) == FIRST + MORE)
    stats = room.engine.stats("charge")
    assert (stats.dead, len(set(shop.labels("charged")))) == (0, FIRST + MORE)
    # An attempt is counted for each call that failed, and for nothing else.
    shop.until(lambda: not room.engine.stats("charge").processing)
    failed = len(shop.lines("call")) - len(shop.lines("charged"))
    assert room.engine.stats("charge").counters["retried"] == failed


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_its_changes_are_events_and_metrics(shop: Shop, room: Room, tmp_path: Path) -> None:
    up = tmp_path / "up"
    shop.environ["SHOP_SHARED"] = "yes"
    shop.worker("--queues", "charge,every", *pool("prefork"))
    Breaker("psp", room=room).open("maintenance")
    shop.until(lambda: scrape(room).get(("postroom_breaker_state", "psp", "open")) == 1)
    (worker,) = shop.until(room.workers)
    assert worker.breakers == {"charge": "psp"}, "what waits while it is open is not told"
    up.touch()
    send(shop, up, range(3))
    shop.python("plain.delay('beside')")
    shop.until(lambda: shop.lines("plain"))
    assert shop.lines("call") == []
    Breaker("psp", room=room).close()
    shop.until(lambda: len(shop.lines("charged")) == 3)
    assert scrape(room)["postroom_breaker_state", "psp", "closed"] == 1
    changes = [msgspec.json.decode(entry.data) for entry in room.engine.read(TOPIC, after="").entries]
    assert [(change["before"], change["after"]) for change in changes] == [
        ("closed", "open"),
        ("open", "closed"),
    ]
    assert all(one["at"] <= two["at"] for one, two in itertools.pairwise(changes))
