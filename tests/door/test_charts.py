"""Samples for charts: what is kept, for how long, by whom, and what it costs."""

from __future__ import annotations

import pytest

from postroom import charts
from postroom.errors import EngineUnavailable
from postroom.keeper import Keeper
from postroom.room import Room
from postroom.testing import ManualClock

HOUR = 3_600_000


def test_a_keeper_samples_how_queues_stand_and_what_they_count(room: Room, clock: ManualClock) -> None:
    keeper, queue = Keeper(room), room.queue("emails")
    for count in (1, 2, 3):
        queue.put_many(range(count))
        keeper.tick()
        keeper.tick()  # the same ten seconds: no second point
        clock.advance("10s")
    chart = charts.read(room.engine, "emails", HOUR)
    assert (chart.step, [point.standing[0] for point in chart.points]) == (10_000, [1, 3, 6])
    assert chart.rates("put") == [None, 0.2, 0.3]
    assert chart.rates("acked") == [None, 0.0, 0.0]
    whole = charts.read(room.engine, charts.ROOM, HOUR)
    assert [point.standing for point in whole.points] == [point.standing for point in chart.points]


def test_each_span_is_drawn_as_fine_as_it_is_kept(room: Room, clock: ManualClock) -> None:
    sampler = charts.Sampler(room.engine)
    room.queue("emails").put(1)
    for _ in range(2 * 360):
        sampler.tick(["emails"])
        clock.advance("10s")
    hour, day = (charts.read(room.engine, "emails", hours * HOUR) for hours in (1, 12))
    assert (hour.step, len(hour.points)) == (10_000, 359)
    assert (day.step, len(day.points)) == (60_000, 120)
    assert len(charts.read(room.engine, "emails", 24 * HOUR).points) in (2, 3)
    coarse = charts.read(room.engine, "emails", HOUR, step=60_000)
    assert (coarse.step, len(coarse.points)) == (60_000, 59)


def test_what_is_old_goes_by_itself(room: Room, clock: ManualClock) -> None:
    sampler = charts.Sampler(room.engine)
    room.queue("emails").put(1)
    sampler.tick(["emails"])
    there = len(room.engine.records.list(charts.KIND))
    clock.advance("2h")
    assert len(room.engine.records.list(charts.KIND)) == there - 2, (
        "the finest ring, of the queue and the room"
    )
    clock.advance("40d")
    assert room.engine.records.list(charts.KIND) == []


def test_a_second_keeper_goes_on_with_the_same_chart(room: Room, clock: ManualClock) -> None:
    first, second = charts.Sampler(room.engine), charts.Sampler(room.engine)
    room.queue("emails").put(1)
    for sampler in (first, second, first, second):
        sampler.tick(["emails"])
        clock.advance("10s")
    assert len(charts.read(room.engine, "emails", HOUR).points) == 4


def test_a_queue_whose_name_begins_like_another_has_its_own(room: Room, clock: ManualClock) -> None:
    for name in ("a", "a:000", "b"):
        room.queue(name).put(name)
    charts.Sampler(room.engine).tick(["a", "a:000", "b"])
    assert [len(charts.read(room.engine, name, HOUR).points) for name in ("a", "a:000", "b", "c")] == [
        1,
        1,
        1,
        0,
    ]


def test_a_queue_that_is_made_again_has_no_negative_rate(room: Room, clock: ManualClock) -> None:
    sampler = charts.Sampler(room.engine)
    room.queue("emails").put_many(range(5))
    sampler.tick(["emails"])
    room.queue("emails").drop(force=True)
    room.queue("emails").put(1)
    clock.advance("10s")
    sampler.tick(["emails"])
    assert charts.read(room.engine, "emails", HOUR).rates("put") == [None, 0.0]


def test_a_store_that_takes_no_samples_does_not_stop_the_keeper(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EngineUnavailable("full")

    room.queue("emails").put(1)
    monkeypatch.setattr(room.engine.records, "put", refuse)
    assert 0 < charts.Sampler(room.engine).tick(["emails"]) <= 10_000
