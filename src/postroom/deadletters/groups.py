"""Groups of dead letters that failed alike, over several queues, with what people noted about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from postroom.deadletters import incidents
from postroom.deadletters.incidents import Incident, Status
from postroom.deadletters.letter import Classification, DeadLetter
from postroom.engine import Engine
from postroom.logs import Group
from postroom.model import State

#: The most groups of one queue that are looked at, and how many samples are fetched at once.
MOST, _SAMPLES = 10_000, 20
_PAGE = 1_000
_HOURS, _HOUR = 24, 3_600_000
_QUIET = (0,) * _HOURS


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One group: how many in which queues, since when, until when, an example, and what is known.

    `day` is how many of its letters died in each of the last 24 hours, the present one last.
    """

    group: str
    count: int
    first: int
    last: int
    queues: dict[str, int]
    sample: str
    task_name: str = ""
    exception: str = ""
    classification: Classification | None = None
    incident: Incident | None = None
    day: tuple[int, ...] = _QUIET

    def as_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown | {"day": list(self.day)}  # as JSON has it


class Groups(NamedTuple):
    """Groups, the largest first. Unless `complete`, there are more than were looked at or asked for."""

    groups: list[GroupView]
    complete: bool


def pages(engine: Engine, queue: str) -> Iterator[Group]:
    """The groups of one queue, at most MOST."""
    after = ""
    for _ in range(MOST // _PAGE):
        page = engine.groups(queue, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].fingerprint


def gather(engine: Engine, queues: Sequence[str], limit: int) -> Groups:
    """The largest groups of these queues, each once, however many queues it is in."""
    merged: dict[str, dict[str, Group]] = {}
    complete = True
    for queue in queues:
        found = list(pages(engine, queue))
        for group in found:
            merged.setdefault(group.fingerprint, {})[queue] = group
        complete = complete and len(found) < MOST
    plain = [_merged(name, parts) for name, parts in merged.items()]
    plain.sort(key=lambda view: (-view.count, view.group))
    return Groups(_described(engine, plain[:limit]), complete and len(plain) <= limit)


def newest(engine: Engine, queues: Sequence[str], name: str) -> int | None:
    """When the newest letter of this group died; None: there is none."""
    lasts = [group.last for queue in queues for group in pages(engine, queue) if group.fingerprint == name]
    return max(lasts, default=None)


def standing(engine: Engine, queues: Sequence[str]) -> dict[str, Status]:
    """How it stands with the groups of these queues that somebody has noted something about, at most MOST."""
    noted = {incident.group: incident for incident in _incidents(engine)}
    lasts: dict[str, int] = {}
    for group in (group for queue in queues for group in pages(engine, queue)) if noted else ():
        if group.fingerprint in noted:
            lasts[group.fingerprint] = max(group.last, lasts.get(group.fingerprint, 0))
    return {name: noted[name].beside(last).status for name, last in lasts.items()}


def _incidents(engine: Engine) -> Iterator[Incident]:
    after = ""
    for _ in range(MOST // _PAGE):
        page = incidents.every(engine, after, _PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].group


def _merged(name: str, parts: dict[str, Group]) -> GroupView:
    newest = max(parts, key=lambda queue: parts[queue].last)
    return GroupView(
        group=name,
        count=sum(part.count for part in parts.values()),
        first=min(part.first for part in parts.values()),
        last=parts[newest].last,
        # The queue of the example comes first.
        queues={queue: parts[queue].count for queue in (newest, *(q for q in parts if q != newest))},
        sample=parts[newest].sample,
    )


def _described(engine: Engine, views: list[GroupView]) -> list[GroupView]:
    """The same with what their examples say: a few of a queue at a time, as bodies may be large."""
    told: dict[str, dict[str, Any]] = {}
    by_queue: dict[str, list[GroupView]] = {}
    for view in views:
        by_queue.setdefault(next(iter(view.queues)), []).append(view)
    for queue, some in by_queue.items():
        for first in range(0, len(some), _SAMPLES):
            part = some[first : first + _SAMPLES]
            entries = engine.get(queue, [view.sample for view in part])
            for view, entry in zip(part, entries, strict=True):
                told[view.group] = _told(DeadLetter(entry)) if entry else {}
    now = engine.now()
    return [
        msgspec.structs.replace(
            view, **told[view.group], incident=_incident(engine, view), day=_day(engine, view, now)
        )
        for view in views
    ]


def _day(engine: Engine, view: GroupView, now: int) -> tuple[int, ...]:
    """By the hour, in all of its queues; of a group that has been quiet for a day nothing is asked."""
    edges = [now + 1 - _HOUR * ago for ago in range(_HOURS, -1, -1)]
    if view.last < edges[0]:
        return _QUIET
    counts = (engine.tally(queue, State.DEAD, edges, group=view.group).counts for queue in view.queues)
    return tuple(map(sum, zip(*counts, strict=True)))


def _told(letter: DeadLetter) -> dict[str, Any]:
    return {
        "task_name": letter.call.task_name,
        "exception": letter.failure.summary,
        "classification": letter.classification,
    }


def _incident(engine: Engine, view: GroupView) -> Incident | None:
    incident = incidents.get(engine, view.group)
    return incident.beside(view.last) if incident else None
