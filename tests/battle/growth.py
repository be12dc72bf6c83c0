"""Whether something grows: a robust look at the second half of what was sampled.

The slope is the median of the slopes between all pairs of samples (Theil and Sen): a peak that goes away, a
sawtooth and a single wrong reading do not move it, a steady leak does.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

Sample = tuple[float, float]

#: What may be added in the second half: a part of the median, or so many bytes, whichever is more.
MOST_PART, MOST_BYTES = 0.03, 4_000_000
#: Fewer samples say nothing; more are thinned out, as all pairs are compared.
_LEAST, _MOST = 10, 400


class Growth(NamedTuple):
    """Bytes: the median of the second half, what was added in it, and what might have been."""

    name: str
    median: float
    added: float
    bound: float

    @property
    def is_growing(self) -> bool:
        return self.added > self.bound


def growth(
    name: str, samples: Sequence[Sample], *, part: float = MOST_PART, least: float = MOST_BYTES
) -> Growth:
    """`samples`: (seconds, bytes), in order. Raises ValueError when they are too few to say anything."""
    half = samples[len(samples) // 2 :]
    if len(half) < _LEAST:
        raise ValueError(f"{name}: {len(half)} samples in the second half; {_LEAST} are needed")
    half = half[:: -(-len(half) // _MOST)]
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in itertools.combinations(half, 2) if t > s]
    median = statistics.median(value for _, value in half)
    added = statistics.median(slopes) * (half[-1][0] - half[0][0])
    return Growth(name, median, added, max(part * median, least))
