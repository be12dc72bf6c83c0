"""The store goes away and comes back while tasks run: no second run, late acks arrive, consuming goes on."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from celery import Celery

import postroom
from postroom.model import State
from postroom.room import Room
from tests.celery.starving import Beat
from tests.celery.workers import APP, LEASE, Shop, WorkerProcess, pool
from tests.redis import servers
from tests.redis.proxy import proxied

pytestmark = pytest.mark.timeout(600)


class Outage(NamedTuple):
    """A store, how it goes away and how it comes back; `lasts`: at least so long (seconds).

    `unnoticed`: for so long after it is back a worker cannot know that it has to connect again (seconds).
    """

    url: str
    begin: Callable[[], None]
    end: Callable[[], None]
    lasts: float
    unnoticed: float = 0.0


#: Longer than the lease: what is held must not be anybody else's then.
_LONG = LEASE + 1.5
#: A worker consumes again so long after the store answers (seconds), on a machine that has time for it.
_SOON = 2.0


@contextlib.contextmanager
def _restart(fsync: str) -> Iterator[Outage]:
    with servers.single({"appendonly": "yes", "appendfsync": fsync}) as server:
        yield Outage(server.url(), server.kill, server.start, _LONG)


@contextlib.contextmanager
def _frozen() -> Iterator[Outage]:
    with servers.single() as server:
        yield Outage(server.url(socket_timeout="3s"), server.freeze, server.thaw, _LONG)


@contextlib.contextmanager
def _disconnected() -> Iterator[Outage]:
    with servers.single() as server:

        def disconnect() -> None:
            for kind in ("normal", "pubsub"):
                server.ask("CLIENT", "KILL", "TYPE", kind)

        yield Outage(server.url(), disconnect, lambda: None, 0.0)


@contextlib.contextmanager
def _half_open() -> Iterator[Outage]:
    """Connections that carry nothing any more, of which nobody is told."""
    with servers.single() as server, proxied(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0?socket_timeout=3s"
        yield Outage(url, proxy.stall, lambda: None, 0.0, unnoticed=3.0)


@contextlib.contextmanager
def _sentinel() -> Iterator[Outage]:
    with servers.sentinel() as setup:
        first = setup.primary

        def kill() -> None:
            # Not before: a primary that is only slow would be replaced, with what its replicas have not got.
            for n, watcher in enumerate(setup.watchers):
                span = 2_000 if n else 400  # as in servers
                watcher.ask("SENTINEL", "SET", servers.SERVICE, "down-after-milliseconds", span)
            first.kill()

        def elected() -> None:
            setup.await_primary(first)

        yield Outage(setup.url(), kill, elected, 0.0)


@contextlib.contextmanager
def _cluster() -> Iterator[Outage]:
    with servers.cluster() as nodes:
        owner = nodes.owner("postroom:{shop}:ready")
        heir = nodes.replica_of(owner)

        def kill() -> None:
            for server in nodes.servers:  # not before, see above
                server.ask("CONFIG", "SET", "cluster-node-timeout", 1_000)
            owner.kill()

        def promoted() -> None:
            servers.until(lambda: heir.ask("ROLE")[0] == b"master", "no failover")

        yield Outage(nodes.url(), kill, promoted, 0.0)


OUTAGES: dict[str, Callable[[], contextlib.AbstractContextManager[Outage]]] = {
    "restart-always": lambda: _restart("always"),
    "restart-everysec": lambda: _restart("everysec"),
    "frozen": _frozen,
    "disconnected": _disconnected,
    "half-open": _half_open,
    "sentinel": _sentinel,
    "cluster": _cluster,
}


def _wait_until(moment: float) -> None:
    while (left := moment - time.time()) > 0:
        time.sleep(left)


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "threads") for kind in OUTAGES), ("restart-always", "solo"), ("restart-always", "prefork"),
     ("restart-always", "gevent")],
)  # fmt: skip
def test_the_store_goes_away_while_tasks_run(
    kind: str, name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    options = {"visibility_timeout": LEASE}
    during, after = tmp_path / "during", tmp_path / "after"
    with (
        OUTAGES[kind]() as outage,
        Shop(f"postroom+{outage.url}", tmp_path, broker_transport_options=options) as shop,
        Beat() as beat,
    ):
        worker = shop.worker(*pool(name), "--prefetch-multiplier", "4")
        held = ["during"] if name == "solo" else ["during", "after"]
        for label in held:  # one ends while the store is away, one when it is back
            shop.send("until", str(tmp_path / label), label)
        shop.until(lambda: len(shop.lines("begin")) == len(held))
        shop.send("note", "due", countdown=3)
        due = time.time() + 3
        shop.hang_up()
        # Claims of the last second may be forgotten (AOF everysec, replicas): these are older.
        _wait_until(due - 1.5)
        outage.begin()
        away = time.time()
        during.touch()
        shop.until(lambda: shop.lines("end", "during"))
        _wait_until(away + outage.lasts)
        outage.end()
        back = max(time.time(), due)
        shop.until(lambda: shop.lines("note", "due"), "the worker does not consume any more")
        again = shop.lines("note", "due")[0]["at"]
        record_property("consumes again after (s)", round(again - back, 2))
        assert again - back - beat.lost(back, again) <= _SOON + outage.unnoticed
        if name == "threads" and kind in ("restart-always", "sentinel"):
            _wait_until(back + 2 * LEASE)  # what was not renewed at once would be taken away by now
        after.touch()
        shop.until(lambda: len(shop.lines("end")) == len(held))
        with postroom.open(outage.url) as room:
            engine, everything = room.engine, len(held) + 1
            shop.until(lambda: engine.stats("shop").counters["acked"] == everything, "a late ack was lost")
            stats = engine.stats("shop")
            assert (stats.processing, stats.dead) == (0, 0)
            # A server that hung may carry out a claim whose caller is gone: that comes back with the lease.
            # So does one whose answer was under way when its connection began to be silent.
            assert stats.counters["reclaimed"] <= (kind in ("frozen", "half-open"))
        assert sorted(shop.labels("begin")) == sorted(held)
        _talk_to(shop, worker)
        assert worker.stop() == 0


TALK = """
import json
from celery import chord
note.apply_async(["told"], queue="news")
answer = app.control.inspect([{me!r}], timeout=30).ping()
print(json.dumps([answer, chord([add.s(n, n) for n in range(3)], total.s())().get(timeout=90)]))
"""


def _talk_to(shop: Shop, worker: WorkerProcess) -> None:
    """It answers, hears a broadcast and has a chord done, as one that never lost its store."""
    me = f"{worker.name}@shop"
    assert json.loads(shop.python(TALK.format(me=me))) == [{me: {"ok": "pong"}}, 6]
    shop.until(lambda: shop.lines("note", "told"), "it hears no broadcast any more")
    assert len(shop.lines("note", "told")) == 1


def test_a_task_acked_early_while_the_store_is_away_runs_once(tmp_path: Path) -> None:
    """Celery's default: the ack has to wait for longer than the lease, and nobody else begins the task."""
    options, go = {"visibility_timeout": LEASE}, tmp_path / "go"
    with (
        OUTAGES["restart-always"]() as outage,
        Shop(
            f"postroom+{outage.url}", tmp_path, broker_transport_options=options, task_acks_late=False
        ) as shop,
        postroom.open(outage.url, declare=False) as room,
    ):
        for held, name in enumerate(("threads", "prefork"), start=1):
            shop.worker(*pool(name, 1), "--prefetch-multiplier", "4")
            shop.send("until", str(go), name)  # acked as it begins; what is fetched behind it is not
            for n in range(3):
                shop.send("note", f"{name} {n}")
            shop.until(lambda: room.engine.stats("shop").processing == 3 * held)  # noqa: B023  (called at once)
        shop.worker(*pool("threads"))  # has room for all of it
        shop.hang_up()
        outage.begin()
        away = time.time()
        go.touch()
        shop.until(lambda: len(shop.lines("note")) == 6, "they wait for the store")
        _wait_until(away + outage.lasts)
        outage.end()
        engine = room.engine
        shop.until(lambda: engine.stats("shop").counters["acked"] == 8, "an early ack was lost")
        assert (engine.stats("shop").processing, engine.stats("shop").counters["reclaimed"]) == (0, 0)
        assert len(shop.lines("begin")) == 2
        assert len(shop.lines("note")) == len(set(shop.labels("note"))) == 6


