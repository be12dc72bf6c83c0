"""The incident log: what people found out about a group of dead letters, and how far they are.

One record a group, for the whole room: its status, its bucket, the root cause, the fix, a link; and who
changed what when. Open → Acknowledged → Resolved; a letter that dies after the resolution opens it again.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from typing import Any

import msgspec

from postroom import audit
from postroom.engine import Engine
from postroom.errors import Conflict, InvalidInput

KIND = "note"
#: An incident nobody has touched for so long is forgotten (ms).
_KEPT = 365 * 86_400_000
#: Changes kept with an incident, characters of a text, and how often a write is tried beside others.
_CHANGES, _TEXT, _TRIES = 50, 2_000, 10


class Bucket(enum.StrEnum):
    """What to do about a group: repair the code, repair the neighbour, or let go of the message."""

    BUG = "bug"
    TRANSIENT = "transient"
    POISON = "poison"


class Status(enum.StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody noted at one time."""

    at: int
    author: str
    what: dict[str, str]


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a group. `seen` is the death of its newest letter when this was written."""

    group: str
    status: Status = Status.OPEN
    bucket: Bucket | None = None
    cause: str = ""
    fix: str = ""
    link: str = ""
    author: str = ""
    at: int = 0
    seen: int = 0
    changes: tuple[Change, ...] = ()
    #: A letter died after the resolution.
    reopened: bool = False

    def as_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown

    def beside(self, last: int) -> Incident:
        """The incident as it stands when the newest letter of the group died at `last`."""
        if self.status is not Status.RESOLVED or last <= self.seen:
            return self
        return msgspec.structs.replace(self, status=Status.OPEN, reopened=True)


_decode = msgspec.json.Decoder(Incident).decode


def get(engine: Engine, group: str) -> Incident | None:
    record = engine.records.get(KIND, group)
    return _decode(record.value) if record else None


def every(engine: Engine, after: str = "", limit: int = 100) -> list[Incident]:
    """Incidents by group, beginning behind `after`: the log that the runbook asks for."""
    return [_decode(record.value) for record in engine.records.list(KIND, after=after, limit=limit)]


def note(engine: Engine, group: str, last: int, text: str = "", **changes: Any) -> Incident:
    """Write down what is known now; fields that are not given stay as they were.

    Two who write at once both succeed, one after the other.
    """
    what = _checked(changes, text)
    author, now = audit.actor(), time.time_ns() // 1_000_000
    change = Change(at=now, author=author, what={name: str(value) for name, value in what.items()})
    fields = {name: value for name, value in what.items() if name != "note"}

    def changed(old: Incident) -> Incident:
        old = old.beside(last)
        kept = (*old.changes, change)[-_CHANGES:]
        new = {"author": author, "at": now, "seen": last, "changes": kept, "reopened": False}
        return msgspec.structs.replace(old, **fields, **new)

    incident = _write(engine, group, changed)
    audit.note(engine, "note", "", 1, group=group, **change.what)
    return incident


def _checked(changes: dict[str, Any], text: str) -> dict[str, Any]:
    given = {name: value for name, value in changes.items() if value is not None}
    if text:
        given["note"] = text
    if not given:
        raise InvalidInput("note: say something: a text, a status, a bucket, a cause, a fix or a link")
    for name, kind in (("status", Status), ("bucket", Bucket)):
        if name in given:
            given[name] = _one_of(kind, name, given[name])
    for name, value in given.items():
        if not isinstance(value, str) or len(value) > _TEXT:
            raise InvalidInput(f"{name}: expected text of at most {_TEXT:,} characters")
    return given


def _one_of(kind: type[enum.StrEnum], name: str, value: str) -> str:
    try:
        return kind(value.lower())
    except (ValueError, AttributeError):
        raise InvalidInput(f"{name}: {value!r} is not one of {', '.join(kind)}") from None


def _write(engine: Engine, group: str, changed: Callable[[Incident], Incident]) -> Incident:
    for _ in range(_TRIES):
        record = engine.records.get(KIND, group)
        incident = changed(_decode(record.value) if record else Incident(group=group))
        value = _fitting(incident)
        if engine.records.put(KIND, group, value, ttl=_KEPT, expect=record.version if record else 0):
            return incident
    raise Conflict(f"group {group}: others keep writing about it; try again")


def _fitting(incident: Incident) -> bytes:
    """As a record takes it: 50 long changes may be too many."""
    value = msgspec.json.encode(incident)
    while len(value) > 60_000 and incident.changes:
        incident = msgspec.structs.replace(incident, changes=incident.changes[1:])
        value = msgspec.json.encode(incident)
    return value
