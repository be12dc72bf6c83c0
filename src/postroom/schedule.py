"""Schedules: the keeper puts a message for every slot, and every process can pause one or run it now.

The slot is the message's id, remembered for a day, so that two keepers at once, or one that died between
the put and its note, make one message. What was put up to now, and whether a schedule is paused, is a
record: it is changed by compare-and-set, so that the note of a slot overwrites nobody's pause.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from postroom import audit
from postroom.duration import Duration, milliseconds
from postroom.errors import Conflict, EngineUnavailable, NotFound, PostroomError
from postroom.ids import new_id
from postroom.limits import MAX_BATCH, check_name, cut_text
from postroom.logs import Record
from postroom.model import Put
from postroom.room import Room
from postroom.timetable import Schedule

log: logging.Logger = logging.getLogger(__name__)

KIND = "schedule"
#: A slot that was not put for this long is missed (ms): longer than it takes another keeper to take over.
ON_TIME = 60_000
#: How many of the latest missed slots the policy `all` puts.
MOST_MISSED = 100
#: How long the id of a slot is recognised after its message is gone.
REMEMBER: Duration = "24h"
#: A note from further ahead than this (ms) comes from a clock that was wrong.
_FUTURE = 24 * 3_600_000
#: How often a change is tried while others change the same record.
_TRIES = 20
#: Looked at again so much later when nothing is due sooner (ms); a pause is seen at the slot itself.
_LOOK = 60_000


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a schedule stands, as every process sees it: what it is, and what was done."""

    schedule: Schedule
    #: Slots up to this instant are dealt with.
    done_until: int
    paused: bool = False
    reason: str = ""
    last_slot: int | None = None
    last_id: str = ""
    #: Slots that were passed over: missed, or while paused.
    skipped: int = 0

    @property
    def next_slot(self) -> int | None:
        return None if self.paused else self.schedule.next_slot(self.done_until)


_decode = msgspec.json.Decoder(Standing).decode

#: Puts the message of a slot, under this id.
Putting = Callable[[Schedule, str, int], Put]


