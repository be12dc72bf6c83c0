"""Real Celery workers on real stores: what the transport promises, with every pool."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from postroom.readers import Readers, read_readers
from postroom.room import Room
from tests.celery.workers import LEASE, PATIENCE, Opener, pool

pytestmark = pytest.mark.timeout(600)

POOLS = ["solo", "threads", "prefork"]
#: The topic of what is broadcast to workers.
PIDBOX = "exchange/celery.pidbox"


# ---- what every worker does -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "name"),
    [*itertools.product(["redis"], [*POOLS, "gevent"]), ("sqlite", "prefork")],
    indirect=["broker"],
)
def test_groups_chords_chains_retries_and_remote_control(open_shop: Opener, room: Room, name: str) -> None:
    shop = open_shop(task_acks_late=True)
    worker = shop.worker(*pool(name))
    code = """
from celery import chain, chord, group
import json
got = [
    add.delay(1, 2).get(timeout=90),
    group(add.s(n, n) for n in range(5))().get(timeout=90),
    chord([add.s(n, n) for n in range(5)], total.s())().get(timeout=90),
    chain(add.s(1, 1), add.s(2), add.s(3))().get(timeout=90),
    flaky.delay("f", 2).get(timeout=90),
]
print(json.dumps(got))
"""
    assert json.loads(shop.python(code)) == [3, [0, 2, 4, 6, 8], 20, 7, 2]
    assert [line["retries"] for line in shop.lines("try", "f")] == [0, 1, 2]
    # With a destination it ends with the answer; the timeout is only for a machine that is busy.
    me = f"{worker.name}@shop"
    assert "pong" in shop.celery("inspect", "ping", "--timeout", "30", "--destination", me)
    stats = json.loads(shop.celery("inspect", "stats", "--json", "--timeout", "30", "--destination", me))
    assert stats[me]["total"]["tests.celery.shop.add"] >= 14
    shop.until(lambda: room.engine.stats("shop").processing == 0, "acks are missing")
    (seen,) = shop.until(room.workers)
    hands = 1 if name == "solo" else 2
    assert (seen.name, seen.door, seen.pid) == (me, "celery", worker.process.pid)
    assert (seen.queues[0], seen.concurrency, seen.lost) == ("shop", hands, False)
    # What is broadcast to workers it reads to the end, and tells so.
    shop.until(lambda: read_readers(room.engine, [PIDBOX]) == {PIDBOX: Readers(count=1)})
    assert worker.stop() == 0
    assert "Traceback" not in worker.log()
    assert room.workers() == []


# Three beats of ten seconds each: every pool once, and both stores.
@pytest.mark.parametrize(
    ("broker", "name"), [("redis", "threads"), ("redis", "prefork"), ("sqlite", "solo")], indirect=["broker"]
)
def test_a_worker_hears_what_the_room_tells_it(open_shop: Opener, room: Room, name: str) -> None:
    shop = open_shop()
    worker = shop.worker(*pool(name))
    (seen,) = shop.until(room.workers)
    room.tell_worker(seen.id, "quiet")
    shop.until(lambda: room.workers()[0].state == "quiet")
    assert room.workers()[0].queues == seen.queues, "what it left, and will take up again"
    shop.until(lambda: "Canceling queue shop" in worker.log())
    shop.python("note.delay('later')")
    room.tell_worker(seen.id, "resume")
    shop.until(lambda: shop.lines("note", "later"))
    assert "Started consuming from shop" in worker.log()
    room.tell_worker(f"{worker.name}@shop", "stop")
    assert worker.process.wait(PATIENCE) == 0
    assert room.workers() == []


@pytest.mark.parametrize(("broker", "name"), [("redis", "prefork"), ("sqlite", "solo")], indirect=["broker"])
def test_a_worker_tells_what_took_a_while(open_shop: Opener, room: Room, name: str) -> None:
    """For the lanes of the dashboard; with its next beat."""
    shop = open_shop(task_acks_late=True)
    shop.worker(*pool(name))
    shop.python("note.delay('at once'); nap.delay(1.5, 'long')")
    shop.until(lambda: shop.lines("end", "long"))
    (run,) = shop.until(lambda: room.workers()[0].runs)
    assert (run.queue, run.kind, run.verb) == ("shop", "tests.celery.shop.nap", "ack")
    began, ended = shop.lines("begin", "long")[0]["at"], shop.lines("end", "long")[0]["at"]
    assert run.ran >= (ended - began) * 1_000 / 2, "it was seen long after it had begun"


@pytest.mark.parametrize("name", POOLS)
def test_a_countdown_waits_in_the_store_and_is_never_early(open_shop: Opener, room: Room, name: str) -> None:
    shop = open_shop()
    shop.worker(*pool(name))
    code = "import time; at = time.time(); note.apply_async(['later'], countdown=2); print(at)"
    sent = float(shop.python(code))
    shop.until(lambda: room.engine.stats("shop").scheduled or shop.lines("note"))
    (line,) = shop.until(lambda: shop.lines("note", "later"))
    assert line["at"] >= sent + 2
    assert room.engine.stats("shop").counters["claimed"] == 1


def test_the_more_urgent_runs_first(open_shop: Opener) -> None:
    shop = open_shop(worker_prefetch_multiplier=1)
    shop.python("for n, p in enumerate([0, 9, 255, 3, 9]): note.apply_async([str(n)], priority=p)")
    shop.worker(*pool("solo"))
    shop.until(lambda: len(shop.lines("note")) == 5)
    assert shop.labels("note") == ["2", "1", "4", "3", "0"]


def test_a_broadcast_reaches_every_worker(open_shop: Opener) -> None:
    shop = open_shop()
    for _ in range(2):
        shop.worker(*pool("solo"))
    # An app that knows of no such exchange. Without a routing key Celery would use its default queue.
    stranger = "Celery(broker=app.conf.broker_url)"
    shop.python(
        f"{stranger}.send_task('tests.celery.shop.note', ['a'], exchange='news', routing_key='all')\n"
        "note.apply_async(['b'], queue='news')"
    )
    shop.until(lambda: len(shop.lines("note", "a")) == len(shop.lines("note", "b")) == 2)
    assert len({line["pid"] for line in shop.lines("note", "a")}) == 2
    assert len({line["pid"] for line in shop.lines("note", "b")}) == 2


def test_revoke_and_rate_limit(open_shop: Opener, tmp_path: Path) -> None:
    shop = open_shop()
    me = f"{shop.worker(*pool('threads')).name}@shop"
    to_me = ("--timeout", "30", "--destination", me)
    name = "tests.celery.shop.note"
    assert "new rate limit set successfully" in shop.celery("control", *to_me, "rate_limit", name, "1000/m")
    shop.python("app.control.revoke('revoked-1')")
    shop.until(lambda: "revoked-1" in shop.celery("inspect", *to_me, "revoked"))
    shop.python("note.apply_async(['no'], task_id='revoked-1'); note.delay('yes')")
    shop.until(lambda: shop.lines("note", "yes"))
    assert shop.lines("note", "no") == []


def test_rejected_tasks(open_shop: Opener, room: Room) -> None:
    shop = open_shop(broker_transport_options={"delivery_limit": 2})
    shop.worker(*pool("solo"))
    shop.python("refuse.delay('for good', False); refuse.delay('again', True)")
    shop.until(lambda: room.engine.stats("shop").dead == 2)
    assert sorted(shop.labels("refuse")) == ["again", "again", "for good"]


def test_celery_purge(open_shop: Opener, room: Room) -> None:
    """Countdowns too; Celery looks at none of what it purges."""
    shop = open_shop()
    for n in range(3):
        shop.send("note", str(n), countdown=3600 * (n % 2))
    assert "Purged 3 messages" in shop.celery("purge", "-f")
    assert "No messages purged" in shop.celery("purge", "-f")
    stats = room.engine.stats("shop")
    assert (stats.ready, stats.scheduled) == (0, 0)


def test_a_group_is_published_with_one_put(open_shop: Opener, room: Room) -> None:
    shop = open_shop()
    code = """
