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
from typing import Any

from celery.exceptions import MaxRetriesExceededError, Retry, TaskPredicate

from postroom.backoff import Backoff
from postroom.config import Config
from postroom.model import Failure
from postroom.policy import Policy

#: What our requests tell the process that runs a task: its queue, and how many attempts are left after this.
QUEUE, LEFT = "postroom_queue", "postroom_left"
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
    """The message itself is to be tried again, `when` seconds from now; nothing was published for it."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float = 0.0,
        failure: tuple[str, str, str] = ("", "", ""),
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
        task, run = self._task, self._run

        @functools.wraps(run)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except (TaskPredicate, MaxRetriesExceededError, *self._not_for):
                raise
            except self._caught() as error:
                raise task.retry(exc=error, **self._options) from error

        task._orig_run, task.run, task.retry = run, guarded, self.retry

    def _caught(self) -> tuple[type[BaseException], ...]:
        if self._task.request.called_directly:
            return ()
        if self._for is not None:
            return tuple(self._for)
        return (Exception,) if self._policy() else ()

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


def queue_of(task: Any) -> str:
    """The queue that a task is sent to unless its caller says otherwise."""
    route = task.app.amqp.router.route(dict(task._get_exec_options()), task.name)
    queue = route.get("queue") or task.app.conf.task_default_queue
    return str(getattr(queue, "name", queue))
