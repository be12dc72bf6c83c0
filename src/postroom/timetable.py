"""When a schedule is due: its slots, by cron expression or by a span. No I/O, no clock.

A slot is an instant, and the same for everybody who asks. The clocks of a time zone do not change that:
a time of day that a change of the clocks skips is due right after it, one that comes twice is due the first
time, and what is due every so many minutes or hours goes on through both (as Debian's cron does it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Any, Literal, cast

import msgspec

from postroom.duration import format_duration, milliseconds
from postroom.errors import InvalidInput, MissingExtra
from postroom.limits import MAX_PRIORITY, check_between, check_name

Missed = Literal["once", "skip", "all"]

#: A schedule is due at most this often (ms).
_LEAST_EVERY = 1_000
#: No change of the clocks that repeats a time of day takes longer.
_CHANGE = timedelta(hours=3)
#: The first look back for slots that were missed, and how much longer each further one is.
_LOOK, _FURTHER = timedelta(hours=1), 4


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to put, and when. Exactly one of `cron` and `every`; bad input is InvalidInput.

    cron        five fields (or six, with seconds in front), by the clocks of `timezone`
    every       a span; slots are its multiples since 1970, so every process counts the same
    queue       where the message goes; with its kind, body, priority and headers
    expires     worthless so long after its slot; None: never
    missed      what to do about slots that nobody put within a minute: `once` puts the latest,
                `skip` none, `all` each of the latest 100
    unwritten   the body is none that a record can hold: only the program that has it can put a message
    """

    name: str
    queue: str
    cron: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    kind: str = ""
    body: Any = None
    priority: str | int = "normal"
    headers: dict[str, str] = {}
    expires: str | None = None
    missed: Missed = "once"
    unwritten: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "schedule name")
        check_name(self.queue, "queue")
        if self.kind:
            check_name(self.kind, "kind")
        if (self.cron is None) == (self.every is None):
            raise InvalidInput("a schedule takes cron or every, exactly one of them")
        if self.missed not in ("once", "skip", "all"):
            raise InvalidInput(f'missed: {self.missed!r} is none of "once", "skip" and "all"')
        if isinstance(self.priority, int):
            check_between("priority", self.priority, 0, MAX_PRIORITY)
        self._normalise()
        self.next_slot(0)

    def _normalise(self) -> None:
        """Spans in the one form in which Postroom writes them."""
        for name in ("every", "expires"):
            if (value := getattr(self, name)) is not None:
                span = milliseconds(value, name)
                if span < _LEAST_EVERY:
                    raise InvalidInput(f"{name}: must be at least one second")
                msgspec.structs.force_setattr(self, name, format_duration(span))
        if self.every is not None and self.timezone != "UTC":
            raise InvalidInput("timezone: is for cron; every counts the same in all time zones")

    @property
    def when(self) -> str:
        """For people: `every 15m`, or the cron expression and its time zone."""
        return f"every {self.every}" if self.every is not None else f"{self.cron} ({self.timezone})"

    def given(self) -> dict[str, Any]:
        """What was said, without the name and what is as it is by default."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name != "name"}

    def next_slot(self, after: int) -> int | None:
        """The first slot after this instant; None: there is none within fifty years."""
        return next(self._slots(after), None)

    def slots(self, after: int, until: int, limit: int) -> list[int]:
        """The slots after one instant and up to another, the latest `limit` of them."""
        span = _LOOK
        while True:
            begin = max(after, until - _ms(span))
            found = deque(takewhile(lambda slot: slot <= until, self._slots(begin)), maxlen=limit)
            if len(found) == limit or begin == after:
                return list(found)
            span *= _FURTHER

    def message_id(self, slot: int) -> str:
        """The slot as a message id: whoever puts it, it is one message."""
        import hashlib  # here and not above: it takes OpenSSL to load

        digest = hashlib.sha256(f"{self.name}:slot:{slot}".encode()).hexdigest()
        return f"{slot:012x}{digest[:20]}"

    def _slots(self, after: int) -> Iterator[int]:
        if self.every is not None:
            span = milliseconds(self.every)
            return iter(range((after // span + 1) * span, 2**48, span))
        return self._by_cron(after)

    def _by_cron(self, after: int) -> Iterator[int]:
        zone = _zone(self.timezone)
        begin = datetime.fromtimestamp(after / 1_000, zone)
        earlier = (begin.astimezone(UTC) - _CHANGE).astimezone(zone) if after > _ms(_CHANGE) else begin
        # A count that began in the middle of a repeated hour would take its times for the first ones.
        if earlier.utcoffset() != begin.utcoffset():
            begin = earlier
        slots = (_ms_of(slot) for slot in _cron(cast(str, self.cron), begin))
        return (slot for slot in slots if slot > after)


def read(name: str, table: Mapping[str, Any]) -> Schedule:
    """The schedule that a table of the configuration describes. Raises InvalidInput."""
    fields = {**table, "name": name}
    for span in ("every", "expires"):
        if span in fields:
            fields[span] = format_duration(milliseconds(fields[span], span))
    try:
        return msgspec.convert(fields, Schedule)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error.__cause__ or error)) from None


#: What a table of a schedule may hold.
SETTINGS = tuple(field for field in Schedule.__struct_fields__ if field not in ("name", "unwritten"))


def _cron(expression: str, begin: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise MissingExtra("a schedule by cron needs: pip install 'postroom[schedule]'") from error
    try:
        return CronSim(expression, begin)
    except CronSimError as error:
        raise InvalidInput(f"cron: {expression!r} is not a cron expression: {error}") from None


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import (
        ZoneInfo,  # here and not above: most schedules, and all programs without one, need none
    )

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"timezone: there is no {name!r}; expected one such as Europe/Berlin") from None


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _ms_of(slot: datetime) -> int:
    return int(slot.timestamp()) * 1_000