def test_a_broadcast_waits_for_workers_that_lost_their_connection(tmp_path: Path) -> None:
    with (
        servers.single() as server,
        proxied(server.port) as proxy,
        Shop(f"postroom+redis://127.0.0.1:{proxy.port}/0", tmp_path) as shop,
    ):
        workers = [shop.worker(*pool(name)) for name in ("solo", "threads")]
        proxy.cut()
        shop.until(lambda: all("the store is away" in worker.log() for worker in workers))
        with Celery("sender", broker=f"postroom+{server.url()}", set_as_current=False) as sender:
            for n in range(3):
                sender.send_task(f"{APP}.note", [str(n)], exchange="news", routing_key="all")
        proxy.mend()
        shop.until(lambda: len(shop.lines("note")) == 6, "broadcasts are lost")
        assert sorted(shop.labels("note")) == ["0", "0", "1", "1", "2", "2"]
        assert len({line["group"] for line in shop.lines("note")}) == 2


def _longest(room: Room) -> int:
    """How long the longest lease was given for, of what is worked on and known to be (ms)."""
    entries = room.engine.find("shop", State.PROCESSING).entries
    return max(
        [entry.deadline - entry.started_at for entry in entries if entry.started_at and entry.deadline],
        default=0,
    )


@pytest.mark.parametrize("sender", ["has declared", "declares"])
def test_a_store_that_comes_back_empty(sender: str, tmp_path: Path) -> None:
    """A Redis without persistence: what waited is lost, what a worker has declared and heard is not."""
    held, fresh = tmp_path / "held", tmp_path / "fresh"
    with servers.single() as server, Shop(f"postroom+{server.url()}", tmp_path) as shop:
        worker = shop.worker(*pool("threads"))
        shop.send("until", str(held), "held")
        shop.until(lambda: shop.lines("begin", "held"))
        server.restart(empty=True)
        held.touch()
        shop.until(lambda: shop.lines("end", "held"))
        if sender == "has declared":  # the queue, before, and not since
            shop.send("until", str(fresh), "fresh")
        else:  # a new process: the worker finds the queue as it should be, and its exchanges gone
            shop.python(f"app.send_task('{APP}.until', [{str(fresh)!r}, 'fresh'])")
        shop.until(lambda: shop.lines("begin", "fresh"), "the worker does not consume any more")
        with postroom.open(server.url(), declare=False) as room:
            # By the policy of a queue that nobody declared it would be somebody else's after 30 s.
            shop.until(lambda: _longest(room) > 45_000, "it is taken away")
            shop.until(lambda: room.engine.records.get("celery.exchange", "news"), "nobody says it again")
            # Whoever sends this has declared nothing: the worker has said that it is a fanout exchange.
            stranger = "Celery(broker=app.conf.broker_url)"
            shop.python(f"{stranger}.send_task('{APP}.note', ['all'], exchange='news', routing_key='all')")
            fresh.touch()
            shop.until(lambda: shop.lines("note", "all"), "the broadcast went nowhere")
            shop.until(lambda: room.engine.stats("shop").counters["acked"] == 1)
            assert room.engine.stats("shop").counters["reclaimed"] == 0
        assert len(shop.lines("begin")) == 2
        assert worker.stop() == 0
