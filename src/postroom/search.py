"""Finding messages by what no engine indexes: queue by queue, or by pages bounded in rows and in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from postroom.engine import Engine
from postroom.model import Entry, State

_PAGE = 200


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
    """Entries of one state that match, in that state's order; `limit` may be passed by part of a page."""
    found: list[Entry] = []
    scanned, end = 0, time.monotonic() + max_seconds
    while len(found) < limit and scanned < max_rows and time.monotonic() < end:
        page = engine.find(queue, state, cursor=cursor, limit=min(_PAGE, max_rows - scanned))
        scanned += len(page.entries)
        found += filter(match, page.entries)
        cursor = page.cursor
        if cursor is None:
            return Found(found, scanned, True, None)
    return Found(found, scanned, False, cursor)
