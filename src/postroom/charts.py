"""How the queues stood over time: samples that the leading keeper keeps in the store, for charts.

Three rings: every 10 s for an hour, every minute for half a day, every hour for a month. A ring is a row of
records, each with the points of a while and a time to live: what is old goes by itself, and a restart loses
nothing. A point holds how a queue stood and what it had counted so far; rates follow from two of them.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from postroom.engine import Engine
from postroom.errors import Closed, PostroomError
from postroom.stats import QueueStats

log: logging.Logger = logging.getLogger(__name__)

KIND = "sample"
#: The name of the samples of all queues together.
ROOM = ""
#: Queues that are sampled, by name: more would take too much of the store. Each takes about 80 KB.
MOST = 100
#: What a point holds of how a queue stands, and of what it counts.
STANDING = ("ready", "scheduled", "processing", "overdue", "dead", "oldest")
COUNTED = ("put", "acked", "retried", "dead", "reclaimed", "expired")


class Ring(NamedTuple):
    """One resolution: the time between two points, for how long they are kept (ms), points of a record."""

    step: int
    kept: int
    size: int

    def key(self, queue: str, chunk: int) -> str:
        return f"chart:{self.step}:{queue}\0{chunk:012d}"

    def chunk(self, at: int) -> int:
        return at // (self.step * self.size)


_HOUR = 3_600_000
RINGS = (Ring(10_000, _HOUR, 30), Ring(60_000, 12 * _HOUR, 60), Ring(_HOUR, 30 * 24 * _HOUR, 24))


class Point(NamedTuple):
    """How a queue stood at a moment (`STANDING`), and what it had counted until then (`COUNTED`)."""

    at: int
    standing: tuple[int, ...]
    counted: tuple[int, ...]


class Chart(NamedTuple):
    """Points of one queue, oldest first, about `step` (ms) apart."""

    step: int
    points: list[Point]

    def rates(self, name: str) -> list[float | None]:
        """So many a second since the point before; None at the first."""
        column = COUNTED.index(name)
        rates = [_rate(*pair, column) for pair in itertools.pairwise(self.points)]
        return [None, *rates] if self.points else []


def _rate(before: Point, point: Point, column: int) -> float:
    """Never below nothing: a queue that was dropped and made again counts from the beginning."""
    grown = max(0, point.counted[column] - before.counted[column])
    return round(grown * 1_000 / max(1, point.at - before.at), 3)


_decode = msgspec.json.Decoder(list[Point]).decode


class _Chunk(NamedTuple):
    """The newest record of a ring as it was last written or read."""

    number: int
    version: int
    points: list[Point]


class Sampler:
    """Adds the points. Whoever leads calls `tick`; two at once do no harm."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: The newest bucket of each ring that has its point.
        self._sampled: dict[int, int] = {}
        self._chunks: dict[tuple[int, str], _Chunk] = {}

    def tick(self, queues: Sequence[str]) -> int:
        """Add a point wherever it is time for one; when to come again (ms). Never raises but Closed."""
        now = self._engine.now()
        due = [ring for ring in RINGS if self._sampled.get(ring.step) != now // ring.step]
        if due:
            try:
                self._sample(now, sorted(queues)[:MOST], due)
            except Closed:
                raise
            except PostroomError as error:
                log.info("not sampled: %s", error, extra={"event": "charts.not_kept", "error": str(error)})
        return RINGS[0].step - now % RINGS[0].step

    def _sample(self, now: int, queues: Sequence[str], due: Sequence[Ring]) -> None:
        stats = [self._engine.stats(queue) for queue in queues]
        points = {each.queue: _point(now, each) for each in stats} | {ROOM: _sum(now, stats)}
        for ring in due:
            self._sampled[ring.step] = now // ring.step
            for queue, point in points.items():
                self._add(ring, queue, point)
        self._chunks = {key: chunk for key, chunk in self._chunks.items() if key[1] in points}

    def _add(self, ring: Ring, queue: str, point: Point) -> None:
        """Behind the newest: by compare-and-set, and once more if another keeper came between."""
        number = ring.chunk(point.at)
        kept = self._chunks.get((ring.step, queue))
        if kept is None or kept.number != number or not self._write(ring, queue, kept, point):
            self._write(ring, queue, self._read(ring, queue, number), point)

    def _read(self, ring: Ring, queue: str, number: int) -> _Chunk:
        record = self._engine.records.get(KIND, ring.key(queue, number))
        return _Chunk(number, record.version, _decode(record.value)) if record else _Chunk(number, 0, [])

    def _write(self, ring: Ring, queue: str, chunk: _Chunk, point: Point) -> bool:
        others = (each for each in chunk.points if each.at // ring.step != point.at // ring.step)
        points = [*others, point][-ring.size :]
        ttl = ring.kept + ring.step * ring.size
        version = self._engine.records.put(
            KIND, ring.key(queue, chunk.number), msgspec.json.encode(points), ttl=ttl, expect=chunk.version
        )
        if version is None:
            return False
        self._chunks[ring.step, queue] = _Chunk(chunk.number, version, points)
        return True


def _point(now: int, stats: QueueStats) -> Point:
    standing = tuple(getattr(stats, name) for name in STANDING)
    return Point(now, standing, tuple(stats.counters.get(name, 0) for name in COUNTED))


def _sum(now: int, every: Iterable[QueueStats]) -> Point:
    """All queues as one: numbers added, of the ages the greatest."""
    points = [_point(now, stats) for stats in every]
    standing = [sum(column) for column in zip(*(point.standing for point in points), strict=True)]
    if standing:
        standing[-1] = max(point.standing[-1] for point in points)
    counted = tuple(map(sum, zip(*(point.counted for point in points), strict=True)))
    return Point(now, tuple(standing) or (0,) * len(STANDING), counted or (0,) * len(COUNTED))


def read(engine: Engine, queue: str, span: int, *, step: int = 0) -> Chart:
    """What was sampled of a queue (or of the `ROOM`) over about the last `span` (ms), as fine as kept.

    With a `step`, no finer than that: it takes less to read.
    """
    now = engine.now()
    ring = next((ring for ring in RINGS if ring.kept >= span and ring.step >= step), RINGS[-1])
    first, last = ring.chunk(now - min(span, ring.kept)), ring.chunk(now)
    after = ring.key(queue, first - 1)
    records = engine.records.list(KIND, after=after, limit=last - first + 1)
    found = (record for record in records if record.key <= ring.key(queue, last))
    points = (point for record in found for point in _decode(record.value))
    return Chart(ring.step, [point for point in points if point.at > now - span])
