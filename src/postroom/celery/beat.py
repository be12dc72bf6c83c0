"""Celery's beat over Postroom's schedules: `celery beat -S postroom.celery.beat:Scheduler`.

Each entry of `beat_schedule` is a schedule of the domain: the slot is the message's id, and what was sent up
to now is a record in the store. So any number of beats make one message a slot, none of them leads, none
keeps a file, and a change of the clocks is met as by every other schedule.
"""

from __future__ import annotations

import copy
import logging
from datetime import UTC
from typing import Any
from uuid import UUID

import celery.beat
import msgspec
from celery.schedules import crontab, schedule
from kombu.exceptions import OperationalError

from postroom.celery import options
from postroom.celery.offices import office_of
from postroom.celery.retrying import queue_for
from postroom.celery.transport import Transport
from postroom.celery.wrapping import PUBLISH_ID, cut_name
from postroom.celery.wrapping import REMEMBER as REMEMBERED
from postroom.duration import milliseconds
from postroom.errors import ConfigError, EngineUnavailable, InvalidInput, PostroomError
from postroom.limits import MAX_RECORD
from postroom.model import Put
from postroom.room import Room
from postroom.schedule import REMEMBER, Schedules
from postroom.timetable import Schedule

log: logging.Logger = logging.getLogger(__name__)

#: Begins the names of these schedules: those of a postroom.toml have theirs.
_PREFIX = "beat:"
#: What the names, the times and the reason of a pause leave of a record (bytes).
_MOST_BODY = MAX_RECORD - 4_096
#: While the store is away beat looks again after this long (seconds).
_AWAY = 1.0
#: A list of days that begins with a star is met by both, the day of the month and the day of the week.
_FIRST_OF_MONTH, _SUNDAY = "*/31", "*/8"


class Scheduler(celery.beat.Scheduler):
    """See the module. Raises ConfigError for an entry that no schedule can be made of."""

    old_schedulers: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._book: Schedules | None = None
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; the seconds until something is."""
        if self._book is None or not self.schedules_equal(self.old_schedulers, self.schedule):
            self.old_schedulers = copy.copy(self.schedule)
            due = (timetable(self.app, entry) for entry in self.schedule.values())
            self._book = Schedules(self._room(), {each.name: each for each in due}, self._send)
        try:
            return float(min(self._book.tick() / 1_000, self.max_interval))
        except PostroomError as error:
            log.warning("beat failed: %s", error, extra={"event": "celery.beat_failed", "error": str(error)})
            return _AWAY

    def _room(self) -> Room:
        connection = self.connection
        if not isinstance(connection.transport, Transport):
            raise ConfigError("beat: the broker is no room of Postroom; its URL begins with postroom+")
        return office_of(options.url_of(connection), options.read(connection.transport_options)).room

    def _send(self, due: Schedule, id: str, slot: int) -> Put:
        """Send the task of a slot as Celery's beat does, under the name of the slot."""
        entry = copy.copy(self.schedule[due.name.removeprefix(_PREFIX)])
        told = {"schedule": due.name, "slot": str(slot)}
        entry.options = {
            "task_id": str(UUID(hex=id)),
            **entry.options,
            "headers": {**(entry.options.get("headers") or {}), **told},
            PUBLISH_ID: id,
            REMEMBERED: milliseconds(REMEMBER),
        }
        try:
            self.apply_async(entry, producer=self.producer, advance=False)
        except celery.beat.SchedulingError as error:
            raise _refusal(error) from error
        log.info("sent %s (%s)", entry.name, entry.task, extra={"event": "schedule.put", **told})
        return Put(id)


def _refusal(error: Exception) -> PostroomError:
    """Why a task could not be sent, as the domain understands it: an outage ends, anything else may not."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, PostroomError):
        return cause
    return EngineUnavailable(str(cause)) if isinstance(cause, OperationalError) else InvalidInput(str(error))


# --- what Celery's entries mean -----------------------------------------------------------------


def timetable(app: Any, entry: Any) -> Schedule:
    """An entry of `beat_schedule` as a schedule. Raises ConfigError."""
    task = app.tasks.get(entry.task)
    given = {**(task._get_exec_options() if task else {}), **entry.options}
    # For `postroom schedule run-now`, which knows nothing of Celery.
    body = [list(entry.args or ()), dict(entry.kwargs or {}), {}]
    is_written = _can_be_written(body)
    try:
        return Schedule(
            name=f"{_PREFIX}{entry.name}",
            queue=queue_for(app, entry.task, given),
            kind=cut_name(entry.task),
            body=body if is_written else None,
            unwritten=not is_written,
            priority=given.get("priority") or 0,
            **_when(entry.schedule),
        )
    except InvalidInput as error:
        raise ConfigError(f"beat_schedule {entry.name!r}: {error}") from error


def _can_be_written(body: Any) -> bool:
    """Whether a record can hold these arguments: those of a serializer of the app's need not be JSON."""
    try:
        return len(msgspec.json.encode(body)) <= _MOST_BODY
    except Exception:  # whatever somebody's object raises when it is looked into
        return False


def _when(due: Any) -> dict[str, Any]:
    if isinstance(due, crontab):
        return {"cron": cron(due), "timezone": _zone(due.tz)}
    if type(due) is schedule:
        return {"every": f"{round(due.run_every.total_seconds() * 1_000)}ms"}
    raise InvalidInput(f"{due!r} is neither a crontab nor a span; leave it to a beat of Celery's own")


def cron(due: crontab) -> str:
    """The expression for a crontab. In Celery both, day of the month and day of the week, must be met.

    In an expression they are when one of them begins with a star. Raises InvalidInput when none can.
    """
    days, weekdays = due.day_of_month, due.day_of_week
    day = _field(due._orig_day_of_month, days, 31)
    weekday = _field(due._orig_day_of_week, weekdays, 7)
    if not (day.startswith("*") or weekday.startswith("*")):
        if 1 in days:
            day = f"{_FIRST_OF_MONTH},{day}"
        elif 0 in weekdays:
            weekday = f"{_SUNDAY},{weekday}"
        else:
            raise InvalidInput("a day of the month and a day of the week at once cannot be written as cron")
    minute = _field(due._orig_minute, due.minute, 60)
    hour = _field(due._orig_hour, due.hour, 24)
    return f"{minute} {hour} {day} {_field(due._orig_month_of_year, due.month_of_year, 12)} {weekday}"


def _field(given: Any, values: set[int], all_of_them: int) -> str:
    """A star as it was given, because it says how a change of the clocks is met; else number by number."""
    if isinstance(given, str) and given.startswith("*") and "," not in given:
        return given
    return "*" if len(values) == all_of_them else ",".join(map(str, sorted(values)))


def _zone(zone: Any) -> str:
    name = getattr(zone, "key", None) or ("UTC" if zone is UTC else None)
    if name is None:
        raise InvalidInput(f"timezone: {zone} has no name; set one, such as Europe/Berlin")
    return str(name)
