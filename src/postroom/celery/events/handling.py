"""The task behind `@app.handler`: retried on the broker, and archived when that was in vain.

On RabbitMQ a retry is a copy for this handler alone, sent to the ladder and confirmed before the message is
acked: what a crash between the two leaves twice is known by the event's id and its attempt. On a Postroom
engine the message itself is tried again later, and what is given up becomes a dead letter.
"""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from celery import Task
from celery.exceptions import Ignore, MaxRetriesExceededError, Retry

from postroom.celery.events.envelope import Envelope, encode
from postroom.celery.retrying import Again
from postroom.model import Failure

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

    _Task: TypeAlias = Task[..., Any]  # generic for type checkers that know celery-types, and for nobody else
else:
    _Task = Task

log: logging.Logger = logging.getLogger(__name__)


class EventTask(_Task):
    """See the module. Every option of Celery's tasks holds, those about retries for this handler alone."""

    abstract = True
    app: EventsApp
    Request = "postroom.celery.events.request:Request"
    Strategy = "postroom.celery.events.intake:receive"
    autoretry_for: tuple[type[Exception], ...] = (Exception,)
    #: 1, 2, 4, 8 … seconds, to an hour.
    retry_backoff = 1
    retry_backoff_max = 3_600
    retry_jitter = False
    #: Of a `self.retry()` that says no time; None: the same as after an exception.
    default_retry_delay: float | None = None

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """`Task.retry`: the delay passes on the broker; after the last one the event goes to the archive."""
        request = self.request
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        if request.called_directly:
            raise error or MaxRetriesExceededError(f"{self.name} was called directly")
        most = self.max_retries if max_retries is None else max_retries
        delay = self._delay(countdown, eta)
        if most is not None and request.retries >= most:
            raise self._give_up(exc, error)
        if self.app.on_rabbitmq:
            self.app.climb(self._copy(args, kwargs, request.retries + 1), request.get("event"), delay * 1_000)
            again = Retry(exc=error, when=delay)
        else:
            again = self._again(exc, error, delay)
        if throw:
            raise again
        return again

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Celery's hook. Lets the frames of a failed attempt go as soon as its text has been made.

        Each exception leads to the frames of Celery, and those back to it: a quarter of a megabyte at each
        attempt, until Python's collector looks at them. A flood of failures had 80 MB of them in every child.
        """
        super().on_retry(exc, task_id, args, kwargs, einfo)
        again = sys.exc_info()[1]
        for error in (exc, again):
            if isinstance(error, BaseException):
                error.__traceback__ = None

    def _delay(self, countdown: float | None, eta: datetime | None) -> float:
        if eta is not None:
            now = self.app.now()
            left: float = (eta - (now if eta.tzinfo else now.replace(tzinfo=None))).total_seconds()
            return max(0.0, left)
        if countdown is not None:
            return max(0.0, float(countdown))
        if self.default_retry_delay is not None:
            return float(self.default_retry_delay)
        wait: float = min(self.retry_backoff_max, max(1, self.retry_backoff) * 2**self.request.retries)
        return wait

    def _copy(self, args: Any, kwargs: Any, retries: int) -> tuple[dict[str, Any], bytes]:
        """Headers and body of the same event, for this handler alone."""
        request = self.request
        headers = Envelope.read(vars(request)).headers(task=self.name, retries=retries)
        body = encode(request.args if args is None else args, request.kwargs if kwargs is None else kwargs)
        return headers, body

    def _give_up(self, exc: Any, error: BaseException | None) -> BaseException:
        """What to raise when no retry is left. On RabbitMQ the event is in the archive by then."""
        gone = error or MaxRetriesExceededError(
            f"{self.name}: no retries left ({exc or 'as the task asked'})"
        )
        if not self.app.on_rabbitmq:
            return gone
        headers, body = self._copy(None, None, self.request.retries)
        self.app.archive(headers, body, Failure.of(gone))
        done: BaseException = Ignore()
        return done

    def _again(self, exc: Any, error: BaseException | None, delay: float) -> Again:
        failure = Failure.of(error) if error else Failure(type="Retry", text=str(exc or "as the task asked"))
        return Again(None, error, delay, (failure.type, failure.text, failure.traceback))
