"""How the message of a handler ends when its task could not say so: time limits, lost processes, rejects."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from postroom.celery.events.handled import Attempt
from postroom.celery.request import Request as OfTheMatrix

log: logging.Logger = logging.getLogger(__name__)


class Request(OfTheMatrix):
    """On RabbitMQ whatever is requeued goes by the ladder: at the head of its queue it would come at once.

    What this process has handled before is acked and does not run. On an engine, both are the engine's.
    """

    def acknowledge(self) -> None:
        if self._office is None and not self.acknowledged:
            self.task.app.handled.add(self._attempt)
        super().acknowledge()

    def revoked(self) -> Any:
        """Asked by Celery right before the task would run: whether it must not."""
        if super().revoked():
            return True
        if self._office is not None or not self.task.app.handled.absorbs(self._attempt):
            return False
        log.info(
            "%s was handled already: its event arrived twice", self.humaninfo(),
            extra={"event": "events.duplicate", "event_id": self._attempt[0]},
        )  # fmt: skip
        self.on_success((False, None, 0.0))
        return True

    def reject(self, requeue: bool = False) -> None:
        # A worker that stops gives back what it did not finish, and that is no attempt.
        super().reject(requeue and (self._office is not None or self.task.app.stopping))

    @cached_property
    def _attempt(self) -> Attempt:
        told = self.request_dict
        event = told.get("event_id") or self.id
        return event, self.task.name, told.get("retries") or 0, told.get("replays") or 0
