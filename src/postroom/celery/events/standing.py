"""How a service stands on RabbitMQ: what waits for its handlers, on each rung, and in the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp.exceptions import NotFound as NoSuchQueue

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp


def counts(app: EventsApp) -> dict[str, int | None]:
    """Messages that wait in each queue of the service; None: that queue is not declared."""
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=3)
        found: dict[str, int | None] = {}
        for queue in app.topology.queues:
            try:
                with connection.channel() as channel:  # a missing queue closes the channel
                    found[queue.name] = channel.queue_declare(queue.name, passive=True).message_count
            except NoSuchQueue:
                found[queue.name] = None
        return found
