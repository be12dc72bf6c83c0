"""Workers that hear of each other (mingle, gossip), and what operators ask and tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.room import Room
from tests.celery.workers import Opener, Shop, WorkerProcess, pool

pytestmark = pytest.mark.timeout(600)

on_redis = pytest.mark.parametrize("broker", ["redis"], indirect=True)
#: Celery gives neighbours one second to answer; on a machine that is too busy for that, the next one asks.
TRIES = 5


def _synced(shop: Shop) -> WorkerProcess:
    """A new worker that has found a neighbour."""
    for _ in range(TRIES):
        worker = shop.worker(*pool("solo"))
        if "mingle: sync with 1 nodes" in worker.log():
            return worker
        worker.stop()
    raise AssertionError(f"it is all alone:\n{worker.log()}")


def test_a_new_worker_learns_from_its_neighbour_what_was_revoked(open_shop: Opener) -> None:
    shop = open_shop()
    first = shop.worker(*pool("threads"))
    assert "mingle: all alone" in first.log()
    to_first = ("--timeout", "30", "--destination", f"{first.name}@shop")
    shop.python("app.control.revoke('revoked-1')")
    shop.until(lambda: "revoked-1" in shop.celery("inspect", *to_first, "revoked"))
    _synced(shop)
    assert first.stop() == 0
    # Sent now, only the second one can get it, and nobody has told that one but its neighbour.
    shop.send("note", "no", task_id="revoked-1")
    shop.send("note", "yes")
    shop.until(lambda: shop.lines("note", "yes"))
    assert shop.lines("note", "no") == []


def test_workers_hear_of_those_who_come_stop_and_die(open_shop: Opener) -> None:
    shop = open_shop()
    told = shop.worker(*pool("threads"), "-l", "DEBUG")
    stops, dies = (shop.worker(*pool("solo"), "--heartbeat-interval", "1") for _ in range(2))
    for worker in (stops, dies):
        shop.until(lambda: f"{worker.name}@shop joined the party" in told.log(), "it hears of nobody")  # noqa: B023  (called at once)
    assert stops.stop() == 0
    shop.until(lambda: f"{stops.name}@shop left" in told.log(), "it was not told of a stop")
    dies.kill()
    shop.until(lambda: f"missed heartbeat from {dies.name}@shop" in told.log(), "nobody misses it")
    since = told.log().partition(f"{stops.name}@shop left")[2]  # before, it may have been late for once
    assert f"missed heartbeat from {stops.name}@shop" not in since


ASKED = """
import json
asks = app.control.inspect([{me!r}], timeout=30)
print(json.dumps({{name: getattr(asks, name)()[{me!r}] for name in
    ("active", "reserved", "scheduled", "active_queues", "registered", "stats", "clock")}}
    | {{"task": asks.query_task({id!r})[{me!r}], "conf": asks.conf()[{me!r}]}}))
"""


@on_redis
def test_what_a_worker_is_asked(open_shop: Opener, tmp_path: Path) -> None:
    shop = open_shop(worker_prefetch_multiplier=2)
    me = f"{shop.worker(*pool('threads', 1)).name}@shop"
    go = tmp_path / "go"
    for n in range(2):
        shop.send("until", str(go), str(n), task_id=f"task-{n}")
    shop.send("until", str(go), "later", task_id="task-later", countdown=3600)
    shop.until(lambda: shop.lines("begin"))

    def answers() -> dict[str, object]:
        told = json.loads(shop.python(ASKED.format(me=me, id="task-0")))
        ids = {name: [task["id"] for task in told[name]] for name in ("active", "reserved")}
        return told if ids == {"active": ["task-0"], "reserved": ["task-1"]} else {}

    told = shop.until(answers)
    assert told["scheduled"] == [], "a countdown waits in the store"
    assert {queue["name"] for queue in told["active_queues"]} >= {"shop", "second"}
    assert "tests.celery.shop.add" in told["registered"]
    assert told["stats"]["broker"]["transport"] == "postroom"
    assert told["clock"]["clock"] > 0
    assert told["task"]["task-0"][0] == "active"
    assert told["conf"]["task_default_queue"] == "shop"
    go.touch()


TOLD = """
import json
tells, me = app.control, [{me!r}]
def tell(name, *args, **kwargs):
    (answer,) = getattr(tells, name)(*args, reply=True, destination=me, timeout=30, **kwargs)
    return answer[me[0]]
print(json.dumps({{
    "add": tell("add_consumer", "extra"), "cancel": tell("cancel_consumer", "second"),
    "grow": tell("pool_grow", 1), "limit": tell("time_limit", "tests.celery.shop.note", soft=50),
    "events": tell("enable_events"),
}}))
"""


@on_redis
def test_what_a_worker_is_told(open_shop: Opener, room: Room, tmp_path: Path) -> None:
    shop = open_shop(worker_prefetch_multiplier=1)
    worker = shop.worker(*pool("prefork", 1))
    told = json.loads(shop.python(TOLD.format(me=f"{worker.name}@shop")))
    assert all("ok" in answer for answer in told.values()), told
    go = tmp_path / "go"
    shop.send("note", "cancelled", queue="second")
    for n in range(2):
        shop.send("until", str(go), str(n), queue="extra")
    shop.until(lambda: len(shop.lines("begin")) == 2, "the pool did not grow, or the queue is not consumed")
    go.touch()
    shop.until(lambda: room.engine.stats("extra").counters["acked"] == 2)
    assert (shop.lines("note"), room.engine.stats("second").ready) == ([], 1)
    shop.python(f"app.control.shutdown(destination=[{worker.name + '@shop'!r}])")
    assert worker.wait() == 0


def test_an_idle_worker_removes_what_a_killed_client_left(open_shop: Opener, room: Room) -> None:
    """No task and no other client: nobody but the worker could."""
    shop, records = open_shop(), room.engine.records
    alone = ("--without-mingle", "--without-gossip", "--without-heartbeat")  # it has no reply queue itself
    me = f"{shop.worker(*pool('solo'), *alone, POSTROOM_SWEEP_INTERVAL='100ms').name}@shop"
    client = shop.background("inspect", "--timeout", "600", "--destination", f"{me},nobody@shop", "ping")

    def left() -> dict[str, list[str]]:
        bound = records.list("celery.binding/reply.celery.pidbox")
        return {
            "notes": [note.key for note in records.list("celery.transient")],
            "bindings": [record.key for record in bound],
            "queues": [
                info.name for info in room.engine.queues() if info.name.endswith(".reply.celery.pidbox")
            ],
        }

    shop.until(lambda: all(left().values()), "no reply came")
    client.kill()
    shop.until(lambda: not any(left().values()), "nobody removes it")


@on_redis
def test_commands_of_operators(open_shop: Opener) -> None:
    shop = open_shop()
    me = f"{shop.worker(*pool('threads')).name}@shop"
    assert "1 node online" in shop.celery("status", "--timeout", "30", "--destination", me)
    bound = shop.celery("list", "bindings").split("\n")
    assert ["second", "second", "second"] in [line.split() for line in bound]
    id = shop.celery("call", "tests.celery.shop.add", "--args", "[2, 3]").strip()
    shop.until(lambda: shop.try_celery("result", id).stdout.strip() == "5")
    report = shop.celery("report")
    assert "transport:postroom" in report.replace(" ", "")
