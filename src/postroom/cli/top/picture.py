"""What there is to see: one look at a room, and what changed since the last."""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from postroom.errors import PostroomError
from postroom.keeper import LOCK_KEY, LOCK_KIND
from postroom.limits import MAX_BATCH
from postroom.model import State
from postroom.room import Room
from postroom.settings import without_secrets
from postroom.stats import QueueStats

#: The p95 is that of about the last so long.
_P95_OVER = "5m"
#: Of how many deliveries a queue the worker is asked for.
_DELIVERIES = 200


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue; spans are milliseconds, rates a second (None: not known yet)."""

    queue: str
    ready: int
    scheduled: int
    processing: int
    overdue: int
    dead: int
    put_rate: float | None
    ack_rate: float | None
    oldest: int
    p95: int | None
    target: int | None
    paused: bool


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One look. With an `error` the store did not answer, and there is nothing else."""

    at: float
    url: str
    latency: float
    queues: list[QueueRow] = []
    #: Who holds deliveries, and how many (of the first 200 of a queue).
    workers: dict[str, int] = {}
    keeper: bool = False
    spooled: int | None = None
    error: str = ""


class Watch:
    """Looks at a room again and again."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._url = str(without_secrets(room.config.url))
        self._before: tuple[float, dict[str, dict[str, int]]] | None = None

    def look(self) -> Picture:
        began = time.perf_counter()
        try:
            return self._seen(began)
        except PostroomError as error:
            self._before = None
            return Picture(at=time.time(), url=self._url, latency=0.0, error=str(error))

    def _seen(self, began: float) -> Picture:
        engine = self._room.engine
        stats = [engine.stats(info.name) for info in engine.queues()[:MAX_BATCH]]
        latency = (time.perf_counter() - began) * 1_000
        slas = {sla.queue: (sla.p95, sla.target) for sla in self._room.sla(_P95_OVER)}
        rows = [self._row(each, *slas.get(each.queue, (None, None)), began) for each in stats]
        self._before = began, {each.queue: each.counters for each in stats}
        side = engine.side() if hasattr(engine, "side") else None
        return Picture(
            at=time.time(),
            url=self._url,
            latency=round(latency, 1),
            queues=rows,
            workers=self._workers(stats),
            keeper=engine.records.get(LOCK_KIND, LOCK_KEY) is not None,
            spooled=side.spooled if side else None,
        )

    def _row(self, stats: QueueStats, p95: int | None, target: int | None, now: float) -> QueueRow:
        return QueueRow(
            queue=stats.queue,
            ready=stats.ready,
            scheduled=stats.scheduled,
            processing=stats.processing,
            overdue=stats.overdue,
            dead=stats.dead,
            put_rate=self._rate(stats, "put", now),
            ack_rate=self._rate(stats, "acked", now),
            oldest=stats.oldest,
            p95=p95,
            target=target,
            paused=stats.paused,
        )

    def _rate(self, stats: QueueStats, counter: str, now: float) -> float | None:
        if self._before is None or stats.queue not in self._before[1]:
            return None
        at, counters = self._before
        count = stats.counters.get(counter, 0) - counters[stats.queue].get(counter, 0)
        return round(max(0, count) / max(now - at, 0.001), 1)

    def _workers(self, stats: list[QueueStats]) -> dict[str, int]:
        held: Counter[str] = Counter()
        for each in stats:
            if each.processing:
                page = self._room.engine.find(each.queue, State.PROCESSING, limit=_DELIVERIES)
                held.update(entry.consumer for entry in page.entries)
        return dict(held.most_common())
