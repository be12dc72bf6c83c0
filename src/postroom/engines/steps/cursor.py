"""Where a reader of a bounded log goes on: the arithmetic of cursors."""

from __future__ import annotations

from typing import NamedTuple

from postroom.errors import InvalidInput

#: No number of ours has more.
_DIGITS = 18


class Kept(NamedTuple):
    """What a log keeps: entries are numbered from `first`, the oldest kept comes after `before`."""

    first: int
    before: int
    last: int

    def begin(self, after: str | None) -> tuple[int, int]:
        """The number behind which to read on, and how many are missed by that.

        None: nothing, but what comes from now on; "": from the oldest kept. A cursor from before
        `first` belongs to a queue that was dropped and made again, and missed nothing of this one.
        """
        if after is None:
            return self.last, 0
        seen = max(number(after), self.first - 1) if after else self.before
        return max(seen, self.before), max(0, self.before - seen)


def number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS):
        raise InvalidInput(f"cursor: {cursor!r:.80} is not one of this engine's")
    return int(cursor)
