"""A Redis is as clean after the work as before it: only what belongs to a queue itself is left."""

from __future__ import annotations

import postroom
from postroom import Policy
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
