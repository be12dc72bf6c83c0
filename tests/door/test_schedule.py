"""Schedules at work: one message a slot, whoever puts it; what is missed; and what people do with them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from postroom import Policy, config
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import Conflict, EngineUnavailable, NotFound
from postroom.keeper import Keeper
from postroom.model import Entry
from postroom.room import Room
from postroom.room import open as open_room
from postroom.schedule import KIND, Schedules
from postroom.testing import ManualClock
from postroom.timetable import Schedule
from tests.door.staging import Hire, Wire, entries, eventually
from tests.redis import servers

MINUTE, HOUR = 60_000, 3_600_000


def planned(engine: Engine | Wire, **tables: dict[str, Any]) -> Room:
    """A room on this engine with these schedules, all of them of the queue `reports`."""
    loaded = config.load(environ={})
    schedules = {
        name: Schedule(**{"name": name, "queue": "reports", **table}) for name, table in tables.items()
    }
    object.__setattr__(loaded, "schedules", schedules)
    return Room(engine, loaded)  # type: ignore[arg-type]  # a wire stands where an engine stands


def waiting(room: Room, queue: str = "reports") -> list[Entry]:
    return entries(room.queue(queue), "ready")


def slots(room: Room) -> list[int]:
    return [int(entry.message.headers["slot"]) for entry in waiting(room)]


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[MemoryEngine]:
    engine = MemoryEngine(clock)
    yield engine
    engine.close()


@pytest.fixture
def on_the_hour(clock: ManualClock) -> int:
    """Moves the clock to the next full hour."""
    clock.advance(HOUR / 1_000 - clock() / 1_000 % (HOUR / 1_000))
    return clock()


# ---- Slots ----------------------------------------------------------------------------------------


def test_a_slot_becomes_a_message_when_it_is_due(engine: MemoryEngine, clock: ManualClock) -> None:
    table = {"kind": "report", "body": {"of": "all"}, "priority": "high", "headers": {"a": "b"}}
    room = planned(engine, hourly={"every": "1h", **table})
    schedules = Schedules(room)
    wait = schedules.tick()
    assert not waiting(room)
    assert 0 < wait <= MINUTE
    clock.advance("1h")
    schedules.tick()
    (entry,) = waiting(room)
    message = entry.message
    slot = clock() // HOUR * HOUR
    assert (message.kind, message.body, message.priority) == ("report", b'{"of":"all"}', 10)
    assert message.headers == {"a": "b", "schedule": "hourly", "slot": str(slot)}
    assert message.due == slot
    assert message.id == Schedule(name="hourly", queue="reports", every="1h").message_id(slot)


def test_a_slot_is_put_also_where_everything_is_logged(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    room = planned(engine, nightly={"queue": "reports", "every": "1h"})
    with caplog.at_level(logging.INFO):
        Schedules(room).run_now("nightly")
    assert [record.is_new for record in caplog.records if hasattr(record, "is_new")] == [True]


def test_the_look_after_next_is_at_the_slot(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    schedules = Schedules(planned(engine, it={"every": "1h"}))
    schedules.tick()
    clock.advance("59m30s")
    assert schedules.tick() == 30_000


def test_a_schedule_that_is_new_begins_with_its_next_slot(engine: MemoryEngine, on_the_hour: int) -> None:
    room = planned(engine, it={"every": "1h"})
    Schedules(room).tick()
    assert not waiting(room)


@pytest.mark.parametrize("cron", ["* * * * *", "*/2 * * * *"])
def test_every_slot_is_put_once(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int, cron: str
) -> None:
    room = planned(engine, it={"cron": cron})
    schedules = Schedules(room)
    for _ in range(60):
        schedules.tick()
        clock.advance("10s")
    step = (1 if cron.startswith("* ") else 2) * MINUTE
    assert slots(room) == list(range(on_the_hour + step, clock(), step))


# ---- Two at once, and deaths ----------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "redis":
        with servers.single() as server:
            yield server.url()
    else:
        yield {"memory": "memory://two-schedulers", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}[request.param]


def test_two_schedulers_make_one_message(url: str) -> None:
    with open_room(url) as one, open_room(url) as other:
        rooms = [planned(room.engine, it={"every": "1h"}) for room in (one, other)]
        now = one.engine.now()
        for room in rooms:
            Schedules(room).tick()
        # Both believe that the same slot is due, and neither has seen the other's note.
        backdated = [_backdated(room, now) for room in rooms]
        record = one.engine.records.get(KIND, "it")
        assert record
        for schedules in backdated:
            one.engine.records.put(KIND, "it", record.value)
            schedules.tick()
        assert len(waiting(rooms[0])) == 1
        assert one.queue("reports").stats().counters["put"] == 1


def _backdated(room: Room, now: int) -> Schedules:
    """Schedules that are to deal with the slot of the last hour."""
    record = room.engine.records.get(KIND, "it")
    assert record
    fields = msgspec.json.decode(record.value)
    fields["done_until"] = now // HOUR * HOUR - 1
    room.engine.records.put(KIND, "it", msgspec.json.encode(fields))
    return Schedules(room)


def test_a_keeper_that_dies_between_the_put_and_its_note_makes_no_second_message(
    engine: MemoryEngine, clock: ManualClock
) -> None:
    wire = Wire(engine)
    room = planned(wire, it={"every": "1h"})
    Schedules(room).tick()
    clock.advance("1h")
    wire.fail(1, "records.put")
    with pytest.raises(EngineUnavailable):
        Schedules(room).tick()
    successor = Schedules(planned(engine, it={"every": "1h"}))
    successor.tick()
    assert len(waiting(room)) == 1
    taken = room.queue("reports").claim(timeout=0)
    assert taken
    taken.ack()
    wire.fail(1, "records.put")
    engine.records.put(KIND, "it", _with(engine, done_until=clock() - HOUR))
    Schedules(planned(engine, it={"every": "1h"})).tick()
    assert not waiting(room), "the slot is remembered after its message is gone"


def _with(engine: Engine, **changes: Any) -> bytes:
    record = engine.records.get(KIND, "it")
    assert record
    return msgspec.json.encode({**msgspec.json.decode(record.value), **changes})


# ---- What was missed ------------------------------------------------------------------------------


def missed(
    engine: MemoryEngine, clock: ManualClock, policy: str, away: str, every: str = "1h", **table: Any
) -> list[int]:
    """The ages of the slots that are put after nobody was there for so long, in minutes."""
    room = planned(engine, it={"every": every, "missed": policy, **table})
    Schedules(room).tick()
    clock.advance(away)
    Schedules(room).tick()
    return [(clock() - slot) // MINUTE for slot in slots(room)]


def test_once_puts_the_latest_of_the_missed_ones(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    assert missed(engine, clock, "once", "5h30m") == [30]


def test_once_puts_no_more_than_the_slot_that_is_on_time(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    assert missed(engine, clock, "once", "5h10s") == [0]


def test_skip_puts_none_of_them(engine: MemoryEngine, clock: ManualClock, on_the_hour: int) -> None:
    assert missed(engine, clock, "skip", "5h30m") == []


def test_skip_puts_what_is_only_a_little_late(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    assert missed(engine, clock, "skip", "5h30s") == [0]


def test_all_puts_each_of_them(engine: MemoryEngine, clock: ManualClock, on_the_hour: int) -> None:
    assert missed(engine, clock, "all", "3h30m") == [150, 90, 30]


def test_all_puts_the_latest_hundred_and_tells_of_the_others(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int, caplog: pytest.LogCaptureFixture
) -> None:
    ages = missed(engine, clock, "all", "500m", every="1m")
    assert ages == list(range(100, -1, -1))
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "schedule.missed"]
    assert record.getMessage() == f"schedule it missed slots: {record.__dict__['count']} are passed over"
    (standing,) = Schedules(planned(engine)).standings()
    assert standing.skipped == record.__dict__["count"] > 0


def test_a_slot_whose_message_would_be_worthless_is_not_put(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    assert missed(engine, clock, "all", "3h30m", expires="2h") == [90, 30]


def test_messages_expire_so_long_after_their_slot(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    room = planned(engine, it={"every": "1h", "expires": "10m"})
    schedules = Schedules(room)
    schedules.tick()
    clock.advance("1h30s")
    schedules.tick()
    assert waiting(room)[0].message.expires == on_the_hour + HOUR + 10 * MINUTE


def test_a_queue_that_is_full_gets_the_slot_later(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int, caplog: pytest.LogCaptureFixture
) -> None:
    room = planned(engine, it={"every": "1h"}, other={"every": "1h", "queue": "other"})
    room.queue("reports", policy=Policy(capacity=1)).put("in the way")
    schedules = Schedules(room)
    schedules.tick()
    clock.advance("1h")
    schedules.tick()
    assert [r.getMessage() for r in caplog.records] == [
        "schedule it failed: reports: 1 of 1 are waiting, there is no room for 1 more"
    ]
    assert len(waiting(room, "other")) == 1, "one schedule does not stop another"
    room.queue("reports").purge()
    clock.advance("10s")
    schedules.tick()
    assert slots(room) == [on_the_hour + HOUR]


def test_what_a_newer_release_wrote_of_a_schedule_stops_no_other(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int, caplog: pytest.LogCaptureFixture
) -> None:
    room = planned(engine, it={"every": "1h"}, other={"every": "1h", "queue": "other"})
    schedules = Schedules(room)
    schedules.tick()
    newer = (
        b'{"schedule": {"name": "it", "queue": "reports", "every": "1h", "missed": "some"}, "done_until": 0}'
    )
    engine.records.put(KIND, "it", newer)
    clock.advance("1h")
    schedules.tick()
    assert len(waiting(room, "other")) == 1
    assert waiting(room) == [], "nothing is put on a guess"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "schedule it failed: schedule 'it': its record cannot be read by this release"
    ]
    assert [standing.schedule.name for standing in schedules.standings()] == ["it", "other"]
    with pytest.raises(Conflict, match="cannot be read by this release"):
        schedules.pause("it")
    found = engine.records.get(KIND, "it")
    assert found and found.value == newer


def test_a_schedule_with_other_times_than_before_has_missed_nothing(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    Schedules(planned(engine, it={"every": "1d"})).tick()
    clock.advance("5h30m")
    room = planned(engine, it={"every": "1h"})
    Schedules(room).tick()
    assert not waiting(room)
    clock.advance("30m")
    Schedules(room).tick()
    assert len(waiting(room)) == 1


def test_a_clock_that_was_far_ahead_does_not_stop_a_schedule_for_ever(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int, caplog: pytest.LogCaptureFixture
) -> None:
    room = planned(engine, it={"every": "1h"})
    Schedules(room).tick()
    engine.records.put(KIND, "it", _with(engine, done_until=clock() + 400 * 24 * HOUR))
    Schedules(room).tick()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    clock.advance("1h")
    Schedules(room).tick()
    assert len(waiting(room)) == 1


# ---- Pause, resume, run now -----------------------------------------------------------------------


def test_a_pause_is_seen_by_every_process(engine: MemoryEngine, clock: ManualClock, on_the_hour: int) -> None:
    room = planned(engine, it={"every": "1h"})
    keeper = Schedules(room)
    keeper.tick()
    Schedules(planned(engine, it={"every": "1h"})).pause("it", "the warehouse moves")
    clock.advance("3h")
    keeper.tick()
    assert not waiting(room)
    (standing,) = keeper.standings()
    assert (standing.paused, standing.reason, standing.next_slot) == (True, "the warehouse moves", None)
    Schedules(planned(engine)).resume("it")
    keeper.tick()
    assert not waiting(room), "what came while it was paused is passed over"
    clock.advance("1h")
    keeper.tick()
    assert slots(room) == [on_the_hour + 4 * HOUR]


def test_a_pause_that_comes_between_the_look_and_the_note_is_kept(
    engine: MemoryEngine, clock: ManualClock
) -> None:
    room = planned(engine, it={"every": "1h"})
    keeper = Schedules(room)
    keeper.tick()
    clock.advance("1h")

    @room.before_put
    def interrupt(message: Any, queue: Any) -> None:
        if not Schedules(planned(engine)).standings()[0].paused:
            Schedules(planned(engine)).pause("it")

    keeper.tick()
    (standing,) = keeper.standings()
    assert standing.paused
    assert len(waiting(room)) == 1
    keeper.tick()
    assert len(waiting(room)) == 1


def test_run_now_puts_a_message_beside_the_slots(
    engine: MemoryEngine, clock: ManualClock, on_the_hour: int
) -> None:
    room = planned(engine, it={"every": "1h", "kind": "report"})
    keeper = Schedules(room)
    keeper.tick()
    ids = {Schedules(planned(engine)).run_now("it").id for _ in range(2)}
    assert {entry.id for entry in waiting(room)} == ids, "also by who has no such configuration"
    assert {entry.message.kind for entry in waiting(room)} == {"report"}
    clock.advance("1h")
    keeper.tick()
    assert len(waiting(room)) == 3


def test_run_now_works_while_it_is_paused(engine: MemoryEngine) -> None:
    room = planned(engine, it={"every": "1h"})
    Schedules(room).pause("it")
    Schedules(room).run_now("it")
    assert len(waiting(room)) == 1
    assert Schedules(room).standings()[0].paused


@pytest.mark.parametrize("verb", ["pause", "resume", "run_now"])
def test_a_schedule_that_nobody_knows_is_not_found(engine: MemoryEngine, verb: str) -> None:
    with pytest.raises(NotFound, match="nobody"):
        getattr(Schedules(planned(engine)), verb)("nobody")


def test_a_change_that_never_gets_through_says_so(engine: MemoryEngine) -> None:
    wire = Wire(engine)
    room = planned(wire, it={"every": "1h"})
    Schedules(room).tick()
    original = engine.records.get

    def get(kind: str, key: str) -> Any:
        record = original(kind, key)
        assert record
        engine.records.put(kind, key, record.value)
        return record

    engine.records.get = get  # type: ignore[method-assign]  # somebody else changes it after every look
    try:
        with pytest.raises(Conflict, match="try again"):
            Schedules(room).pause("it")
    finally:
        engine.records.get = original  # type: ignore[method-assign]  # as it was


# ---- By the keeper --------------------------------------------------------------------------------


def test_only_the_leading_keeper_runs_schedules(engine: MemoryEngine, clock: ManualClock) -> None:
    room, other = planned(engine, it={"every": "1h"}), planned(engine, it={"every": "1h"})
    leader, candidate = Keeper(room), Keeper(other)
    leader.tick()
    clock.advance("10s")
    candidate.tick()
    assert (leader.leading, candidate.leading) == (True, False)
    assert [standing.schedule.name for standing in Schedules(room).standings()] == ["it"]
    leader.stop()
    clock.advance("1h")
    candidate.tick()
    assert candidate.leading
    assert len(waiting(other)) == 1


def test_a_worker_runs_schedules(hire: Hire) -> None:
    engine = MemoryEngine()
    done: list[str] = []
    room = planned(engine, often={"every": "1s", "kind": "tick"})
    with room:
        hire(room, {"reports": lambda delivery: done.append(delivery.id)})
        eventually(lambda: len(done) >= 2, timeout=60)
        assert len(done) == len(set(done))
