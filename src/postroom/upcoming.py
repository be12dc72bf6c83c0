"""What comes: how many scheduled messages are due when, over one queue or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from postroom.engine import Engine
from postroom.limits import LAST_DUE, check_between
from postroom.model import State
from postroom.stats import Tally

#: Bars of one look, at most: a screen has no more room.
MOST = 500
#: A look at all that comes reaches at least this far (ms).
_NEAR = 60_000


class Upcoming(NamedTuple):
    """From `now` until `until` (epoch ms), in spans of equal length, so many are due in each.

    overdue  were due before now, and nobody has looked for them yet
    later    are due only after that
    whole    False: there are more than could be counted
    """

    now: int
    until: int
    counts: list[int]
    overdue: int
    later: int
    whole: bool


def read(engine: Engine, queues: Sequence[str], span: int | None, bars: int) -> Upcoming:
    """What is due within `span` (ms), in so many bars; without a span, as far as there is anything."""
    check_between("bars", bars, 1, MOST)
    now = engine.now()
    until = _last(engine, queues, now, bars) if span is None else min(now + max(span, bars), LAST_DUE)
    edges = [0, *_edges(now, until, bars), LAST_DUE + 1]
    found = _tally(engine, queues, edges)
    return Upcoming(now, until, found.counts[1:-1], found.counts[0], found.counts[-1], found.whole)


def _last(engine: Engine, queues: Sequence[str], now: int, bars: int) -> int:
    """An edge soon behind the last that is due: in spans that double first, then in equal ones."""
    doubled = [now, now + _NEAR]
    while doubled[-1] < LAST_DUE:
        doubled.append(min(now + 2 * (doubled[-1] - now), LAST_DUE))
    about = _behind_last(doubled, _tally(engine, queues, doubled))
    edges = _edges(now, about, bars)
    return max(now + _NEAR, _behind_last(edges, _tally(engine, queues, edges)))


def _behind_last(edges: Sequence[int], found: Tally) -> int:
    filled = [at for at, count in enumerate(found.counts) if count]
    return edges[filled[-1] + 1] if filled else edges[1]


def _edges(first: int, last: int, bars: int) -> list[int]:
    return [first + (last - first) * at // bars for at in range(bars + 1)]


def _tally(engine: Engine, queues: Sequence[str], edges: Sequence[int]) -> Tally:
    """All queues as one."""
    parts = [engine.tally(queue, State.SCHEDULED, edges) for queue in queues]
    nothing = [0] * (len(edges) - 1)
    counts = [sum(column) for column in zip(nothing, *(part.counts for part in parts), strict=True)]
    return Tally(counts, all(part.whole for part in parts))
