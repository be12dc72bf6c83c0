"""RabbitMQ's transport of kombu, with a prefetch for each consumer: quorum queues know no other.

Celery finds that out by itself, and then also declares 28 queues of its own for delayed tasks. Events have
their own ladder, and need none of them.
"""

from __future__ import annotations

import errno
from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import pyamqp


class _ForEvents:
    """What ours do differently."""

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        return True

    def on_readable(self, connection: Any, loop: Any) -> None:
        """Read all that has come, at most what the prefetch allows, in this one turn of the loop.

        Kombu leaves the rest to the beginning of the next turn. A task of the solo pool that runs there
        leaves its ack behind, and the loop sleeps over it until something else happens: up to ten seconds.
        """
        while connection.connected:
            try:
                connection.drain_events(timeout=0)
            except TimeoutError:
                return
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    return
                raise
        raise RecoverableConnectionError("the connection to RabbitMQ is closed")


class Transport(_ForEvents, pyamqp.Transport):
    """For amqp:// and pyamqp://."""


class SSLTransport(_ForEvents, pyamqp.SSLTransport):
    """For amqps://."""
