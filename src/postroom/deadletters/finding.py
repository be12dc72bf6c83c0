"""Looking through dead letters, queue by queue and page by page: bounded, and it says how far it came."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from postroom.deadletters.filter import Filter, Seen
from postroom.deadletters.groups import standing
from postroom.deadletters.incidents import Status
from postroom.deadletters.letter import DeadLetter
from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.model import Entry, Page, State

PAGE = 200
#: Bodies of what is found, all of which is in memory at once.
_MOST_BYTES = 32 * 2**20


class Step(NamedTuple):
    """One page: the letters of one queue that match, how many were looked at, and where to go on."""

    queue: str
    letters: list[DeadLetter]
    scanned: int
    cursor: str | None


_NOTHING = Step("", [], 0, None)


#: What ends a search before it has seen everything: as many as were wanted, or a bound of one search.
Bound = Literal["limit", "rows", "bytes", "time"]


class Found(NamedTuple):
    """What was found, oldest first within a queue. Unless `complete`, it stopped at a bound, which
    `stopped_by` names: go on from `cursor`."""

    letters: list[DeadLetter]
    scanned: int
    complete: bool
    cursor: str | None
    stopped_by: Bound | None = None


class Scan:
    """A walk over the dead letters of some queues, in the order of their names."""

    def __init__(
        self, engine: Engine, queues: Sequence[str], filter: Filter, as_seen: Seen | None = None
    ) -> None:
        self._engine = engine
        self._filter = filter
        self._queues = sorted(queues)
        now = time.time_ns() // 1_000_000
        self._match = filter.matcher(now, as_seen) if as_seen else filter.matcher(now)
        self._standing = {} if filter.status is None else standing(engine, self._queues)

    def steps(self, cursor: str | None = None, page: int = PAGE) -> Iterator[Step]:
        """Page after page; what dies meanwhile comes last, what goes meanwhile is not missed."""
        after, first = _parse(cursor)
        queues = [queue for queue in self._queues if queue >= first]
        for queue, following in itertools.zip_longest(queues, queues[1:]):
            after = after if queue == first else None
            while True:
                found = self._look(queue, after, page)
                letters = [letter for letter in map(DeadLetter, found.entries) if self._is_meant(letter)]
                after = found.cursor
                yield Step(queue, letters, len(found.entries), _cursor(after, queue, following))
                if after is None:
                    break

    def _is_meant(self, letter: DeadLetter) -> bool:
        wanted = self._filter.status
        if wanted is not None and self._standing.get(letter.group, Status.OPEN) is not wanted:
            return False
        return self._match(letter)

    def _look(self, queue: str, cursor: str | None, limit: int) -> Page:
        task, group = self._filter.task, self._filter.group
        if task is not None:
            return self._by_task(queue, task, group, limit)
        return self._engine.find(queue, State.DEAD, cursor=cursor, limit=limit, group=group)

    def _by_task(self, queue: str, task: str, group: str | None, limit: int) -> Page:
        """A task has few dead letters: the one of this id, and those of this correlation_id."""
        (entry,) = self._engine.get(queue, [task])
        found = {entry.id: entry} if entry and entry.state is State.DEAD else {}
        for each in itertools.islice(_pages(self._engine, queue, task), PAGE):
            found[each.id] = each
        return Page([entry for entry in found.values() if _in_group(entry, group)][:limit])


def exactly(engine: Engine, queues: Iterable[str], id: str) -> Iterator[Step]:
    """The dead letter of exactly this message id, from each of these queues that has it."""
    for queue in sorted(queues):
        (entry,) = engine.get(queue, [id])
        if entry and entry.state is State.DEAD:
            yield Step(queue, [DeadLetter(entry)], 1, None)


def _pages(engine: Engine, queue: str, task: str) -> Iterator[Entry]:
    cursor = None
    while True:
        page = engine.find(queue, State.DEAD, cursor=cursor, correlation_id=task)
        yield from page.entries
        if (cursor := page.cursor) is None:
            return


def _in_group(entry: Entry, group: str | None) -> bool:
    return group is None or (entry.failure is not None and entry.failure.fingerprint == group)


def _cursor(after: str | None, queue: str, following: str | None) -> str | None:
    if after is not None:
        return f"{after}@{queue}"
    return None if following is None else f"@{following}"


def _parse(cursor: str | None) -> tuple[str | None, str]:
    """Where to go on: the engine's cursor and the queue."""
    if cursor is None:
        return None, ""
    after, at, queue = cursor.partition("@")
    if not at:
        raise InvalidInput(f"cursor: {cursor!r:.80} is not one of ours")
    return after or None, queue


def find(
    scan: Scan, cursor: str | None, limit: int, max_rows: int = 100_000, max_seconds: float = 5.0
) -> Found:
    """Letters that match, at most `limit`; looks at no more than `max_rows`, for no longer than that.

    It stops behind 32 MB of bodies, too.
    """
    letters: list[DeadLetter] = []
    scanned, size, end = 0, 0, time.monotonic() + max_seconds

    def bound() -> Bound | None:
        if len(letters) >= limit:
            return "limit"
        if scanned >= max_rows:
            return "rows"
        if size >= _MOST_BYTES:
            return "bytes"
        return "time" if time.monotonic() >= end else None

    while (stopped_by := bound()) is None:
        step = _next(scan, cursor, limit - len(letters), min(PAGE, max_rows - scanned))
        scanned += step.scanned
        letters += step.letters
        size += sum(len(letter.entry.message.body) for letter in step.letters)
        cursor = step.cursor
        if cursor is None:
            return Found(letters, scanned, True, None)
    return Found(letters, scanned, False, cursor, stopped_by)


def _next(scan: Scan, cursor: str | None, wanted: int, page: int) -> Step:
    """One page with at most so many matches: one with more is read again, up to the last that is wanted."""
    step = next(scan.steps(cursor, page), _NOTHING)
    while len(step.letters) > wanted:
        page = max(1, page * wanted // len(step.letters))
        step = next(scan.steps(cursor, page), _NOTHING)
    return step
