"""The store goes away and comes back while tasks run: no second run, late acks arrive, consuming goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import postroom
from tests.celery.workers import LEASE, Shop, pool
from tests.redis import servers

pytestmark = pytest.mark.timeout(600)


class Outage(NamedTuple):
    """A store, how it goes away and how it comes back; `lasts`: at least so long (seconds)."""

    url: str
    begin: Callable[[], None]
    end: Callable[[], None]
    lasts: float


#: Longer than the lease: what is held must not be anybody else's then.
_LONG = LEASE + 1.5


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
        record_property("consumes again after (s)", round(shop.lines("note", "due")[0]["at"] - back, 2))
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
            assert stats.counters["reclaimed"] <= (kind == "frozen")
        assert sorted(shop.labels("begin")) == sorted(held)
        assert worker.stop() == 0
