"""Prometheus: how a service stands at its broker, asked when it is scraped."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from postroom.celery.events.standing import look
from postroom.errors import MissingExtra, PostroomError
from postroom.services import Count, Standing
from postroom.telemetry.exporter import counter, gauge

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise MissingExtra("metrics need: pip install 'postroom[metrics]'") from _error

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

log: logging.Logger = logging.getLogger(__name__)

_BY = ("service",)
#: Why an archive drops letters, as RabbitMQ calls it.
_REASONS = ("maxlen", "expired")


class EventsCollector(Collector):
    """All metrics of one service; register it with a registry of prometheus-client."""

    def __init__(self, app: EventsApp) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        app = self._app
        service = (app.service,)
        # Also those that never happened: of a counter that begins with 1, nobody sees that it grew.
        reasons = sorted({*_REASONS, *app.watch.lost})
        lost = [((*service, reason), app.watch.lost[reason]) for reason in reasons]
        yield counter("events_archive_lost", "Letters that the archive dropped.", (*_BY, "reason"), lost)
        try:
            standing = look(app)
        except PostroomError as error:
            extra = {"event": "telemetry.scrape_failed", "error": str(error)}
            log.warning("a scrape failed: %s", error, extra=extra)
            yield gauge("events_broker_up", "Whether the broker answers.", _BY, [(service, 0)])
            return
        yield gauge("events_broker_up", "Whether the broker answers.", _BY, [(service, 1)])
        yield from _standing(standing)


def _standing(standing: Standing) -> Iterator[Metric]:
    service = (standing.service,)
    yield _by_queue("events_ready", "Events that wait for handlers.", "queue", service, standing.ready)
    yield _by_queue("events_delayed", "Events that wait for their time.", "rung", service, standing.delayed)
    if standing.archived is not None:
        yield gauge("events_archived", "Letters in the archive.", _BY, [(service, standing.archived)])
        filled = [(service, standing.filled)]
        yield gauge("events_archive_filled_ratio", "How near the archive is to a bound.", _BY, filled)
        oldest = [(service, standing.oldest / 1_000)]
        yield gauge("events_archive_oldest_seconds", "The age of its oldest letter.", _BY, oldest)


def _by_queue(name: str, text: str, label: str, service: tuple[str], counts: Mapping[str, Count]) -> Metric:
    known = [((*service, queue), count) for queue, count in counts.items() if count is not None]
    return gauge(name, text, (*_BY, label), known)
