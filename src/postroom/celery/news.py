"""What a Celery worker tells about itself and its tasks (its events), and answers to remote control.

Celery publishes both from its event loop, and has kombu try again, without an end, for as long as the store
is away: until then the worker would read no result, keep no time limit and obey no signal. So nothing of it
is waited for. Events are kept and told when the store is back; beyond `MOST_KEPT` the oldest are given up,
and that is said. An answer is dropped: whoever asked listens for a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from postroom.celery.fanout import EVENTS
from postroom.celery.presence import worker_state
from postroom.celery.wrapping import Payload
from postroom.errors import EngineUnavailable, QueueFull
from postroom.limits import MAX_TOPIC_ENTRY

if TYPE_CHECKING:
    from postroom.celery.office import Office

log: logging.Logger = logging.getLogger(__name__)

#: So many events wait for a store that is away: those of half an hour, of a worker that does nothing.
MOST_KEPT = 1_000

#: The largest event (bytes): a topic keeps its headers with it.
_LARGEST = MAX_TOPIC_ENTRY - 16_384

Event = tuple[str, Payload]


def is_news(exchange: str) -> bool:
    """Whether a worker of this process tells an event by this."""
    return exchange == EVENTS and worker_state() is not None


def is_answer(exchange: str) -> bool:
    """Whether a worker of this process answers to remote control by this."""
    return exchange.startswith("reply.") and exchange.endswith(".pidbox") and worker_state() is not None


class News:
    """The events of one office. Threads may share it."""

    def __init__(self, office: Office) -> None:
        self._office = office
        #: Reentrant: a signal handler may tell something, whatever it has interrupted.
        self._lock = threading.RLock()
        self._kept: list[Event] = []
        self._given_up = 0

    def tell(self, routing_key: str, payload: Payload) -> None:
        """Publish an event, now or when the store is back; one that no topic takes is dropped."""
        if (size := len(payload["body"])) > _LARGEST:
            extra = {"event": "celery.event_dropped", "size": size}
            log.warning("an event of %d bytes was dropped: %s", size, routing_key, extra=extra)
            return
        self._keep([(routing_key, payload)])
        if not self._office.away:
            self._send()

    def answer(self, put: Callable[[], None]) -> None:
        """Answer to remote control, unless the store is away."""
        try:
            if not self._office.away:
                put()
                return
        except EngineUnavailable as error:
            self._office.upkeep.note_outage(error)
        log.warning(
            "an answer to remote control was dropped: the store is away",
            extra={"event": "celery.answer_dropped"},
        )

    def _keep(self, events: list[Event], *, first: bool = False) -> None:
        with self._lock:
            kept = events + self._kept if first else self._kept + events
            self._kept = kept[-MOST_KEPT:]
            self._given_up += len(kept) - len(self._kept)

    def _send(self) -> None:
        with self._lock:
            events, self._kept = self._kept, []
        try:
            self._office.fanout.publish(EVENTS, events)
        except (EngineUnavailable, QueueFull) as error:
            self._keep(events, first=True)
            if isinstance(error, EngineUnavailable):
                self._office.upkeep.note_outage(error)
        else:
            self._say_given_up()

    def _say_given_up(self) -> None:
        with self._lock:
            count, self._given_up = self._given_up, 0
        if count:
            log.warning(
                "%d events of this worker were given up while the store was away",
                count,
                extra={"event": "celery.events_given_up", "count": count},
            )
