"""A histogram of spans: bounded, mergeable, and exact enough for a percentile.

The bounds are the preferred numbers R20 (20 a decade, 12 % apart) from 1 ms to 11 days, the same in every
process and every release, so that two histograms can be added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

_R20 = (100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900)
_DECADES = range(-5, 4)
#: Upper bounds in seconds; what is longer than the last counts as longer than everything.
BOUNDS = tuple(float(f"{number}e{decade}") for decade in _DECADES for number in _R20)
#: The bounds that Prometheus is told: 1, 2.5 and 5 of every decade.
TOLD = tuple(index for index in range(len(BOUNDS)) if index % 20 in (0, 8, 14))


class Histogram:
    """How many spans fell between which bounds, and their sum (seconds). One thread at a time."""

    __slots__ = ("count", "counts", "sum")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count: int = 0
        self.sum: float = 0.0

    def add(self, seconds: float, weight: int = 1) -> None:
        # Looking up an index and counting in a dict is all that the way of a message pays.
        index = bisect_left(BOUNDS, seconds)
        counts = self.counts
        counts[index] = counts.get(index, 0) + weight
        self.count += weight
        self.sum += seconds * weight

    def merge(self, other: Histogram) -> None:
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.count += other.count
        self.sum += other.sum

    def coarser(self, step: int) -> Histogram:
        """With the bounds `step` (2, 4 or 8) times as far apart; what is between two counts as the longer."""
        made, last = Histogram(), len(BOUNDS) - 1
        made.count, made.sum = self.count, self.sum
        for index, count in self.counts.items():
            kept = index if index > last else min(index | (step - 1), last)
            made.counts[kept] = made.counts.get(kept, 0) + count
        return made

    def percentile(self, percent: float) -> float | None:
        """The span that so many per cent do not exceed, evenly spread within its bounds; None of nothing."""
        if not self.count:
            return None
        wanted, seen = self.count * percent / 100, 0
        for index in sorted(self.counts):
            inside = self.counts[index]
            if seen + inside >= wanted:
                low, high = _edges(index)
                return low + (high - low) * (wanted - seen) / inside
            seen += inside
        raise AssertionError("the counts add up to the count")

    def share_within(self, seconds: float) -> float:
        """The part that took at most this long; within a pair of bounds, evenly spread. 1 of nothing."""
        if not self.count:
            return 1.0
        last = bisect_left(BOUNDS, seconds)
        below = sum(count for index, count in self.counts.items() if index < last)
        low, high = _edges(last)
        part = (seconds - low) / (high - low) if high > low else 0.0
        return min(1.0, (below + self.counts.get(last, 0) * part) / self.count)

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, how many at most that long) for the bounds that Prometheus is told."""
        told, total, at = [], 0, 0
        ordered = sorted(self.counts.items())
        for bound in TOLD:
            while at < len(ordered) and ordered[at][0] <= bound:
                total += ordered[at][1]
                at += 1
            told.append((BOUNDS[bound], total))
        return told

    def to_plain(self) -> dict[str, object]:
        """As it is kept: only what is not empty."""
        return {"n": self.count, "s": round(self.sum, 6), "b": {str(i): c for i, c in self.counts.items()}}

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> Histogram:
        made = cls()
        made.count, made.sum = int(str(plain["n"])), float(str(plain["s"]))
        counts = plain["b"]
        assert isinstance(counts, Mapping)
        made.counts = {int(index): count for index, count in counts.items()}
        return made


def merged(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for histogram in histograms:
        total.merge(histogram)
    return total


def _edges(index: int) -> tuple[float, float]:
    low = BOUNDS[index - 1] if index else 0.0
    return low, BOUNDS[index] if index < len(BOUNDS) else low
