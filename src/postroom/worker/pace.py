"""How far ahead a worker may reach: quick handlers earn batches, slow ones get one message at a time.

What a worker holds, others cannot have, and what it has started counts as an attempt if it dies.
So it never holds more than it should be able to begin within a moment.
"""

from __future__ import annotations

#: Work for this long is started ahead on every hand (seconds), at most so many messages; and at most so
#: many by all hands, who share one processor, unless there are more hands.
_STARTED = 0.005
_MAX_STARTED = 32
_ALL_STARTED = 256
#: Work for this long is held unstarted (seconds).
_HELD = 0.05
#: How much the newest measurement counts.
_WEIGHT = 0.1


class Pace:
    """A moving average of how long a handler takes."""

    def __init__(self) -> None:
        self._average: float | None = None

    def note(self, seconds: float) -> None:
        before = seconds if self._average is None else self._average
        self._average = before + _WEIGHT * (seconds - before)

    def note_stall(self, seconds: float) -> None:
        """Every hand has been busy for this long: the average is out of date."""
        self._average = max(seconds, self._average or 0.0)

    @property
    def started(self) -> int:
        """How many messages one hand may have started, the running one included."""
        if self._average is None:
            return 1
        return max(1, min(_MAX_STARTED, int(_STARTED / max(self._average, 1e-6))))

    def all_started(self, hands: int) -> int:
        """How many messages so many hands may have started."""
        return min(hands * self.started, max(hands, _ALL_STARTED))

    def held(self, hands: int) -> int:
        """How many messages may wait unstarted for so many hands.

        None where several may be started at once: a turn that starts others can claim them as well.
        """
        if self._average is None or self.started > 1:
            return 0
        return int(hands * _HELD / self._average)