from postroom.celery import publish_group
results = publish_group(note.s(str(n)) for n in range(250))
print(len({result.id for result in results}))
"""
    assert shop.python(code) == "250"
    assert room.engine.stats("shop").ready == 250
    shop.worker(*pool("solo"), "--prefetch-multiplier", "64")
    shop.until(lambda: len(shop.lines("note")) == 250)
    assert shop.labels("note") == [str(n) for n in range(250)]


def test_without_prefetch_no_more_is_claimed_than_there_are_hands(
    open_shop: Opener, room: Room, tmp_path: Path
) -> None:
    shop = open_shop(worker_disable_prefetch=True)
    go = tmp_path / "go"
    for n in range(6):
        shop.send("until", str(go), str(n))
    shop.worker(*pool("threads", 2))
    shop.until(lambda: len(shop.lines("begin")) == 2)
    stats = room.engine.stats("shop")
    assert (stats.processing, stats.ready) == (2, 4)
    go.touch()
    shop.until(lambda: len(shop.lines("end")) == 6)


# ---- death ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker", "name"), [("redis", "solo"), ("sqlite", "gevent")], indirect=["broker"])
def test_a_long_task_keeps_its_lease(open_shop: Opener, room: Room, name: str) -> None:
    """A worker whose only thread computes for two leases, in Python and without a pause."""
    shop = open_shop(broker_transport_options={"visibility_timeout": LEASE})
    shop.worker(*pool(name))
    shop.send("spin", 2 * LEASE, "long")
    shop.until(lambda: shop.lines("begin"))
    shop.worker(*pool("solo"))
    shop.until(lambda: shop.lines("end"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 1)
    assert len(shop.lines("begin")) == 1


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
@pytest.mark.parametrize("name", ["solo", "gevent"])
def test_a_long_task_of_a_queue_with_a_shorter_lease_keeps_it(
    open_shop: Opener, room: Room, tmp_path: Path, name: str
) -> None:
    """The queue's policy says it, and `visibility_timeout` something longer."""
    matrix = tmp_path / "postroom.toml"
    matrix.write_text(f'[queues.shop]\nlease = "{LEASE}s"\n', encoding="utf-8")
    shop = open_shop(broker_transport_options={"config": str(matrix), "visibility_timeout": 10 * LEASE})
    shop.worker(*pool(name))
    shop.send("spin", 2 * LEASE, "long")
    shop.until(lambda: shop.lines("begin"))
    assert room.engine.queues(["shop"])[0].policy.lease == LEASE * 1_000
    shop.worker(*pool("solo"))
    shop.until(lambda: shop.lines("end"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 1)
    assert len(shop.lines("begin")) == 1


@pytest.mark.parametrize(
    ("broker", "name"),
    [("redis", "solo"), ("sqlite", "threads"), ("redis", "prefork"), ("redis", "gevent")],
    indirect=["broker"],
)
def test_an_early_ack_is_an_ack(open_shop: Opener, room: Room, name: str) -> None:
    """A task that is acked before it runs does not run again when its worker is killed."""
    shop = open_shop(broker_transport_options={"visibility_timeout": LEASE})
    worker = shop.worker(*pool(name))
    shop.send("early", "once", 300)
    shop.until(lambda: shop.lines("begin"))
    if name == "prefork":  # the child has begun by the time its parent knows
        shop.until(lambda: room.engine.stats("shop").counters["acked"] == 1)
    assert room.engine.stats("shop").counters["acked"] == 1, "it runs, and its ack is still on its way"
    worker.kill()
    shop.worker(*pool(name))
    shop.send("note", "after")
    shop.until(lambda: shop.lines("note"))
    shop.until(lambda: room.engine.stats("shop").processing == 0)
    assert len(shop.lines("begin")) == 1


@pytest.mark.parametrize("name", POOLS)
def test_a_warm_shutdown_finishes_what_runs_and_hands_back_the_rest(
    open_shop: Opener, room: Room, tmp_path: Path, name: str
) -> None:
    shop = open_shop(worker_prefetch_multiplier=4)
    go = tmp_path / "go"
    for n in range(4):
        shop.send("until", str(go), str(n))
    worker = shop.worker(*pool(name, 1))
    shop.until(lambda: shop.lines("begin"))
    worker.ask_to_stop()
    shop.until(lambda: "Warm shutdown" in worker.log())
    go.touch()
    assert worker.wait() == 0
    done = len(shop.lines("end"))
    stats = room.engine.stats("shop")
    assert (stats.counters["acked"], stats.processing, stats.ready) == (done, 0, 4 - done)
    assert stats.counters["retried"] == 0
    assert "Traceback" not in worker.log()
