"""What is left in a store is seen, and a store that was hurt serves again."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from amqp.exceptions import AMQPError

import postroom
from postroom.celery.events.declaring import declare
from postroom.errors import EngineUnavailable
from postroom.ids import new_id
from tests.battle.service import event_of, made
from tests.battle.stores import opened
from tests.battle.work import QUEUES, SERVICES
from tests.redis import servers

#: No answer comes from a store that is cut off; long enough for one that is not.
QUICK = "?socket_timeout=2s&socket_connect_timeout=2s"


@pytest.mark.parametrize(
    ("kind", "ready"), [("sqlite", {"ready": 1}), ("redis", {"ready": 1, "key ready": 1, "key body": 1})]
)
def test_what_is_left_is_seen(tmp_path: Path, kind: str, ready: dict[str, int]) -> None:
    with opened(kind, tmp_path, remembers="0s") as store, postroom.open(store.url) as room:
        queue = room.queue(QUEUES[0])
        assert store.left() == {}
        queue.put(["a", 0.0])
        assert store.left() == ready
        delivery = queue.claim(timeout=0)
        assert delivery
        assert store.left()["processing"] == 1
        delivery.ack()
        assert store.left() == {}
        assert all(size > 0 for size in store.sizes().values())


def test_a_rabbitmq_that_was_hurt_serves_again_and_what_is_left_is_seen(tmp_path: Path) -> None:
    with opened("rabbitmq", tmp_path) as store:
        assert set(store.hurts) == {"restart", "freeze", "cut", "disconnect"}
        app = made(SERVICES[1], store.url)
        for name in SERVICES:
            with app.connection_for_write() as connection:
                declare(connection, made(name, store.url).topology)
        event = app.event(event_of(QUEUES[0]))(lambda *_: None)
        assert store.left() == {}
        for count, hurt in enumerate(store.hurts.values()):
            with hurt(random.Random(1)):
                pass
            event("a", 0.0, 0.0)
            queues = {f"{name}.v1.event.battle.north.happened": count + 1 for name in SERVICES}
            assert store.left() == queues
            (ask,) = store.probes
            with contextlib.suppress(AMQPError, OSError):  # that of a lost connection
                ask()
            ask()
        app.publisher.close()


def test_a_redis_that_was_hurt_serves_again(tmp_path: Path) -> None:
    with opened("redis", tmp_path) as store, postroom.open(store.url + QUICK) as room:
        queue = room.queue(QUEUES[0])
        assert set(store.hurts) == {"restart", "freeze", "cut", "stall"}
        for count, (kind, hurt) in enumerate(store.hurts.items()):
            put(queue, kind)
            with hurt(random.Random(1)):
                if kind != "stall":  # new connections work
                    with pytest.raises(EngineUnavailable):
                        queue.stats()
            eventually_puts(queue, count)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_several_servers_that_were_hurt_serve_again(tmp_path: Path, kind: str) -> None:
    with opened(kind, tmp_path) as store, postroom.open(f"{store.url}&{QUICK[1:]}") as room:
        assert set(store.hurts) == {"failover", "freeze", "cut", "disconnect"}
        for count, (name, hurt) in enumerate(store.hurts.items()):
            for queue in QUEUES:
                put(room.queue(queue), name)
            with hurt(random.Random(1)):
                if name in ("freeze", "cut"):
                    with pytest.raises(EngineUnavailable):
                        for queue in QUEUES:  # one of them is there
                            room.queue(queue).stats()
            for queue in QUEUES:
                eventually_puts(room.queue(queue), count)
            assert store.left()["ready"] == (count + 1) * len(QUEUES)


def put(queue: postroom.Queue, kind: str) -> None:
    """Once, however often it is tried: on a crowded disk a put may take longer than anybody waits here."""
    id = new_id()

    def is_put() -> bool:
        try:
            return bool(queue.put([kind, 0.0], id=id))
        except EngineUnavailable:
            return False

    servers.until(is_put, "it takes no message")


def eventually_puts(queue: postroom.Queue, count: int) -> None:
    """A call may meet a connection that is dead, or a server that has not heard yet that all is well."""

    def puts() -> bool:
        try:
            return bool(queue.stats().ready == count + 1)
        except EngineUnavailable:
            return False

    servers.until(puts, "it does not serve again")
