"""RabbitMQ's transport of kombu, with a prefetch for each consumer: quorum queues know no other.

Celery finds that out by itself, and then also declares 28 queues of its own for delayed tasks. Events have
their own ladder, and need none of them.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import pyamqp

#: What is read in one turn of the event loop: so many messages, or as long as this (s).
_MOST, _LONGEST = 2, 0.002


class _ForEvents:
    """What ours do differently."""

    _in_a_loop = False

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        return True

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._in_a_loop = True
        super().register_with_event_loop(connection, loop)  # type: ignore[misc]  # kombu's, behind this one

    def drain_events(self, connection: Any, **options: Any) -> Any:
        """Read, and in an event loop wait for nothing.

        Celery has the first turn of its loop wait up to 0.1 s for a message. So long would the acks wait of
        what was handled while the worker started, and who is killed meanwhile has worked in vain.
        """
        if self._in_a_loop:
            options["timeout"] = 0
        return super().drain_events(connection, **options)  # type: ignore[misc]  # kombu's, behind this one

    def on_readable(self, connection: Any, loop: Any) -> None:
        """Read some messages of what has come; the rest wakes the loop at once, for its next turn.

        Acks go out between two turns. Of the solo pool, whose handlers run in here, that is a few at a time,
        while there is still something to do: RabbitMQ and the worker never wait for each other. And what has
        taken long is acked before the next one runs.

        Kombu reads the second one at the beginning of the next turn. A handler that runs there leaves its ack
        behind, and the loop sleeps over it until something else happens: up to ten seconds.
        """
        end, left = time.monotonic() + _LONGEST, _MOST
        while connection.connected:
            try:
                connection.drain_events(timeout=0)
            except TimeoutError:
                return
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    return
                raise
            left -= 1
            if (left <= 0 or time.monotonic() > end) and not self._has_more(connection):
                return
        raise RecoverableConnectionError("the connection to RabbitMQ is closed")

    def _has_more(self, connection: Any) -> bool:
        """Whether there is something that wakes no loop."""
        return False


class Transport(_ForEvents, pyamqp.Transport):
    """For amqp:// and pyamqp://."""


class SSLTransport(_ForEvents, pyamqp.SSLTransport):
    """For amqps://."""

    def _has_more(self, connection: Any) -> bool:
        return bool(connection.sock.pending())  # deciphered already, and no longer in the socket
