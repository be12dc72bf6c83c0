"""How a service stands on RabbitMQ: what waits for its handlers, on each rung, and in the archive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqp.exceptions import NotFound as NoSuchQueue
from amqp.exceptions import ResourceLocked

from postroom.celery.events.holding import as_unavailable, connected
from postroom.celery.events.letters import letter_of

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

#: Events in a queue; None: it is not declared.
Count = int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Events that wait, by queue. `oldest` is the age of the archive's oldest letter (ms), 0 without any."""

    service: str
    ready: dict[str, Count]
    rungs: dict[str, Count]
    archived: Count = None
    archive_most: int | None = None
    archive_retention: int | None = None
    oldest: int = 0

    @property
    def filled(self) -> float:
        """How far the archive has come to the nearer of its two bounds: 1 is where letters are dropped."""
        length = (self.archived or 0) / self.archive_most if self.archive_most else 0.0
        age = self.oldest / self.archive_retention if self.archive_retention else 0.0
        return max(length, age)


def look(app: EventsApp) -> Standing:
    """Ask RabbitMQ. What a reader of the archive holds is not counted meanwhile. Raises EngineUnavailable."""
    given, names = app.given, app.names
    with as_unavailable(), connected(app) as connection:
        ready = {queue: _count(connection, queue) for queue in app.handlers.queues}
        rungs = {names.rung(ttl): _count(connection, names.rung(ttl)) for ttl in given.ladder.rungs}
        if given.archive is None:
            return Standing(app.service, ready, rungs)
        archived = _count(connection, names.archive)
        return Standing(
            app.service,
            ready,
            rungs,
            archived,
            given.archive.most,
            given.archive.retention,
            _oldest(connection, app) if archived else 0,
        )


def _count(connection: Any, queue: str) -> Count:
    try:
        with connection.channel() as channel:  # a missing queue closes the channel
            return int(channel.queue_declare(queue, passive=True).message_count)
    except NoSuchQueue:
        return None


def _oldest(connection: Any, app: EventsApp) -> int:
    """The age of the first letter, which goes back to its place with the channel; 0 beside a reader."""
    try:
        with connection.channel() as channel:
            channel.queue_declare(app.names.reader, exclusive=True, durable=False, auto_delete=True)
            message = channel.basic_get(app.names.archive)
            died = letter_of(app.names.archive, message).failed_at if message else None
            channel.queue_delete(app.names.reader)
    except ResourceLocked:
        return 0
    return max(0, int(time.time() * 1_000) - died) if died else 0
