"""Finding messages by what no engine indexes: queue by queue, or by pages bounded in rows and in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.limits import check_limit
from postroom.model import Entry, State

_PAGE = 200
#: Bodies of what is found, all of which is in memory at once.
_MOST_BYTES = 32 * 2**20
#: The states in which a message can be found, those first that people look for most.
STATES = (State.DEAD, State.PROCESSING, State.SCHEDULED, State.READY, State.DONE)


class Found(NamedTuple):
    """What a search found. Unless `complete`, it stopped at a bound: go on from `cursor`."""

    entries: list[Entry]
    scanned: int
    complete: bool
    cursor: str | None


def locate(engine: Engine, id: str, queues: Iterable[str]) -> Iterator[Entry]:
    """The message of this id in each of these queues that has one: an id belongs to its queue."""
    for queue in queues:
        (entry,) = engine.get(queue, [id])
        if entry is not None:
            yield entry


def search(
    engine: Engine,
    queue: str,
    state: State,
    match: Callable[[Entry], bool],
    *,
    cursor: str | None = None,
    limit: int = 100,
    max_rows: int = 100_000,
    max_seconds: float = 5.0,
) -> Found:
    """Entries of one state that match, in that state's order; `limit` may be passed by part of a page.

    It stops behind 32 MB of bodies, too.
    """
    found: list[Entry] = []
    scanned, size, end = 0, 0, time.monotonic() + max_seconds
    while len(found) < limit and scanned < max_rows and size < _MOST_BYTES and time.monotonic() < end:
        page = engine.find(queue, state, cursor=cursor, limit=min(_PAGE, max_rows - scanned))
        scanned += len(page.entries)
        matching = [entry for entry in page.entries if match(entry)]
        size += _bytes(matching)
        found += matching
        cursor = page.cursor
        if cursor is None:
            return Found(found, scanned, True, None)
    return Found(found, scanned, False, cursor)


def _bytes(entries: list[Entry]) -> int:
    return sum(len(entry.message.body) for entry in entries)


def of_kind(text: str) -> Callable[[Entry], bool]:
    """Messages with this text in their kind, which is the name of a Celery task; capitals do not matter."""
    if not (wanted := text.strip().casefold()):
        raise InvalidInput("kind: say at least a part of it")
    return lambda entry: wanted in entry.message.kind.casefold()


def across(
    engine: Engine,
    queues: Iterable[str],
    match: Callable[[Entry], bool],
    *,
    states: Sequence[State] = STATES,
    cursor: str | None = None,
    limit: int = 100,
    max_rows: int = 100_000,
    max_seconds: float = 5.0,
) -> Found:
    """Entries of several queues and states that match: queue after queue by name, each state in its order.

    The bounds are those of the whole search, and `limit` may be passed by part of a page. To go on from a
    cursor, ask with the same states; a queue that was dropped meanwhile is passed over.
    """
    check_limit(limit)
    first, within, after = _place(cursor, states)
    places = [(queue, state) for queue in sorted(queues) for state in states]
    places = [place for place in places if (place[0], states.index(place[1])) >= (first, within)]
    found: list[Entry] = []
    scanned, end = 0, time.monotonic() + max_seconds
    for queue, state in places:
        here = after if (queue, states.index(state)) == (first, within) else None
        left, seconds = max_rows - scanned, end - time.monotonic()
        if len(found) >= limit or left <= 0 or seconds <= 0 or _bytes(found) >= _MOST_BYTES:
            return Found(found, scanned, False, f"{state}@{here or ''}@{queue}")
        wanted = limit - len(found)
        part = search(
            engine, queue, state, match, cursor=here, limit=wanted, max_rows=left, max_seconds=seconds
        )
        found += part.entries
        scanned += part.scanned
        if not part.complete:
            return Found(found, scanned, False, f"{state}@{part.cursor or ''}@{queue}")
    return Found(found, scanned, True, None)


def _place(cursor: str | None, states: Sequence[State]) -> tuple[str, int, str | None]:
    """Where to go on: the queue, the number of the state, and the engine's own cursor."""
    if cursor is None:
        return "", 0, None
    name, *rest = cursor.split("@", 2)
    if len(rest) != 2 or name not in states:
        raise InvalidInput(f"cursor: {cursor!r:.80} is not one of this search")
    return rest[1], states.index(State(name)), rest[0] or None
