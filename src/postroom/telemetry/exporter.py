"""Prometheus: every number of a room, read from its engine when it is asked for.

Nothing is counted here. What the engine counts, and what all processes have measured together (`samples`),
is the same whoever is asked: a worker, one of its forked children, or a process that does nothing else. So
it does not matter which process is scraped, and none loses numbers when it ends. Whoever scrapes several
sees the same numbers several times: aggregate with `max`, not with `sum`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from postroom.engine import Engine, QueueInfo
from postroom.errors import ConfigError, MissingExtra, PostroomError
from postroom.limits import MAX_BATCH
from postroom.model import State
from postroom.staff import read_workers
from postroom.stats import QueueStats
from postroom.telemetry import samples
from postroom.telemetry.timers import HasEngine
from postroom.version import __version__

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise MissingExtra("metrics need: pip install 'postroom[metrics]'") from _error

log: logging.Logger = logging.getLogger(__name__)

#: The p95 that is told is that of about the last so many milliseconds.
P95_OVER = 300_000
_BREAKER_STATES = ("closed", "open", "half_open")
_OUTCOMES = ("acked", "retried", "released", "dead", "expired", "cancelled")

_QUEUE = ("queue",)
#: Counters of the engine, as they are told beside `messages_settled`.
_COUNTED = {
    "put": ("messages_put", "Messages that were put."),
    "claimed": ("messages_claimed", "Deliveries that were claimed."),
    "reclaimed": ("leases_reclaimed", "Deliveries that ran out and were taken back."),
    "evicted": ("dead_letters_evicted", "Dead letters beyond their retention."),
    "replayed": ("dead_letters_replayed", "Dead letters that were put again."),
    "discarded": ("dead_letters_discarded", "Dead letters that were let go of."),
    "purged": ("messages_purged", "Waiting messages that an operator dropped."),
}
_MEASURED = {
    "wait": ("wait_seconds", "From the due time to the start, first attempts only.", _QUEUE),
    "process": ("process_seconds", "From the start to the answer.", _QUEUE),
    "timer": ("timer_seconds", "What telemetry.timer measured.", ("name",)),
}


class _Look(NamedTuple):
    """All that one scrape needs of the engine."""

    now: int
    took: float
    infos: list[QueueInfo]
    stats: list[QueueStats]
    oldest_dead: dict[str, int]


class Own(NamedTuple):
    """What only the process that is asked can tell: its breakers by name, and who listens to it."""

    breakers: Mapping[str, str] = {}
    sse_clients: int | None = None


class RoomCollector(Collector):
    """All metrics of one room; register it with a registry of prometheus-client."""

    def __init__(self, engine: Engine, version: str, keeper_ttl: int, own: Callable[[], Own] = Own) -> None:
        self._engine = engine
        self._version = version
        self._keeper_ttl = keeper_ttl
        self._own = own

    def collect(self) -> Iterator[Metric]:
        yield gauge("build_info", "The release.", ("version",), [((self._version,), 1)])
        own = self._own()
        listening = [] if own.sse_clients is None else [((), own.sse_clients)]
        yield gauge("sse_clients", "Who listens to live events of this server.", (), listening)
        yield from self._spool()  # above all while the store is away
        try:
            families = list(self._families(own))
        except PostroomError as error:
            extra = {"event": "telemetry.scrape_failed", "error": str(error)}
            log.warning("a scrape failed: %s", error, extra=extra)
            yield gauge("engine_up", _UP, (), [((), 0)])
            return
        yield gauge("engine_up", _UP, (), [((), 1)])
        yield from families

    def _spool(self) -> Iterator[Metric]:
        side = self._engine.side() if hasattr(self._engine, "side") else None
        active = [((), int(side.redis_active))] if side else []
        yield gauge("redis_active", "0 while the spool takes over, where there is one.", (), active)
        spooled = [((), side.spooled)] if side else []
        yield gauge("spooled_messages", "Messages that wait in the spool, where there is one.", (), spooled)

    def _families(self, own: Own) -> Iterator[Metric]:
        if recorder := getattr(self._engine, "recorder", None):
            recorder.flush()  # what this process knows, before it is asked
        look = self._look()
        yield gauge("engine_look_seconds", "How long the engine took to answer.", (), [((), look.took)])
        memory = self._engine.memory()
        used = [((), memory.used)] if memory else []
        yield gauge("memory_used_bytes", "Memory that the store uses, where it says so.", (), used)
        most = [((), memory.maxmemory)] if memory and memory.maxmemory else []
        yield gauge("memory_max_bytes", "Memory that the store may use, where it has a limit.", (), most)
        yield from _standing(look)
        yield from _counted(look.stats)
        yield from self._measured(look)
        yield from self._kept(own)

    def _look(self) -> _Look:
        began = time.perf_counter()
        infos = self._engine.queues()[:MAX_BATCH]
        stats = [self._engine.stats(info.name) for info in infos]
        now = self._engine.now()
        dead = {each.queue: self._oldest_dead(each.queue, now) for each in stats if each.dead}
        return _Look(now, time.perf_counter() - began, infos, stats, dead)

    def _oldest_dead(self, queue: str, now: int) -> int:
        page = self._engine.find(queue, State.DEAD, limit=1)
        return now - (page.entries[0].failed_at or now) if page.entries else 0

    def _measured(self, look: _Look) -> Iterator[Metric]:
        for prefix, (name, text, labels) in _MEASURED.items():
            found = samples.read(self._engine, f"{prefix}:")
            family = HistogramMetricFamily(f"postroom_{name}", text, labels=labels)
            for key, sample in found.items():
                total = sample.all()
                buckets = [(f"{bound:g}", count) for bound, count in total.cumulative()]
                family.add_metric([key], [*buckets, ("+Inf", total.count)], total.sum)
            yield family
            if prefix == "wait":
                yield from _sla(look, found)

    def _kept(self, own: Own) -> Iterator[Metric]:
        """What other parts of the room keep as records; breakers may also be this process's own."""
        records = self._engine.records
        lead = records.get("lock", "keeper")
        yield gauge("keeper_up", "Whether a keeper leads.", (), [((), int(lead is not None))])
        swept = [((), (lead.expires - self._keeper_ttl) / 1_000)] if lead and lead.expires else []
        yield gauge("keeper_last_sweep_timestamp_seconds", "When the keeper last looked.", (), swept)
        lost = [worker.lost for worker in read_workers(self._engine)]
        by_state = [(("live",), lost.count(False)), (("lost",), lost.count(True))]
        yield gauge("workers", "Workers that are there, and those that went silent.", ("state",), by_state)
        shared = _plain(records.list("breaker", limit=MAX_BATCH))
        yield _breakers({**own.breakers, **{name: each.get("state", "") for name, each in shared.items()}})
        yield from _schedules(_plain(records.list("schedule", limit=MAX_BATCH)))


