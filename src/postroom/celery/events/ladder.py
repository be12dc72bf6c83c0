"""The retry ladder: how a delay is made of queues that each hold a message for a fixed time.

A rung is a queue with one time to live, so that whatever entered first leaves first. Each power of two
seconds has a rung; a delay is the sum of some of them, each used at most once, the longest first. What is
longer than all of them together goes round again. No part of a delay is spent in a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import InvalidInput

#: Whole seconds to 2^20: all rungs together are 24 days.
MOST_RUNGS = 21
#: 1, 2, 4 … 2,048 s: an hour and eight minutes in one round.
DEFAULT_RUNGS = 12
#: Rungs below a second, for those who ask for them; together 960 ms.
FINE = (64, 128, 256, 512)
#: The longest delay (ms): a year.
LONGEST = 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of a service, shortest first, as times to live (ms)."""

    rungs: tuple[int, ...]

    @staticmethod
    def of(count: int = DEFAULT_RUNGS, *, fine: bool = False) -> Ladder:
        """A ladder with so many rungs of whole seconds. Raises InvalidInput."""
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_RUNGS:
            raise InvalidInput(f"rungs: {count!r} is not a whole number from 1 to {MOST_RUNGS}")
        seconds = tuple(1_000 << power for power in range(count))
        return Ladder((*FINE, *seconds) if fine else seconds)

    @property
    def first(self) -> int:
        """Where a rejected message waits: one second, on every ladder."""
        return 1_000

    @property
    def span(self) -> int:
        """The longest delay of one round (ms)."""
        return sum(self.rungs)

    def climb(self, delay: float) -> tuple[tuple[int, ...], int]:
        """The rungs for a delay (ms), longest first, and what is left for another round.

        Never early: a delay is rounded up to what the ladder can do. Raises InvalidInput beyond a year.
        """
        if not 0 <= delay <= LONGEST:
            raise InvalidInput(
                f"delay: {delay / 1_000:g} s is not between 0 and {LONGEST // 1_000} s (a year)"
            )
        whole = self._rounded(delay)
        taken, rest = [], whole
        for rung in reversed(self.rungs):
            if rung <= rest:
                taken.append(rung)
                rest -= rung
        return tuple(taken), rest

    def _rounded(self, delay: float) -> int:
        seconds, part = divmod(delay, 1_000)
        steps = -int(-part // self.rungs[0])
        part = steps * self.rungs[0]
        # Above 960 ms the next that the fine rungs can make is the second itself.
        return int(seconds) * 1_000 + (part if part <= sum(FINE) else 1_000)
