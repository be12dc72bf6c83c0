"""How the message of a task ends: the request of every task that the queue matrix was applied to.

Celery decides whether a message is acked, rejected or requeued. Here it is said why, and when it comes back,
so that whatever is given up becomes a dead letter with its exception. A message that was acked before it
ran is put again, as the dead letter that it is.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import Ignore, Reject, Retry, Terminated
from celery.worker import state
from celery.worker.request import Request as CelerysRequest

from postroom import deadletters
from postroom.celery.retrying import LEFT, Again, policy_for
from postroom.celery.working import BROKER, QUEUE, broker_of
from postroom.celery.wrapping import ATTEMPTS
from postroom.delivery import Delivery, retry_delay
from postroom.errors import PostroomError
from postroom.model import Failure, Verb
from postroom.policy import Policy

log: logging.Logger = logging.getLogger(__name__)

#: The shares of an ack_timeout after which a task is told, and after which it is stopped: both before the
#: engine takes the message back, or two would work on it.
_SOFT, _HARD = 0.9, 0.95
_EXPIRED = Failure(type="Expired", text="nobody took the task before it expired")


class Request(CelerysRequest):
    """See the module. On another transport than ours it is Celery's own."""

    time_limits: tuple[float | None, float | None]

    def __init__(self, message: Any, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self._office = getattr(message.channel, "office", None)
        self._delivery: Delivery | None = None
        self._failure: Failure | None = None
        if self._office is not None:
            self._delivery = self._office.held.get(message.delivery_tag)
        if self._delivery is not None:
            self._tell(self._delivery)

    def _tell(self, delivery: Delivery) -> None:
        """Have the task know which retry this is, and when it has to be done."""
        assert self._office is not None
        policy = self._policy()
        told = self._request_dict
        told["retries"] = (told.get("retries") or 0) + delivery.attempt
        told[QUEUE], told[ATTEMPTS] = delivery.queue, delivery.attempt
        told[BROKER] = broker_of(self.app, self._office)
        if policy is None:
            return
        most = delivery.message.max_attempts or policy.max_attempts
        told[LEFT] = max(0, most - delivery.attempt - 1)
        allowed = delivery.message.ack_timeout or policy.ack_timeout
        own = (*self.time_limits, self.task.time_limit, self.task.soft_time_limit)
        if allowed is not None and not any(own):
            self.time_limits = (allowed * _HARD / 1_000, allowed * _SOFT / 1_000)

    def _policy(self) -> Policy | None:
        assert self._office is not None
        assert self._delivery is not None
        return policy_for(self._office.room.config, self._delivery.queue)

    # --- how it ends ------------------------------------------------------------------------

    def on_retry(self, exc_info: Any) -> None:
        again = _exception(exc_info)
        if isinstance(again, Again):
            wait = round(again.when * 1_000)
            if again.failure is None:
                self._settle(Verb.RELEASE, delay=wait)
            else:
                kind, text, trace = again.failure
                self._settle(Verb.RETRY, Failure(type=kind, text=text, traceback=trace), wait)
        super().on_retry(exc_info)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        self._failure = _failure(exc_info)
        answer = super().on_failure(exc_info, send_failed_event, return_ok)
        if self._is_early and not isinstance(_exception(exc_info), Retry | Ignore | Terminated):
            self._keep_dead(self._failure)
        return answer

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if soft:
            super().on_timeout(soft, timeout)
            return
        self._failure = Failure(type="TimeLimitExceeded", text=f"the task was stopped after {timeout} s")
        super().on_timeout(soft, timeout)
        if self._is_early:
            self._keep_dead(self._failure)
        elif self.task.acks_late:
            self.reject(requeue=True)  # unless it is acked or rejected by now: not every Celery does

    def reject(self, requeue: bool = False) -> None:
        if not self.acknowledged and self._failure is not None:
            if requeue and state.should_terminate:
                self._settle(Verb.RELEASE)
            elif requeue:
                self._settle(Verb.RETRY, self._failure, self._backoff())
            else:
                self._settle(Verb.BURY, self._failure)
        super().reject(requeue)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        policy = self._policy() if self._delivery else None
        if expired and policy is not None and policy.on_expire == "dead":
            self._settle(Verb.BURY, _EXPIRED)
            # Celery takes it for revoked from now on, and a replay has the id of its task.
            state.revoked.discard(self.id)
        super()._announce_revoked(reason, terminated, signum, expired)

    @property
    def _is_early(self) -> bool:
        """Whether it was acked before it ran: then its message is gone, whatever becomes of it."""
        return bool(self.acknowledged and not self.task.acks_late)

    def _settle(self, verb: Verb, failure: Failure | None = None, delay: int | None = None) -> None:
        """Say how it ended before Celery does: whoever is first is heard."""
        if self._office is not None:
            self._office.settle(self.message.delivery_tag, verb, failure, delay=delay)

    def _backoff(self) -> int | None:
        policy = self._policy() if self._delivery else None
        if policy is None or self._delivery is None:
            return None
        return retry_delay(policy, self._delivery.attempt)

    def _keep_dead(self, failure: Failure) -> None:
        if self._office is None or self._delivery is None or self._policy() is None:
            return
        room, delivery = self._office.room, self._delivery
        took = 0 if self.time_start is None else max(0, round((time.time() - self.time_start) * 1_000))
        try:
            deadletters.keep(
                room.engine, delivery.message, failure, self.message.delivery_tag,
                consumer=room.consumer, took=took, earlier=delivery.attempt,
            )  # fmt: skip
        except PostroomError as error:
            log.error(
                "the dead letter of %s could not be kept: %s; it died of %s",
                self.humaninfo(), error, failure.summary,
                extra={"event": "celery.dead_letter_lost", "error": str(error), **self._delivery.log_extra},
            )  # fmt: skip


def _exception(exc_info: Any) -> BaseException:
    error: BaseException = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error


def _failure(exc_info: Any) -> Failure:
    """Why a task failed. An exception that cannot travel between processes comes as one that tells of it."""
    error = _exception(exc_info)
    if isinstance(error, Reject):
        return Failure(type="Reject", text=str(error.reason or ""))
    kind = getattr(error, "exc_cls_name", None) or type(error).__name__
    return Failure(type=kind, text=str(error), traceback=str(exc_info.traceback or ""))