class Schedules:
    """All schedules of a room: those of its configuration to run, all that anybody ran to look at.

    A door may have schedules of its own, and its own way to put the message of a slot: then any number of
    its processes may run them at once, without a leader, and make one message a slot.
    """

    def __init__(
        self, room: Room, schedules: Mapping[str, Schedule] | None = None, put: Putting | None = None
    ) -> None:
        self._room = room
        self._configured = room.config.schedules if schedules is None else schedules
        self._put = put or self._put_here
        self._records = room.engine.records
        #: When to look at each next, by the engine's clock.
        self._due: dict[str, int] = {}

    # --- run by the keeper ------------------------------------------------------------------

    def tick(self) -> int:
        """Put what is due; returns the span after which to look again (ms)."""
        if not self._configured:
            return _LOOK
        now = self._room.engine.now()
        for name, schedule in self._configured.items():
            if self._due.get(name, now) <= now:
                self._due[name] = self._attended(schedule, now)
        return max(0, min(self._due.values()) - now)

    def _attended(self, schedule: Schedule, now: int) -> int:
        """Run one schedule, and say when to look at it again; what goes wrong with it stays its own."""
        try:
            self._run(schedule, now)
        except EngineUnavailable:
            raise
        except PostroomError as error:  # a full queue, a hook that refuses: the slot is tried again
            extra = {"event": "schedule.failed", "schedule": schedule.name, "error": str(error)}
            log.warning("schedule %s failed: %s", schedule.name, error, extra=extra)
            return now + ON_TIME // 10
        upcoming = schedule.next_slot(now)
        return now + _LOOK if upcoming is None else min(upcoming, now + _LOOK)

    def _run(self, schedule: Schedule, now: int) -> None:
        standing, version, changed = self._load(schedule, now)
        slots = schedule.slots(standing.done_until, now, MOST_MISSED + ON_TIME // 1_000)
        chosen = [] if standing.paused else _chosen(schedule, slots, now)
        for slot in chosen:
            put = self._put(schedule, schedule.message_id(slot), slot)
            standing = msgspec.structs.replace(standing, last_slot=slot, last_id=put.id)
        if passed := len(slots) - len(chosen):
            standing = msgspec.structs.replace(standing, skipped=standing.skipped + passed)
            if not standing.paused:
                _tell_missed(schedule, passed)
        if slots or changed:
            self._note(msgspec.structs.replace(standing, schedule=schedule, done_until=now), version)

    def _load(self, schedule: Schedule, now: int) -> tuple[Standing, int, bool]:
        """How it stands, its version, and whether that is to be written anew.

        One that nobody knows begins now, and so does one that a wrong clock took ahead.
        """
        found = self._find(schedule.name)
        if found is None:
            return Standing(schedule=schedule, done_until=now), 0, True
        standing, version = found
        ahead = standing.done_until > now + _FUTURE
        if ahead:
            extra = {"event": "schedule.clock", "schedule": schedule.name}
            log.warning("schedule %s was ahead of the clock and begins now", schedule.name, extra=extra)
        if ahead or standing.schedule.when != schedule.when:  # what was due by other times is not missed
            standing = msgspec.structs.replace(standing, done_until=now)
        return standing, version, ahead or standing.schedule != schedule

    def _note(self, standing: Standing, version: int) -> None:
        """Keep what was done, unless somebody changed the record meanwhile: then the next look does it again,
        and the ids of the slots make sure that nothing is put twice."""
        value = msgspec.json.encode(standing)
        if self._records.put(KIND, standing.schedule.name, value, expect=version) is None:
            self._due.pop(standing.schedule.name, None)

    def _put_here(self, schedule: Schedule, id: str, slot: int) -> Put:
        if schedule.unwritten:
            raise Conflict(
                f"schedule {schedule.name}: its arguments are too large, or none that JSON can say; "
                "only the program that runs it can put them, and nothing was put"
            )
        end = _end(schedule, slot)
        put = self._room.queue(schedule.queue).put(
            schedule.body,
            id=id,
            kind=schedule.kind,
            priority=schedule.priority,
            headers={**schedule.headers, "schedule": schedule.name, "slot": str(slot)},
            at=slot / 1_000,
            expires=None if end is None else datetime.fromtimestamp(end / 1_000, UTC),
            remember=REMEMBER,
        )
        extra = {"event": "schedule.put", "schedule": schedule.name, "queue": schedule.queue}
        told = {**extra, "message_id": put.id, "is_new": put.created}
        log.info("schedule %s put %s", schedule.name, put.id, extra=told)
        return put

    # --- for people -------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """All schedules that this room's configuration or anybody's keeper knows, by name."""
        now = self._room.engine.now()
        known = {name: Standing(schedule=each, done_until=now) for name, each in self._configured.items()}
        for record in self._records.list(KIND, limit=MAX_BATCH):
            with contextlib.suppress(Conflict):  # then as it is configured here, if it is
                known[record.key] = _read(record)
        return [known[name] for name in sorted(known)]

    def pause(self, name: str, reason: str = "") -> Standing:
        """Put no more slots of it, in any process, until `resume`; slots meanwhile are passed over."""
        reason = cut_text(reason, "reason")
        standing = self._change(name, lambda standing, now: {"paused": True, "reason": reason})
        self._audit("pause_schedule", standing, reason=reason)
        return standing

    def resume(self, name: str) -> Standing:
        """Go on with the next slot."""
        step = {"paused": False, "reason": ""}
        standing = self._change(name, lambda standing, now: {**step, "done_until": now})
        self._audit("resume_schedule", standing)
        return standing

    def run_now(self, name: str) -> Put:
        """Put one message of it at once, paused or not; its slots stay as they are.

        Raises Conflict when its body is known only to the program that runs it.
        """
        standing = self._known(name)
        now = self._room.engine.now()
        put = self._put(standing.schedule, new_id(), now)
        self._audit("run_schedule", standing, id=put.id)
        self._change(name, lambda standing, now: {"last_id": put.id})
        return put

    def _audit(self, event: str, standing: Standing, **info: Any) -> None:
        schedule = standing.schedule
        audit.note(self._room.engine, event, schedule.queue, 1, schedule=schedule.name, **info)

    def _change(self, name: str, change: Callable[[Standing, int], Mapping[str, Any]]) -> Standing:
        for _ in range(_TRIES):
            now = self._room.engine.now()
            standing, version = self._find(name) or (self._known(name), 0)
            changed = msgspec.structs.replace(standing, **change(standing, now))
            if self._records.put(KIND, name, msgspec.json.encode(changed), expect=version) is not None:
                return changed
        raise Conflict(f"schedule {name}: others change it all the time; nothing was changed, try again")

    def _known(self, name: str) -> Standing:
        if found := self._find(name):
            return found[0]
        if schedule := self._configured.get(check_name(name, "schedule")):
            return Standing(schedule=schedule, done_until=self._room.engine.now())
        raise NotFound(f"schedule {name!r}: neither the configuration nor any keeper knows it")

    def _find(self, name: str) -> tuple[Standing, int] | None:
        record = self._records.get(KIND, name)
        return (_read(record), record.version) if record else None


def _read(record: Record) -> Standing:
    try:
        return _decode(record.value)
    except msgspec.DecodeError as error:  # written by a newer release: nothing is put on a guess
        raise Conflict(f"schedule {record.key!r}: its record cannot be read by this release") from error


def _chosen(schedule: Schedule, slots: list[int], now: int) -> list[int]:
    """Which of these slots to put: those on time, and of the missed ones what the policy says."""
    useful = [slot for slot in slots if (_end(schedule, slot) or now + 1) > now]
    missed = [slot for slot in useful if slot <= now - ON_TIME]
    on_time = useful[len(missed) :]
    match schedule.missed:
        case "all":
            return [*missed[-MOST_MISSED:], *on_time]
        case "once":
            return on_time or missed[-1:]
        case _:
            return on_time


def _end(schedule: Schedule, slot: int) -> int | None:
    """When the message of this slot is worthless; None: never."""
    return None if schedule.expires is None else slot + milliseconds(schedule.expires)


def _tell_missed(schedule: Schedule, count: int) -> None:
    extra = {"event": "schedule.missed", "schedule": schedule.name, "count": count, "missed": schedule.missed}
    log.warning("schedule %s missed slots: %d are passed over", schedule.name, count, extra=extra)
