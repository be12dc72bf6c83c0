"""Celery's beat over Postroom's schedules: several at once make one message a slot, and one may be killed."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab, schedule

from postroom.celery import close_offices
from postroom.celery.beat import Scheduler, cron, timetable
from postroom.errors import ConfigError, Conflict
from postroom.model import State
from postroom.room import Room
from postroom.schedule import Schedules
from postroom.timetable import Schedule
from tests.celery.workers import APP, Opener, Shop, WorkerProcess, pool, wait_until

pytestmark = pytest.mark.timeout(600)

BERLIN = ZoneInfo("Europe/Berlin")
SCHEDULER = "postroom.celery.beat:Scheduler"


# ---- two processes ---------------------------------------------------------------------------------


def beat(shop: Shop) -> WorkerProcess:
    return shop.background("beat", "-S", SCHEDULER, "--pidfile", "", "-l", "INFO")


def slots(shop: Shop) -> list[int]:
    return [int(line["slot"]) for line in shop.lines("tick", "often")]


def is_whole(found: list[int]) -> bool:
    """Each second once; the newest may overtake each other on their way into the ledger."""
    return sorted(found) == list(range(min(found), max(found) + 1, 1_000))


def test_two_beats_make_one_message_a_slot_and_one_may_be_killed(open_shop: Opener, room: Room) -> None:
    entry = {"task": f"{APP}.tick", "schedule": 1.0, "args": ["often"], "options": {"priority": 7}}
    shop = open_shop(beat_schedule={"often": entry})
    shop.worker(*pool("threads"))
    beats = [beat(shop), beat(shop)]
    shop.until(lambda: all("beat: Starting" in each.log() for each in beats))
    shop.until(lambda: len(slots(shop)) >= 4)
    beats[0].kill()
    so_far = len(slots(shop))
    shop.until(lambda: len(slots(shop)) >= so_far + 4, "the other beat does not go on")
    shop.until(lambda: is_whole(slots(shop)), "a slot is missing, or was sent twice")
    lines = shop.lines("tick")
    assert len({line["id"] for line in lines}) == len(lines)
    # A beat that comes later sends nothing again, though every message is gone.
    beats.append(beat(shop))
    shop.until(lambda: "beat: Starting" in beats[2].log())
    so_far = len(slots(shop))
    shop.until(lambda: len(slots(shop)) >= so_far + 2)
    shop.until(lambda: is_whole(slots(shop)))


@pytest.mark.parametrize("broker", ["sqlite"], indirect=True)
def test_its_schedules_are_those_of_the_room(open_shop: Opener, room: Room) -> None:
    """They are shown, paused and run by hand like any other."""
    entry = {"task": f"{APP}.tick", "schedule": 3600.0, "args": ["hourly"]}
    shop = open_shop(beat_schedule={"hourly": entry}, result_expires=None)
    beat(shop)
    shop.until(lambda: [each.schedule.name for each in Schedules(room).standings()] == ["beat:hourly"])
    (standing,) = Schedules(room).standings()
    assert (standing.schedule.when, standing.schedule.queue) == ("every 1h", "shop")
    command = [sys.executable, "-m", "postroom.cli", "schedule", "run-now", "beat:hourly"]
    url = ["--url", shop.broker.removeprefix("postroom+")]
    ran = subprocess.run([*command, *url], cwd=shop.folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    shop.worker(*pool("threads"))
    shop.until(lambda: shop.lines("tick", "hourly"), "what the command line put is no task")


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_the_matrix_says_where_it_sends_to(
    open_shop: Opener, room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "postroom.toml").write_text("[queues.beat]\n[queues.work]\ntasks = ['work.*']\n", "utf-8")
    monkeypatch.setattr("tests.celery.workers.APP", "tests.celery.matrix_app")
    monkeypatch.setenv("SHOP_MATRIX", str(tmp_path / "postroom.toml"))
    due = {name: {"task": name, "schedule": 1.0} for name in ("ticks", "work.more")}
    shop = open_shop(beat_schedule=due, result_expires=None)
    beat(shop)
    shop.until(lambda: room.engine.stats("beat").ready and room.engine.stats("work").ready)
    page = room.engine.find("beat", State.READY)
    assert {entry.message.kind for entry in page.entries} == {"ticks"}


def test_another_broker_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "celery", "-b", "memory://", "beat", "-S", SCHEDULER, "--pidfile", ""],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "the broker is no room of Postroom" in ran.stdout + ran.stderr


# ---- what entries mean -----------------------------------------------------------------------------


@pytest.fixture
def app() -> Celery:
    app = Celery("beats", broker="postroom+memory://", set_as_current=False)
    app.conf.timezone = "Europe/Berlin"
    return app


def made(app: Celery, due: Any, **more: Any) -> Schedule:
    return timetable(app, ScheduleEntry(name="it", task="do.it", schedule=due, app=app, **more))


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute="*/15", hour="8-17"), "*/15 8,9,10,11,12,13,14,15,16,17 * * *"),
        (crontab(0, 4, day_of_week="mon-fri"), "0 4 * * 1,2,3,4,5"),
        (crontab(0, 4, day_of_week="sat,sun"), "0 4 * * 0,6"),
        (crontab({30, 0}, 0, day_of_month=1, month_of_year="*/3"), "0,30 0 1 */3 *"),
        (crontab(0, 0, day_of_month="1-7", day_of_week="mon"), "0 0 */31,1,2,3,4,5,6,7 * 1"),
        (crontab(0, 0, day_of_month="13", day_of_week="sun"), "0 0 13 * */8,0"),
    ],
)
def test_a_crontab_is_cron(due: crontab, expected: str) -> None:
    assert cron(due) == expected


def test_both_days_of_a_crontab_must_be_met(app: Celery) -> None:
    """As in Celery: the first Monday of a month, not every Monday and all of its first week."""
    due = made(app, crontab(0, 0, day_of_month="1-7", day_of_week="mon"))
    begin = datetime(2026, 1, 1, tzinfo=BERLIN)
    found = [datetime.fromtimestamp(slot / 1_000, BERLIN) for slot in year_of(due, begin)]
    assert [day.month for day in found] == list(range(1, 13))
    assert all(day.weekday() == 0 and day.day <= 7 for day in found)


def year_of(due: Schedule, begin: datetime) -> list[int]:
    start = int(begin.timestamp() * 1_000) - 1
    end = int((begin + timedelta(days=365)).timestamp() * 1_000) - 1
    return due.slots(start, end, 1_000)


@pytest.mark.parametrize(
    ("due", "day", "expected"),
    [
        # 2:30 does not exist: right after the change. It comes twice: the first time.
        (crontab(30, 2), datetime(2026, 3, 29, tzinfo=BERLIN), ["03:00+0200"]),
        (crontab(30, 2), datetime(2026, 10, 25, tzinfo=BERLIN), ["02:30+0200"]),
        (crontab(0, "*"), datetime(2026, 3, 29, tzinfo=BERLIN), 23),
        (crontab(0, "*"), datetime(2026, 10, 25, tzinfo=BERLIN), 25),
    ],
)
def test_a_change_of_the_clocks_is_met_as_by_every_schedule(
    app: Celery, due: crontab, day: datetime, expected: list[str] | int
) -> None:
    start, end = (int(at.timestamp() * 1_000) - 1 for at in (day, day + timedelta(days=1)))
    found = [datetime.fromtimestamp(slot / 1_000, BERLIN) for slot in made(app, due).slots(start, end, 100)]
    shown = [f"{at:%H:%M%z}" for at in found]
    assert (len(shown) if isinstance(expected, int) else shown) == expected


def test_an_entry_goes_where_its_task_goes(app: Celery) -> None:
    app.conf.task_routes = {"do.*": {"queue": "doing"}}
    due = made(app, timedelta(minutes=5), args=(1,), kwargs={"b": 2}, options={"priority": 3})
    assert (due.name, due.when, due.queue, due.kind) == ("beat:it", "every 5m", "doing", "do.it")
    assert (due.priority, due.body) == (3, [[1], {"b": 2}, {}])
    assert made(app, 10, options={"queue": "mine"}).queue == "mine"


@pytest.mark.parametrize("argument", [object(), range(3), 1j, "\ud800", "x" * 70_000])
def test_arguments_that_no_record_can_hold_are_sent_all_the_same(app: Celery, argument: Any) -> None:
    entry = {"task": "do.it", "schedule": 1.0, "args": [argument]}
    app.conf.update(beat_schedule={"it": entry}, task_serializer="pickle")
    sent: list[Any] = []
    beat = Scheduler(app=app)
    beat.apply_async = lambda entry, **_: sent.append(entry.args)
    room = beat._room()
    beat.tick()
    wait_until(lambda: beat.tick() is not None and sent, lambda: "it is never due")
    assert sent[0] == [argument]
    with pytest.raises(Conflict, match=r"beat:it: its arguments .* nothing was put"):
        Schedules(room).run_now("beat:it")
    assert Schedules(room).pause("beat:it", "\0" * 200).paused
    close_offices()


class Tides(schedule):  # type: ignore[misc]  # Celery has no types
    """A schedule of somebody's own."""


@pytest.mark.parametrize(
    ("due", "complaint"),
    [
        (0.5, "every: must be at least one second"),
        (crontab(0, 0, day_of_month=13, day_of_week=5), "cannot be written as cron"),
        (Tides(60), "neither a crontab nor a span"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_by_name(app: Celery, due: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"beat_schedule 'it': .*{complaint}"):
        made(app, due)
