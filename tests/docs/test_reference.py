"""The reference says what the code says: pages that are made from it, and what a real Redis holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
import redis

import postroom
from postroom import Policy
from postroom.delivery import Delivery
from postroom.engines.redis import scripts
from postroom.engines.redis.engine import RedisEngine
from postroom.engines.redis.names import Names
from postroom.queue import Queue
from postroom.room import Room
from tests.docs.blocks import REPO
from tests.redis import servers
from tools import reference

KEYS = REPO / "docs" / "reference" / "redis-keys.md"


@pytest.mark.parametrize("page", reference.made().items(), ids=lambda page: Path(page[0]).name)
def test_a_page_that_is_made_is_up_to_date(page: tuple[Path, str]) -> None:
    path, text = page
    assert path.read_text(encoding="utf-8") == text, "run `make reference`"
    assert reference.UNSAID not in text, "say what it is"


def test_a_row_that_is_missing_wrong_or_made_up_is_put_right() -> None:
    table = [
        "| name | default | meaning |",
        "|---|---|---|",
        "| `b` | `9` | a bee |",
        "| `x` | `1` | nothing |",
    ]
    facts: reference.Facts = [("`a`", "`1`"), ("`b`", "`2`")]
    assert reference.explained(table, facts) == [
        *table[:2],
        "| `b` | `2` | a bee |",
        f"| `a` | `1` | {reference.UNSAID} |",
    ]


def listed() -> dict[str, str]:
    """The keys of the page, with their types."""
    rows = re.findall(r"^\| `(postroom:[^`]+)` \| (\w+) \|", KEYS.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def test_the_page_has_every_key_of_a_queue() -> None:
    of_a_queue = {key.decode() for key in Names("postroom").queue("QUEUE")}
    assert {key for key in listed() if "{QUEUE}" in key} == of_a_queue


def claimed(queue: Queue) -> Delivery:
    delivery = queue.claim()
    assert delivery
    return delivery


def use_everything(room: Room) -> None:
    """A queue, a topic and records in which everything has happened that makes a key appear."""
    policy = Policy(ack_timeout="50ms", dedupe_window="1h", keep_done="1h", max_attempts=5)
    queue = room.queue("QUEUE", policy=policy)
    queue.put("done")
    claimed(queue).ack()
    queue.put("dead")
    claimed(queue).bury("no")
    queue.put("suspect", priority="high")
    claimed(queue)  # and never a word again
    queue.put_many(["waits"] * 150, expires="1h")
    queue.put("once", unique_key="only")
    queue.put("later", delay="1h")
    room.engine.publish("TOPIC", [b"entry"])
    room.engine.records.put("KIND", "key", b"value", ttl=3_600_000)


def test_every_key_is_there_in_a_real_redis_and_has_its_type() -> None:
    found: dict[str, str] = {}
    with servers.single() as server, postroom.open(server.url(**servers.PATIENT)) as room:

        def look(*wanted: str) -> bool:
            """Whether all of these were seen by now."""
            with redis.Redis(port=server.port) as client:
                found.update({key.decode(): client.type(key).decode() for key in client.scan_iter()})
            room.engine.sweep("QUEUE", limit=1)
            return set(wanted) <= found.keys()

        use_everything(room)
        servers.until(lambda: look("postroom:{QUEUE}:suspects", "postroom:{QUEUE}:ready"), "no suspect")
        engine = cast(RedisEngine, room.engine)
        engine._run(scripts.PURGE, "QUEUE")  # and killed before it could clean up
        look()
    ours = {key: kind for key, kind in found.items() if re.search("QUEUE|TOPIC|KIND|queues|topics", key)}
    assert {key: kind for key, kind in ours.items() if "nudge" not in key} == listed()
