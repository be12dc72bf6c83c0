"""Retries as the queue matrix has them: of what, how often and after how long.

What a task says of itself (`@app.task(max_retries=…)`) wins over the matrix, and the matrix over what Celery
does unless it is told. Where nothing but the time is to change, the message itself is tried again: it keeps
its id, its history and its place in the dead letters. Celery's own way, a new message for each retry, is left
for what needs one: other arguments, another queue, an early ack, or more retries than the queue allows.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from celery.exceptions import MaxRetriesExceededError, Reject, Retry, TaskPredicate

from postroom import errors
from postroom.backoff import Backoff
from postroom.celery.working import QUEUE, at_work, has_message
from postroom.config import Config
from postroom.duration import instant, milliseconds
from postroom.idempotency import idempotent, is_guarded
from postroom.model import Failure
from postroom.policy import Policy

#: What our requests tell the process that runs a task: how many attempts are left after this.
LEFT = "postroom_left"
#: The longest wait of a task that asks for a backoff and not for its end: Celery's (ms).
_LONGEST = 600_000
_MISSING: Any = object()
_chance = random.Random()


def policy_for(config: Config, queue: str) -> Policy | None:
    """What the matrix says about a queue; None: nothing, and everything stays as Celery has it."""
    told = queue in config.declared or config.origin_of(queue, "max_attempts") != "default"
    return config.policy(queue) if told else None


def given(task: Any, name: str, default: Any = None) -> Any:
    """What the task itself says, in its decorator, its class or by annotation; else the default."""
    for cls in type(task).__mro__:
        if cls.__module__ == "celery.app.task":
            break
        if name in vars(cls):
            return vars(cls)[name]
    return default


class Again(Retry):
    """The message itself is to be tried again, `when` seconds from now; nothing was published for it.

    Without a failure it is only handed back, and no attempt is counted.
    """

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float = 0.0,
        failure: tuple[str, str, str] | None = None,
    ) -> None:
        super().__init__(message, exc, when)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return Again, (self.message, self.exc, self.when, self.failure)


class Retries:
    """How one task is retried: its `retry`, and its `run` with whatever it raises."""

    def __init__(self, task: Any, config: Config) -> None:
        self._task = task
        self._config = config
        self._retry = task.retry
        self._for = given(task, "autoretry_for")
        self._not_for = tuple(given(task, "dont_autoretry_for", ()))
        self._options = dict(given(task, "retry_kwargs", {}))
        # Around what Celery may have wrapped already: its wrapper knows nothing of the matrix.
        self._run = getattr(task, "_orig_run", task.run)

    def attach(self) -> None:
        """Have the task retried like this from now on."""
        task, run, once = self._task, self._run, self._once()

        @functools.wraps(run)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                with at_work(task):
                    return (once if has_message(task) else run)(*args, **kwargs)
            except (TaskPredicate, MaxRetriesExceededError, *self._not_for):
                raise
            except errors.Verdict as verdict:
                if task.request.called_directly or task.request.is_eager:
                    raise
                raise self._heeded(verdict) from (verdict.__cause__ or verdict)
            except self._caught() as error:
                raise task.retry(exc=error, **self._options) from error

        task._orig_run, task.run, task.retry = run, guarded, self.retry

    def _once(self) -> Callable[..., Any]:
        """The task as it is run: once for each task id, if the configuration says so of every task."""
        run: Callable[..., Any] = self._run
        if not self._config.idempotency_every_task or is_guarded(run):
            return run
        return idempotent(ttl=self._config.idempotency_ttl / 1_000, name=self._task.name)(run)

    def _caught(self) -> tuple[type[BaseException], ...]:
        if self._task.request.called_directly:
            return ()
        if self._for is not None:
            return tuple(self._for)
        return (Exception,) if self._policy() else ()

    # --- what the task itself decides ---------------------------------------------------------

    def _heeded(self, verdict: errors.Verdict) -> BaseException:
        """What a handler of the Python door may raise, in Celery's words."""
        cause = verdict.__cause__ or verdict
        told: BaseException
        if isinstance(verdict, errors.Later):
            told = self._later(verdict)
        elif isinstance(verdict, errors.Bury):
            told = Reject(str(cause), requeue=False)
        else:
            told = self._task.retry(exc=cause, throw=False, countdown=_wait(verdict))
        return told

    def _later(self, later: errors.Later) -> BaseException:
        if has_message(self._task) and self._task.acks_late:
            return Again(str(later), later, later.retry_after)
        # Its message is gone. A new one counts as a retry, but is not the one too many.
        limit = self._task.request.retries + 1
        again: BaseException = self._retry(
            exc=later, throw=False, countdown=later.retry_after, max_retries=limit
        )
        return again

    # --- what holds -------------------------------------------------------------------------

    def _policy(self) -> Policy | None:
        return policy_for(self._config, self.queue())

    def queue(self) -> str:
        """The queue of the message that is worked on; as far as nobody knows, the one it would be sent to."""
        request = self._task.request
        told = request.get(QUEUE) or (request.delivery_info or {}).get("routing_key")
        return told or queue_of(self._task)

    def limit(self) -> int | None:
        """How many retries there may be; None: no end of them."""
        own = given(self._task, "max_retries", _MISSING)
        policy = self._policy()
        return policy.max_attempts - 1 if own is _MISSING and policy else self._task.max_retries

    def wait(self, earlier: int) -> float:
        """Seconds until the next try, after so many earlier ones."""
        policy, own = self._policy(), given(self._task, "retry_backoff", _MISSING)
        if own is not _MISSING and own:
            backoff = Backoff(int(max(1.0, float(own))) * 1_000, 2.0, self._cap(policy))
        elif policy is None or own is not _MISSING or given(self._task, "default_retry_delay") is not None:
            return float(self._task.default_retry_delay)
        else:
            backoff = dataclasses.replace(policy.backoff, cap=self._cap(policy))
        jitter = given(self._task, "retry_jitter", policy.jitter if policy else True)
        return backoff.delay(earlier, _chance if jitter else None) / 1_000

    def _cap(self, policy: Policy | None) -> int:
        own = given(self._task, "retry_backoff_max")
        if own is not None:
            return int(own) * 1_000
        return policy.backoff.cap if policy else _LONGEST

    # --- trying again -----------------------------------------------------------------------

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """`Task.retry`: the same, with whatever the caller leaves open as the matrix says."""
        request = self._task.request
        limit = self.limit() if max_retries is None else max_retries
        if countdown is None and eta is None:
            countdown = self.wait(request.retries)
        same = args is None and kwargs is None and eta is None and not options
        if not (same and self._can_stay(limit)):
            return self._retry(
                args, kwargs, exc, throw, eta=eta, countdown=countdown, max_retries=limit, **options
            )
        again = self._again(exc, countdown or 0.0)
        if throw:
            raise again
        return again

    def _can_stay(self, limit: int | None) -> bool:
        """Whether the message that is worked on can be the one that is tried again."""
        request = self._task.request
        has_more = limit is None or request.retries < limit
        return bool(has_more and self._task.acks_late and request.get(LEFT, 0) > 0)

    def _again(self, exc: Any, countdown: float) -> Again:
        error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
        failure = Failure.of(error) if error else Failure(type="Retry", text=str(exc or "as the task asked"))
        return Again(None, error, countdown, (failure.type, failure.text, failure.traceback))


def _wait(verdict: errors.Verdict) -> float | None:
    """The seconds that a Retry asks for; None: as its queue says."""
    after, at = getattr(verdict, "after", None), getattr(verdict, "at", None)
    try:
        if at is not None:
            return max(0.0, instant(at, "at") / 1_000 - time.time())
        return None if after is None else milliseconds(after, "after") / 1_000
    except errors.InvalidInput:  # a time that makes no sense: a failure like any other
        return None


def queue_of(task: Any) -> str:
    """The queue that a task is sent to unless its caller says otherwise."""
    return queue_for(task.app, task.name, task._get_exec_options())


def queue_for(app: Any, name: str, options: Mapping[str, Any]) -> str:
    """The queue that a task of this name is sent to with these options."""
    queue = app.amqp.router.route(dict(options), name).get("queue") or app.conf.task_default_queue
    return str(getattr(queue, "name", queue))
