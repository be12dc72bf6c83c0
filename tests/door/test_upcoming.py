"""What is due when, over several queues: exact, whatever there is of it, and bounded."""

from __future__ import annotations

import pytest

from postroom import upcoming
from postroom.errors import InvalidInput
from postroom.room import Room
from postroom.testing import ManualClock

MINUTE = 60_000


def test_what_is_due_within_a_span_and_what_is_not(room: Room, clock: ManualClock) -> None:
    emails, reports = room.queue("emails"), room.queue("reports")
    emails.put("late", delay="1s")
    clock.advance("2s")
    for delay in ("10s", "50s", "70s"):
        emails.put("soon", delay=delay)
    reports.put("soon", delay="61s")
    reports.put("once", delay="30d")
    found = upcoming.read(room.engine, ["emails", "reports"], 2 * MINUTE, 4)
    assert (found.counts, found.overdue, found.later, found.whole) == ([1, 1, 2, 0], 1, 1, True)
    assert (found.now, found.until) == (clock(), clock() + 2 * MINUTE)
    assert upcoming.read(room.engine, ["reports"], 2 * MINUTE, 1).counts == [1]


def test_without_a_span_it_reaches_as_far_as_there_is_anything(room: Room, clock: ManualClock) -> None:
    for minutes in (1, 100, 5_000):
        room.queue("reports").put(minutes, delay=f"{minutes}m")
    found = upcoming.read(room.engine, ["reports"], None, 48)
    assert (sum(found.counts), found.later) == (3, 0)
    assert 1 in found.counts[-2:], "the bars are not for what is empty"
    assert 5_000 * MINUTE <= found.until - clock() <= 5_000 * MINUTE * 1.05


def test_nothing_is_due_where_there_is_nothing(room: Room, clock: ManualClock) -> None:
    assert upcoming.read(room.engine, [], None, 2) == (clock(), clock() + MINUTE, [0, 0], 0, 0, True)
    room.queue("emails").put(1)
    assert upcoming.read(room.engine, ["emails"], None, 2).counts == [0, 0]


@pytest.mark.parametrize("bars", [0, 501])
def test_bars_are_bounded(room: Room, bars: int) -> None:
    with pytest.raises(InvalidInput, match="bars"):
        upcoming.read(room.engine, ["emails"], MINUTE, bars)
