"""Celery's consumer, for messages that no task can be found in, and for a broker that came back empty."""

from __future__ import annotations

import time
from typing import Any

from celery.worker.consumer import Consumer as CelerysConsumer

from postroom.celery.events import intake, leaderless
from postroom.celery.events.declaring import declare
from postroom.celery.events.topology import EXCHANGE
from postroom.model import Failure

#: What keeps a worker from its queues is said again after this long (seconds).
_SAY_AGAIN = 60.0


class Consumer(CelerysConsumer):
    """On RabbitMQ such a message goes to the archive: rejected, it would come back every second, for good."""

    _said_at = float("-inf")

    def connect(self) -> Any:
        """After a lost connection the topology is declared again: the broker may have lost it as well."""
        connection = super().connect()
        if self.app.on_rabbitmq and self.restart_count > 0:
            with intake.as_lost_connection():
                declare(connection, self.app.topology)
        return connection

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Celery begins anew, within a second, and says no more than the number of the error."""
        now = time.monotonic()
        if now - self._said_at > _SAY_AGAIN and (reason := leaderless.reason(exc)):
            self._said_at = now
            intake.log.error(
                "%s cannot be served: %s", self.app.service, reason, extra={"event": "events.no_leader"}
            )
        super().on_connection_error_after_connected(exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        if not self._keep(message, "UnknownMessage", "it names no task in its headers"):
            super().on_unknown_message(body, message)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        if not self._keep(message, type(exc).__name__, str(exc)):
            super().on_decode_error(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        if not self._keep(message, type(exc).__name__, str(exc)):
            super().on_invalid_task(body, message, exc)

    def _keep(self, message: Any, kind: str, text: str) -> bool:
        """Whether it was an event of ours, and is in the archive now."""
        app, info = self.app, message.delivery_info
        if not app.on_rabbitmq or info.get("exchange") not in (EXCHANGE, app.names.recover):
            return False
        headers = {"task": "", "id": "", "event": info.get("routing_key", ""), **(message.headers or {})}
        intake.give_up(app, message, headers, Failure(type=kind, text=text))
        message.ack_log_error(intake.log, self.connection_errors)
        return True
