"""Two releases on one file: a newer one has added to it, and this one goes on as if nothing had happened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import postroom
from postroom import Policy, Worker
from postroom.engine import Engine
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.sql import SCHEMAS
from postroom.errors import StoreTooNew
from postroom.model import Action, Move, State
from postroom.queue import Queue
from postroom.room import Room
from tests.chaos.outside import check_sound, dump, url_of

NEWEST = max(SCHEMAS)
#: What a minor version may do: add a column that has a default, and a table.
NEXT_MINOR = """
ALTER TABLE postroom_message ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';
ALTER TABLE postroom_queue ADD COLUMN shelf INTEGER;
ALTER TABLE postroom_record ADD COLUMN owner TEXT DEFAULT 'nobody';
CREATE TABLE postroom_extra (message INTEGER PRIMARY KEY, note TEXT NOT NULL);
CREATE INDEX postroom_by_colour ON postroom_message (colour);
"""


def update(path: Path, version: int = NEWEST + 1) -> None:
    """What the first process of the newer release does."""
    File(str(path), schemas={**SCHEMAS, version: NEXT_MINOR}).connect().close()


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def work_through(room: Room) -> None:
    """Every verb once, each with an answer that shows that it did its work."""
    queue = room.queue("q", Policy(keep_done="1h", dedupe_window="1h", backoff="1h", jitter=False))
    way_of_a_message(queue)
    looking_and_operating(queue)
    history_topics_and_records(room.engine)
    Worker(room, {"q": lambda delivery: None}).run(drain=True)
    assert queue.stats().ready == 0
    queue.put_many(range(3))
    assert queue.purge() == 4
    assert room.queue("other").put("x").created
    assert room.queue("other").drop(force=True) == 1


def way_of_a_message(queue: Queue) -> None:
    first = queue.put("x" * 3_000, unique_key="one", headers={"a": "b"}, correlation_id="c", kind="k")
    assert not queue.put("y", unique_key="one").created
    assert len(queue.put_many(range(5))) == 5
    assert queue.put("later", delay="1h", expires="2h").created
    delivery = queue.claim(timeout=0)
    assert delivery and (delivery.id, delivery.body) == (first.id, "x" * 3_000)
    delivery.checkpoint({"page": 1})
    delivery.extend("1m")
    assert queue.room.engine.renew("q", [delivery.receipt], 60_000) == ["ok"]
    delivery.ack()
    ends = queue.claim_many(4, timeout=0)
    ends[0].fail("no")
    ends[1].release()
    ends[2].bury("never")
    ends[3].ack()
    assert queue.room.engine.sweep("q").reclaimed == 0


def looking_and_operating(queue: Queue) -> None:
    stats = queue.stats()
    assert (stats.ready, stats.scheduled, stats.processing, stats.dead) == (2, 2, 0, 1)
    found = {state: [entry.id for entry in queue.find_all(state)] for state in State}
    assert [len(found[state]) for state in State] == [2, 2, 0, 2, 1]
    assert queue.get(found[State.DEAD][0]).failure
    queue.run_now(found[State.SCHEDULED][0])
    queue.reschedule(found[State.SCHEDULED][1], delay="2h")
    queue.cancel(found[State.READY][0])
    assert queue.replay(found[State.DEAD][0])
    mark = Move(id=found[State.DEAD][0], action=Action.MARK_REPLAYED, number=2, replayed_as="elsewhere")
    assert queue.room.engine.move("q", [mark])[0].ok
    queue.discard(found[State.DEAD][0])
    queue.pause("a while")
    assert queue.claim(timeout=0) is None
    queue.resume()


def history_topics_and_records(engine: Engine) -> None:
    assert engine.log("q", after="").entries
    engine.publish("topic", [b"a", b"b"])
    assert [entry.data for entry in engine.read("topic", after="").entries] == [b"a", b"b"]
    version = engine.records.put("kind", "key", b"x", ttl=60_000)
    record = engine.records.get("kind", "key")
    assert record and record.version == version
    assert [record.key for record in engine.records.list("kind")] == ["key"]
    assert engine.records.delete("kind", "key", expect=version)
    assert [info.name for info in engine.queues()] == ["q"]


def test_every_verb_works_on_the_file_of_this_release(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with postroom.open(url_of(path)) as room:
        work_through(room)
    check_sound(path)


def test_every_verb_works_on_a_file_to_which_a_newer_release_has_added(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    update(path)
    with postroom.open(url_of(path)) as room:
        work_through(room)
    assert version_of(path) == NEWEST + 1, "the older release does not take it back"
    check_sound(path)


def test_a_newer_release_adds_to_the_file_while_this_one_works_on_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with postroom.open(url_of(path)) as room:
        queue = room.queue("before")
        queue.put_many(["x" * 2_000] * 10)
        delivery = queue.claim(timeout=0)
        assert delivery
        update(path)
        delivery.ack()
        assert len(queue.claim_many(10, timeout=0)) == 9
        queue.drop(force=True)
        work_through(room)
    assert {row[-1] for row in dump(path)["postroom_message"]} <= {"red"}
    check_sound(path)


def test_a_release_that_changes_more_is_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with postroom.open(url_of(path)) as room:
        room.queue("q").put("x")
    update(path, (NEWEST // 1_000 + 1) * 1_000)
    before = dump(path)
    with pytest.raises(StoreTooNew, match="update Postroom"):
        postroom.open(url_of(path))
    assert dump(path) == before
