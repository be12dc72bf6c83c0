"""How late this machine wakes anybody: what is left of every lateness when Postroom has no part in it."""

from __future__ import annotations

import time

from bench.measure import Case, percentile
from bench.stage import Stage

_SPAN = 0.005


def cases(stage: Stage) -> list[Case]:
    count = stage.size(500, 150)
    figures = stage.figure("a bare sleep is late p50", "ms"), stage.figure("a bare sleep is late p99", "ms")

    def trial() -> list[float]:
        late = [_late() for _ in range(count)]
        return [percentile(late, 50), percentile(late, 99)]

    return [Case("a bare sleep", figures, trial)]


def _late() -> float:
    """Milliseconds."""
    began = time.perf_counter()
    time.sleep(_SPAN)
    return (time.perf_counter() - began - _SPAN) * 1_000