_UP = "Whether the store answers."

Values = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    """A family of values that go up and down, under our prefix."""
    family = GaugeMetricFamily(f"postroom_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    """The same of values that only grow."""
    family = CounterMetricFamily(f"postroom_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def _standing(look: _Look) -> Iterator[Metric]:
    states = ("ready", "scheduled", "processing", "dead")
    by_state = [((each.queue, state), getattr(each, state)) for each in look.stats for state in states]
    yield gauge("messages", "Messages by state.", ("queue", "state"), by_state)
    overdue = [((each.queue,), each.overdue) for each in look.stats]
    yield gauge("overdue_messages", "Deliveries whose deadline has passed.", _QUEUE, overdue)
    oldest = [((each.queue,), each.oldest / 1_000) for each in look.stats]
    yield gauge("oldest_ready_seconds", "Age of the oldest message that is next.", _QUEUE, oldest)
    dead = [((queue,), age / 1_000) for queue, age in look.oldest_dead.items()]
    yield gauge("oldest_dead_seconds", "Since when the oldest dead letter is dead.", _QUEUE, dead)
    paused = [((each.queue,), int(each.paused)) for each in look.stats]
    yield gauge("queue_paused", "Whether claims are stopped.", _QUEUE, paused)


def _counted(stats: list[QueueStats]) -> Iterator[Metric]:
    for counted, (name, text) in _COUNTED.items():
        yield counter(name, text, _QUEUE, [((s.queue,), s.counters.get(counted, 0)) for s in stats])
    settled = [((s.queue, outcome), s.counters.get(outcome, 0)) for s in stats for outcome in _OUTCOMES]
    yield counter("messages_settled", "How deliveries and messages ended.", ("queue", "outcome"), settled)


def _sla(look: _Look, waits: Mapping[str, samples.Sample]) -> Iterator[Metric]:
    targets = {info.name: info.policy.sla_p95 for info in look.infos}
    promised = [((queue,), target / 1_000) for queue, target in targets.items() if target is not None]
    yield gauge("sla_target_seconds", "The sla_p95 of the queue.", _QUEUE, promised)
    recent = ((queue, sample.last(P95_OVER, look.now)) for queue, sample in waits.items())
    measured = [((queue,), histogram.percentile(95) or 0.0) for queue, histogram in recent if histogram.count]
    yield gauge("sla_p95_seconds", "p95 of the wait over the last 5 minutes.", _QUEUE, measured)


def _plain(found: Iterable[Any]) -> dict[str, dict[str, Any]]:
    return {record.key: msgspec.json.decode(record.value) for record in found}


def _breakers(states: Mapping[str, str]) -> Metric:
    values = [
        ((name, each), float(state == each)) for name, state in states.items() for each in _BREAKER_STATES
    ]
    return gauge("breaker_state", "1 for the state that a breaker is in.", ("name", "state"), values)


def _schedules(standings: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    by = ("schedule",)
    paused = [((name,), int(standing.get("paused", False))) for name, standing in standings.items()]
    yield gauge("schedule_paused", "Whether a schedule is paused.", by, paused)
    last = [((name,), s["last_slot"] / 1_000) for name, s in standings.items() if s.get("last_slot")]
    yield gauge("schedule_last_slot_timestamp_seconds", "The last slot that was put.", by, last)
    skipped = [((name,), standing.get("skipped", 0)) for name, standing in standings.items()]
    yield counter("schedule_slots_skipped", "Slots that were passed over.", by, skipped)


# --- serving --------------------------------------------------------------------------------------


@runtime_checkable
class HasConfig(HasEngine, Protocol):
    """A room, as far as it matters here."""

    @property
    def config(self) -> Any: ...


def collector(room: HasConfig, own: Callable[[], Own] = Own) -> RoomCollector:
    return RoomCollector(room.engine, __version__, room.config.keeper_ttl, own)


class MetricsServer:
    """`/metrics` of a room, or of another collector, over HTTP until it is closed.

    On this machine only unless told otherwise. `own` is what its process tells beside the room, and `beside`
    whoever else has something to tell.
    """

    def __init__(
        self,
        source: HasConfig | Collector,
        port: int,
        host: str = "127.0.0.1",
        own: Callable[[], Own] = Own,
        *beside: Collector,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector(source, own) if isinstance(source, HasConfig) else source)
        for other in beside:
            registry.register(other)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(f"metrics: cannot listen at {host}:{port}: {error.strerror}") from error
        self.port: int = int(self._server.server_port)
        log.info("metrics are served", extra={"event": "metrics.served", "host": host, "port": self.port})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
