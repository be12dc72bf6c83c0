"""How the message of a handler ends when its task could not say so: time limits, lost processes, rejects."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from postroom.celery.events import intake
from postroom.celery.events.handled import Attempt
from postroom.celery.request import Request as OfTheMatrix

log: logging.Logger = logging.getLogger(__name__)


class Request(OfTheMatrix):
    """Whatever is rejected is tried again, as often as its handler says, and then kept with what it died of.

    On RabbitMQ it goes by the ladder: at the head of its queue it would come at once. There, what this
    process has handled before is acked and does not run; an engine sees to that by itself.
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
        """Have it tried again, or given up when that was its last attempt, whatever Celery would do."""
        on_engine, stopping = self._office is not None, self.task.app.stopping
        if self._failure is None or (requeue and stopping):
            # A worker that stops gives back what it did not finish, and that is no attempt.
            super().reject(requeue and (on_engine or stopping))
        elif on_engine:
            super().reject(requeue=self._has_retries_left)
        elif self._has_retries_left or not self._is_archived():
            super().reject(requeue=False)
        else:
            self.acknowledge()

    @property
    def _has_retries_left(self) -> bool:
        most = self.task.max_retries
        return most is None or self._attempt[2] < most

    def _is_archived(self) -> bool:
        """Send it to the archive of RabbitMQ, unless it is settled already; whether that has it now."""
        if self.acknowledged or self._failure is None:
            return False
        try:
            intake.give_up(self.task.app, self.message, self.message.headers, self._failure)
        except ConnectionError as error:
            log.warning(
                "%s comes once more, to be archived then: %s", self.humaninfo(), error,
                extra={"event": "events.not_archived", "event_id": self._attempt[0]},
            )  # fmt: skip
            return False
        return True

    @cached_property
    def _attempt(self) -> Attempt:
        told = self.request_dict
        event = told.get("event_id") or self.id
        return event, self.task.name, told.get("retries") or 0, told.get("replays") or 0
