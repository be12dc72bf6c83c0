"""Who reads a topic, as far as workers tell it: how many, and how far behind the slowest was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import postroom
from postroom import staff
from postroom.engine import Engine
from postroom.readers import Readers, read_readers
from postroom.room import Room
from postroom.staff import Attendance, this_process
from postroom.testing import ManualClock
from tests.redis import servers as redis_servers

NEWS = "exchange/news"


def tell(engine: Engine, name: str, *reads: tuple[str, str]) -> Attendance:
    """A worker that tells how far it has read."""
    attendance = Attendance(engine, lambda: msgspec.structs.replace(this_process(name), reads=reads))
    attendance.beat()
    return attendance


def test_the_slowest_is_named_with_how_long_its_next_entry_had_waited(room: Room, clock: ManualClock) -> None:
    engine = room.engine
    begin = engine.read(NEWS).cursor
    engine.publish(NEWS, [b"1"])
    clock.advance("40s")
    engine.publish(NEWS, [b"2"])
    end = engine.read(NEWS).cursor
    tell(engine, "quick", (NEWS, end), ("other", end))
    tell(engine, "slow", (NEWS, begin))
    assert read_readers(engine, [NEWS]) == {NEWS: Readers(count=2, behind=40_000, slowest="slow")}


def test_what_was_published_after_the_last_beat_is_no_lag(room: Room, clock: ManualClock) -> None:
    tell(room.engine, "quick", (NEWS, room.engine.read(NEWS).cursor))
    clock.advance("5s")
    room.engine.publish(NEWS, [b"1"])
    clock.advance("4s")
    assert read_readers(room.engine, [NEWS]) == {NEWS: Readers(count=1)}


def test_a_lost_worker_and_one_that_stopped_read_nothing(room: Room, clock: ManualClock) -> None:
    tell(room.engine, "killed", (NEWS, ""))
    clock.advance(f"{staff.LOST + 1}ms")
    left = tell(room.engine, "left", (NEWS, ""))
    assert read_readers(room.engine, [NEWS])[NEWS].count == 1
    left.start()
    left.stop()
    assert read_readers(room.engine, [NEWS]) == {}


def test_what_a_topic_let_go_of_before_it_was_read_is_told(room: Room) -> None:
    begin = room.engine.read(NEWS).cursor
    room.engine.publish(NEWS, [b"1"])
    after = room.engine.read(NEWS, after=begin).cursor
    room.engine.publish(NEWS, [b"2", b"3", b"4"], keep=1)
    tell(room.engine, "slow", (NEWS, after))
    assert read_readers(room.engine, [NEWS])[NEWS].missed == 2


def test_a_record_stays_small_and_a_call_is_bounded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.readers._MOST", 3)
    room.engine.publish(NEWS, [b"%d" % n for n in range(10)])
    tell(
        room.engine,
        "busy",
        *((NEWS, room.engine.read(NEWS, after="", limit=n + 1).cursor) for n in range(10)),
    )
    tell(room.engine, "huge", *((f"topic-{n}", "") for n in range(500)))
    found = read_readers(room.engine, [NEWS])[NEWS]
    assert (found.count, found.complete) == (10, False)
    assert {len(worker.reads) for worker in room.workers()} == {10, staff.MOST_TOPICS}


@pytest.fixture(params=["sqlite", "redis"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    if request.param == "redis":
        with redis_servers.single() as server, postroom.open(server.url()) as room:
            yield room
    else:
        with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
            yield room


def test_every_engine_tells_what_lies_behind_a_cursor(durable: Room) -> None:
    engine = durable.engine
    engine.publish(NEWS, [b"1"])
    begin = engine.read(NEWS).cursor
    engine.publish(NEWS, [b"2"])
    published = engine.read(NEWS, after=begin).entries[0].at
    tell(engine, "slow", (NEWS, begin))
    tell(engine, "quick", (NEWS, engine.read(NEWS).cursor))
    (slow,) = (worker for worker in durable.workers() if worker.name == "slow")
    found = read_readers(engine, [NEWS])[NEWS]
    assert (found.count, found.behind) == (2, slow.last_seen - published)
