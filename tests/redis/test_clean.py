"""A Redis is as clean after the work as before it: only what belongs to a queue itself is left."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

import postroom
from postroom import Policy
from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.errors import EngineUnavailable
from postroom.room import Room
from tests.redis import servers

#: What a queue keeps of itself: policy and counters, its history, and rings that nobody heard.
OF_A_QUEUE = {"meta", "log", "wake"}


def names(server: servers.Server) -> set[str]:
    """The last words of all keys of the queue."""
    keys = [key.decode() for key in server.ask("KEYS", "postroom:{q}:*")]
    return {key.rpartition("}:")[2] for key in keys if "nudge" not in key}


def use(room: Room) -> None:
    """Put and end messages in every way in which nothing is to be kept."""
    queue = room.queue("q", policy=Policy(max_attempts=3, backoff="1ms", jitter=False))
    queue.put_many(range(50))
    queue.put("urgent", priority="high", unique_key="only", expires="1h")
    queue.put("later", delay="1ms")
    for attempt in range(52):
        delivery = queue.claim(timeout=30)
        assert delivery is not None
        if attempt == 0:
            delivery.checkpoint({"page": 1})
            delivery.fail("not yet")
        else:
            delivery.ack()
    last = queue.claim(timeout=30)
    assert last is not None
    last.ack()


def test_what_was_acked_leaves_no_key_of_its_own(server: servers.Server) -> None:
    with postroom.open(server.url(**servers.PATIENT)) as room:
        use(room)
        assert names(server) <= OF_A_QUEUE
        room.queue("q").put("waits")
        assert {"ready", "body"} <= names(server), "they would be seen"


def test_a_drop_that_ended_halfway_is_finished_by_the_next(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(queue: str) -> None:
        raise EngineUnavailable("no answer")

    engine = RedisEngine(Client(urls.read(urlsplit(server.url(**servers.PATIENT)))))
    try:
        engine.declare("q", Policy())
        with monkeypatch.context() as halfway, pytest.raises(EngineUnavailable):
            halfway.setattr(engine._registry, "remove", away)
            engine.drop("q")
        assert engine.drop("q") == 0
        assert engine._registry.names() == []
    finally:
        engine.close()
