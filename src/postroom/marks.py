"""Marks on charts: a moment and what happened then, so that a bend in a line has a cause beside it.

What somebody marks (a deploy, most of all) is kept as a record for as long as charts reach. What people noted
about groups of dead letters is there already, and shown as marks too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from postroom import audit
from postroom.deadletters import incidents
from postroom.deadletters.incidents import Incident, Status
from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.ids import new_id

KIND = "mark"
#: The most that are kept, beyond that the oldest go; and the longest text.
MOST, _LONGEST = 500, 120
#: As long as the longest chart (ms).
_KEPT = 30 * 86_400_000
_INCIDENTS = 1_000


class Cause(enum.StrEnum):
    DEPLOY = "deploy"
    INCIDENT = "incident"
    NOTE = "note"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened; of an incident also the group of dead letters that it is about."""

    at: int
    text: str
    cause: Cause = Cause.DEPLOY
    by: str = ""
    group: str = ""


def add(engine: Engine, text: str, cause: Cause | str = Cause.DEPLOY) -> Mark:
    """Mark this moment by the engine's clock, for everybody who looks at a chart. Noted in the audit."""
    mark = Mark(at=engine.now(), text=_checked(text), cause=_cause(cause), by=audit.actor())
    kept = engine.records.list(KIND, limit=MOST)
    if len(kept) == MOST:
        engine.records.delete(KIND, kept[0].key)
    engine.records.put(KIND, f"{_key(mark.at)}{new_id()}", msgspec.json.encode(mark), ttl=_KEPT)
    audit.note(engine, "mark", "", 1, text=mark.text, cause=mark.cause)
    return mark


def read(engine: Engine, span: int) -> list[Mark]:
    """What happened within the last `span` (ms), oldest first; at most the newest MOST."""
    since = engine.now() - span
    made = engine.records.list(KIND, after=_key(since), limit=MOST)
    marks = [msgspec.json.decode(record.value, type=Mark) for record in made]
    for incident in incidents.every(engine, limit=_INCIDENTS):
        marks += (mark for mark in _told(incident) if mark.at >= since)
    return sorted(marks, key=lambda mark: mark.at)[-MOST:]


def _told(incident: Incident) -> Iterator[Mark]:
    """The first that was noted of it, and when it was resolved."""
    about = incident.cause or next(
        (change.what["note"] for change in incident.changes if "note" in change.what), ""
    )
    for number, change in enumerate(incident.changes):
        is_resolved = change.what.get("status") == Status.RESOLVED
        if number == 0 or is_resolved:
            words = "resolved" if is_resolved else "incident"
            text = f"{words}: {about}" if about else f"{words} {incident.group}"
            yield Mark(
                at=change.at,
                text=text[:_LONGEST],
                cause=Cause.INCIDENT,
                by=change.author,
                group=incident.group,
            )


def _key(at: int) -> str:
    """So that keys are in the order of their moments."""
    return f"{max(0, at):015d}:"


def _checked(text: str) -> str:
    if not isinstance(text, str) or not 1 <= len(text.strip()) <= _LONGEST:
        raise InvalidInput(f"mark: expected text of 1 to {_LONGEST} characters, not {text!r:.80}")
    return text.strip()


def _cause(cause: str) -> Cause:
    try:
        return Cause(cause)
    except ValueError:
        raise InvalidInput(f"cause: {cause!r:.80} is not one of {', '.join(Cause)}") from None
