"""Watches a service while its worker runs: warns before its archive is full, and tells of what that dropped.

An engine tells of that in the history of its queues (`evict`), and counts it. RabbitMQ drops the oldest
letters of an archive that is full, and those that are too old. They go to the queue `SERVICE.v1.lost`, out of
which the workers count them: none goes unnoticed, as long as a worker of the service looks before there are
more than 10,000.

And a queue that somebody deleted is declared and consumed anew. RabbitMQ tells its consumers of that, but not
one that is just about to be; and nobody else would tell that worker before its next connection.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from amqp.exceptions import NotFound
from celery import bootsteps

from postroom.celery.events.declaring import declare
from postroom.celery.events.holding import as_unavailable, connected
from postroom.celery.events.standing import look
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

log: logging.Logger = logging.getLogger(__name__)

#: How full an archive is when it is worth a warning, and how empty before the next one.
WARN, CALM = 0.8, 0.7
#: Between two looks (s), and letters told of at once.
_EVERY = 30.0
_MOST, _NAMED = 2_000, 50


class Watch:
    """Of one process; what it counts is told by `/metrics`."""

    def __init__(self, app: EventsApp) -> None:
        self._app = app
        self._warned = False
        #: Letters that the archive dropped, by the reason that RabbitMQ gives: `maxlen` or `expired`.
        self.lost: Counter[str] = Counter()

    def look(self) -> list[str]:
        """Look once; return the queues that were gone and are declared again. Raises EngineUnavailable."""
        standing = look(self._app)
        self._warn(standing)
        if not self._app.on_rabbitmq:
            return []
        with as_unavailable(), connected(self._app) as connection:
            with contextlib.suppress(NotFound):
                self._count_lost(connection, connection.channel())
            gone = [queue for queue, count in standing.ready.items() if count is None]
            return self._replace(connection, gone)

    def _replace(self, connection: Any, gone: list[str]) -> list[str]:
        if gone:
            log.error(
                "%s had been deleted, with whatever came since; it is declared again", ", ".join(gone),
                extra={"event": "events.queue_gone", "service": self._app.service, "queues": gone},
            )  # fmt: skip
            declare(connection, self._app.topology)
        return gone

    def _warn(self, standing: Any) -> None:
        if standing.filled >= WARN and not self._warned:
            log.warning(
                "the archive of %s is %.0f %% full: %d letters, the oldest is %.1f days old; beyond its "
                "bounds the oldest are dropped (postroom dead groups --service …)",
                self._app.service, standing.filled * 100, standing.archived, standing.oldest / 86_400_000,
                extra={"event": "events.archive_filling", "service": self._app.service,
                       "archived": standing.archived, "filled": round(standing.filled, 3)},
            )  # fmt: skip
            self._warned = True
        elif standing.filled < CALM:
            self._warned = False

    def _count_lost(self, connection: Any, channel: Any) -> None:
        queue = self._app.names.lost
        count = min(_MOST, channel.queue_declare(queue, passive=True).message_count)
        if not count:
            return
        gone: list[Any] = []
        channel.basic_qos(0, count, False)
        channel.basic_consume(queue, callback=gone.append)
        with contextlib.suppress(TimeoutError):
            while len(gone) < count:
                connection.drain_events(timeout=5.0)
        self._tell(gone)
        for message in gone:
            channel.basic_ack(message.delivery_tag)
        channel.queue_declare(queue, passive=True)  # its answer comes after the acks

    def _tell(self, gone: list[Any]) -> None:
        reasons = Counter(str((message.headers or {}).get("x-first-death-reason")) for message in gone)
        self.lost += reasons
        ids = [str((message.headers or {}).get("event_id", "")) for message in gone[:_NAMED]]
        log.error(
            "the archive of %s dropped %d letters for good (%s)",
            self._app.service, len(gone), ", ".join(f"{reason} {n}" for reason, n in reasons.items()),
            extra={"event": "events.archive_lost", "service": self._app.service, "count": len(gone),
                   "reasons": dict(reasons), "ids": ids},
        )  # fmt: skip


class Watching(bootsteps.StartStopStep):
    """A thread of the worker's main process, beside its event loop and never in its way."""

    requires: tuple[str, ...] = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(parent,), name="events-watch", daemon=True).start()

    def _run(self, parent: Any) -> None:
        while not self._ended.wait(_EVERY):
            try:
                for queue in parent.app.watch.look():
                    parent.consumer.call_soon(_consume_anew, parent.consumer, queue)
            except PostroomError as error:
                log.warning(
                    "the service could not be looked at: %s", error, extra={"event": "events.unwatched"}
                )

    def stop(self, parent: Any) -> None:
        """It is a daemon, and has nothing to finish: nobody waits for it."""
        self._ended.set()


def _consume_anew(consumer: Any, queue: str) -> None:
    """In the worker's own loop, as Celery's control command `add_consumer` does it."""
    consumer.task_consumer.cancel_by_queue(queue)
    consumer.add_task_queue(queue)
