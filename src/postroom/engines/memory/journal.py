"""A bounded log that every reader follows from its own cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from postroom.engines.steps.cursor import Kept

T = TypeVar("T")


class Read(NamedTuple, Generic[T]):
    entries: list[T]
    cursor: str
    missed: int


class Journal(Generic[T]):
    """Keeps the newest `limit` entries; a cursor is the number of the entry last seen.

    Numbers go up from `first`: a queue that is dropped and made again must not reuse them.
    """

    def __init__(self, limit: int, first: int = 1) -> None:
        self._entries: deque[T] = deque(maxlen=limit)
        self._first = first
        self._last = first - 1

    def append(self, make: Callable[[str], T]) -> None:
        """Add the entry that `make` builds from its id."""
        self._last += 1
        self._entries.append(make(str(self._last)))

    def drop_while(self, old: Callable[[T], bool]) -> None:
        """Let go of the oldest entries as long as they are old."""
        while self._entries and old(self._entries[0]):
            self._entries.popleft()

    def keep(self, count: int) -> None:
        """Let go of all but the newest."""
        while len(self._entries) > count:
            self._entries.popleft()

    def read(self, after: str | None, limit: int) -> Read[T]:
        """What comes behind a cursor. None: nothing, but the cursor from which to follow; "": the oldest."""
        kept = Kept(self._first, self._last - len(self._entries), self._last)
        begin, missed = kept.begin(after)
        skip = begin - kept.before
        entries = list(islice(self._entries, skip, skip + limit))
        return Read(entries, str(begin + len(entries)), missed)
