"""A clock that only moves when a test moves it."""

from __future__ import annotations

from postroom.duration import Duration, milliseconds

#: 2026-01-01 UTC.
START = 1_767_225_600_000


class ManualClock:
    """Called, it gives epoch milliseconds; give it to an engine as its clock."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def __call__(self) -> int:
        return self._now

    def advance(self, span: Duration) -> int:
        """Let this much time pass ("30s", "1ms", a timedelta, or seconds); returns the new time."""
        self._now += milliseconds(span)
        return self._now

    def set_back(self, span: Duration) -> int:
        """Jump backwards, as a corrected system clock does; returns the new time."""
        self._now -= milliseconds(span)
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"
