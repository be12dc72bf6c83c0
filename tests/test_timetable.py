"""When a schedule is due: cron and spans, and the days on which the clocks change."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from postroom.errors import InvalidInput, MissingExtra
from postroom.limits import check_id
from postroom.timetable import Schedule, read

HOUR = 3_600_000


def schedule(cron: str | None = None, timezone: str = "UTC", **fields: Any) -> Schedule:
    return Schedule(**{"name": "it", "queue": "reports", "cron": cron, "timezone": timezone, **fields})


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000


def local(slots: list[int], timezone: str) -> list[str]:
    return [datetime.fromtimestamp(slot / 1_000, ZoneInfo(timezone)).isoformat()[:22] for slot in slots]


def day(cron: str, timezone: str, date: str, days: int = 1) -> list[str]:
    """The slots of this day, in local time with the offset."""
    begin = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo(timezone))
    end = begin + timedelta(days=days)  # by the clocks on the wall
    after, until = int(begin.timestamp() * 1_000) - 1, int(end.timestamp() * 1_000) - 1
    return local(schedule(cron, timezone).slots(after, until, 1_000), timezone)


# ---- The days on which the clocks change -----------------------------------------------------------


@pytest.mark.parametrize(
    ("timezone", "date", "cron", "due"),
    [
        ("Europe/Berlin", "2026-03-29", "30 2 * * *", "2026-03-29T03:00:00+02"),
        ("America/New_York", "2026-03-08", "15 2 * * *", "2026-03-08T03:00:00-04"),
        ("Australia/Lord_Howe", "2026-10-04", "10 2 * * *", "2026-10-04T02:30:00+11"),
        ("America/Sao_Paulo", "2018-11-04", "0 0 * * *", "2018-11-04T01:00:00-02"),
    ],
)
def test_a_time_that_is_skipped_is_due_right_after_the_gap(
    timezone: str, date: str, cron: str, due: str
) -> None:
    assert day(cron, timezone, date) == [due]


@pytest.mark.parametrize(
    ("timezone", "date", "cron", "due"),
    [
        ("Europe/Berlin", "2026-10-25", "30 2 * * *", "2026-10-25T02:30:00+02"),
        ("America/New_York", "2026-11-01", "30 1 * * *", "2026-11-01T01:30:00-04"),
        ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", "2026-04-05T01:45:00+11"),
    ],
)
def test_a_time_that_comes_twice_is_due_once_the_first_time(
    timezone: str, date: str, cron: str, due: str
) -> None:
    assert day(cron, timezone, date) == [due]


@pytest.mark.parametrize(("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_what_is_due_every_hour_goes_on_through_the_change(date: str, hours: int) -> None:
    begin = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    after, until = (int(each.timestamp() * 1_000) - 1 for each in (begin, begin + timedelta(days=1)))
    slots = schedule("0 * * * *", "Europe/Berlin").slots(after, until, 1_000)
    assert len(slots) == hours
    assert {later - slot for slot, later in pairwise(slots)} == {HOUR}


CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Pacific/Apia", "2011-12-30"),
]
CRONS = ["30 2 * * *", "*/15 * * * *", "30 1,2,3 * * *", "15 */2 * * *", "*/7 1-3 * * *", "59 1 * * SUN"]


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("timezone", "date"), CHANGES)
def test_the_slots_are_the_same_wherever_one_begins_to_count(timezone: str, date: str, cron: str) -> None:
    it = schedule(cron, timezone)
    begin = ms(f"{date}T00:00:00+00:00") - 24 * HOUR
    every = it.slots(begin, begin + 60 * HOUR, 10_000)
    assert every == sorted(set(every))
    for middle in range(begin, begin + 48 * HOUR, 433_000):
        end = middle + 4 * HOUR
        assert it.slots(middle, end, 10_000) == [slot for slot in every if middle < slot <= end]


# ---- Slots ----------------------------------------------------------------------------------------


def test_a_span_counts_from_1970_in_every_process() -> None:
    it = schedule(every="15m")
    assert it.next_slot(ms("2026-01-01T00:00:00+00:00")) == ms("2026-01-01T00:15:00+00:00")
    assert it.next_slot(ms("2026-01-01T00:14:59+00:00")) == ms("2026-01-01T00:15:00+00:00")


@pytest.mark.parametrize("it", [schedule(every="1s"), schedule("* * * * *"), schedule("0 0 1 1 *")])
def test_a_look_back_over_ten_years_gives_the_latest(it: Schedule) -> None:
    until = ms("2026-01-02T00:00:00+00:00")
    slots = it.slots(ms("2016-06-01T00:00:00+00:00"), until, 5)
    assert len(slots) == 5
    assert it.slots(slots[0] - 1, until, 100) == slots


def test_slots_are_after_the_one_instant_and_up_to_the_other() -> None:
    at = [ms(f"2026-01-01T0{hour}:00:00+00:00") for hour in range(4)]
    assert schedule("0 * * * *").slots(at[0], at[2], 100) == at[1:3]
    assert schedule(every="1h").slots(at[0], at[2], 100) == at[1:3]


def test_seconds_may_come_first() -> None:
    noon = ms("2026-01-01T12:00:00+00:00")
    assert schedule("*/20 * * * * *").slots(noon, noon + 60_000, 10) == [
        noon + 20_000,
        noon + 40_000,
        noon + 60_000,
    ]


def test_the_id_of_a_slot_is_the_same_for_everybody_and_sorts_by_time() -> None:
    it, later = schedule("0 * * * *"), schedule("0 * * * *", body={"other": 1})
    assert it.message_id(HOUR) == later.message_id(HOUR)
    ids = [it.message_id(slot) for slot in (HOUR, 2 * HOUR, ms("2026-01-01T00:00:00+00:00"))]
    assert ids == sorted(set(ids))
    for id in ids:
        check_id(id)
    assert schedule("0 * * * *", name="other").message_id(HOUR) != ids[0]


# ---- Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"queue": "q"}, "exactly one"),
        ({"queue": "q", "cron": "* * * * *", "every": "1m"}, "exactly one"),
        ({"queue": "q", "cron": "61 * * * *"}, "cron: '61 \\* \\* \\* \\*' is not a cron expression"),
        ({"queue": "q", "cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "timezone: there is no"),
        ({"queue": "q", "cron": "0 0 * * *", "timezone": "../../etc/passwd"}, "timezone: there is no"),
        ({"queue": "q", "every": "1m", "timezone": "Europe/Berlin"}, "timezone: is for cron"),
        ({"queue": "q", "every": "10ms"}, "at least one second"),
        ({"queue": "q", "every": "often"}, "every: 'often' is not a duration"),
        ({"queue": "", "every": "1m"}, "queue"),
        ({"every": "1m"}, "queue"),
        ({"queue": "q", "every": "1m", "missed": "never"}, "missed"),
        ({"queue": "q", "every": "1m", "priority": 256}, "priority"),
        ({"queue": "q", "every": "1m", "headers": {"a": 1}}, "headers"),
    ],
)
def test_what_makes_no_sense_is_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read("it", table)


def test_spans_are_written_in_one_form() -> None:
    assert read("it", {"queue": "q", "every": 90}).every == "1m30s"
    assert read("it", {"queue": "q", "every": "90s", "expires": 3600}).given() == {
        "queue": "q",
        "every": "1m30s",
        "expires": "1h",
    }


def test_utc_is_the_zone_unless_another_is_given() -> None:
    (slot,) = schedule("0 12 * * *").slots(
        ms("2026-07-01T00:00:00+00:00"), ms("2026-07-02T00:00:00+00:00"), 9
    )
    assert datetime.fromtimestamp(slot / 1_000, UTC).hour == 12


def test_cron_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtra, match=r"postroom\[schedule\]"):
        read("it", {"queue": "q", "cron": "* * * * *"})
    assert read("it", {"queue": "q", "every": "1m"}).every == "1m"
