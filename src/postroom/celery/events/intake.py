"""What happens to a message between the broker and Celery's task.

A message that names an event is handed to the handler of it; when there are several, a copy for each goes
back to the queue, so that each is retried alone. On RabbitMQ each rejection counts as a retry, and an event
that nothing here handles any more is archived: rejected, it would come back every second.

What cannot be sent on, because RabbitMQ is away, stays unacked: for Celery the connection is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import bootsteps
from celery.worker import strategy as celerys

from postroom.celery.events.envelope import Envelope, Headers, bytes_of, fresh
from postroom.celery.events.publisher import Outgoing
from postroom.errors import PostroomError
from postroom.model import Failure

log = logging.getLogger(__name__)

#: How long the event loop of a worker sleeps at most (s).
_TICK = 1.0
#: What is left of a delay that is longer than the ladder (ms).
LEFT = "postroom-left"
#: Why a message that nobody acked comes back by the ladder.
_REJECTED = ("rejected", "delivery_limit")


class Strategies(dict[str, Any]):
    """Celery's strategies by name of task, and one for every event that is no name of a task."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(consumer.strategies)
        self._consumer = consumer

    def __missing__(self, name: str) -> Any:
        app = self._consumer.app
        if not (app.on_rabbitmq or app.handlers_of(name)):
            raise KeyError(name)
        return lambda message, body, ack, reject, callbacks: self._hand_on(
            name, message, body, ack, reject, callbacks
        )

    def _hand_on(self, name: str, message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        app, headers = self._consumer.app, message.headers
        handlers = app.handlers_of(name)
        headers.update(Envelope.read(headers).told())
        if len(handlers) == 1:
            headers["task"] = handlers[0]
            self[handlers[0]](message, body, ack, reject, callbacks)
            return
        if not handlers:
            failure = Failure(type="NoHandler", text=f"nothing in {app.service} handles {name}")
            give_up(app, message, headers, failure)
        else:
            self._split(handlers, message)
        ack(log, self._consumer.connection_errors)

    def _split(self, handlers: list[str], message: Any) -> None:
        app, headers = self._consumer.app, message.headers
        envelope = Envelope.read(headers)
        queue = app.queue_of(envelope.event)
        with as_lost_connection(), app.publisher.window():
            for handler in handlers:
                copy = envelope.headers(task=handler, retries=headers.get("retries") or 0)
                app.publisher.publish(Outgoing("", queue, copy, bytes_of(message.body)))


def _nothing() -> None:
    """What a tick does."""


class Intake(bootsteps.StartStopStep):
    """Have this worker know events. See "Extensions and Bootsteps" in Celery's documentation."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, parent: Any) -> None:
        parent.strategies = Strategies(parent)
        # An event loop with nothing to read sleeps until its next timer, and looks only then whether it
        # was told to stop.
        self._tick = parent.timer.call_repeatedly(_TICK, _nothing)

    def stop(self, parent: Any) -> None:
        self._tick.cancel()


def receive(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Any:
    """The strategy of a handler: Celery's, for what is to run now."""
    run = celerys.default(task, app, consumer, **kwargs)

    def received(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        if app.on_rabbitmq and _is_elsewhere(task, app, message):
            ack(log, consumer.connection_errors)
        else:
            run(message, body, ack, reject, callbacks)

    return received


def _is_elsewhere(task: Any, app: Any, message: Any) -> bool:
    """Whether the message was sent on: to the ladder, with what is left of its delay, or to the archive."""
    headers = message.headers
    left = headers.get(LEFT) or 0
    headers["retries"] = (headers.get("retries") or 0) + rejections(headers, app.queue_of(headers["event"]))
    if left > 0:
        _climb(app, message, left)
        return True
    if task.max_retries is not None and headers["retries"] > task.max_retries:
        failure = Failure(
            type="Rejected",
            text=f"{task.name} was rejected, stopped by its time limit or lost with its process, "
            f"{headers['retries']} attempts in all; the log of its worker says more",
        )
        give_up(app, message, {**headers, "retries": headers["retries"] - 1}, failure)
        return True
    if _is_from_the_dead(app, message):
        headers["retries"] += 1
        _climb(app, message, app.given.ladder.first)
        return True
    return False


def _is_from_the_dead(app: Any, message: Any) -> bool:
    """Whether its worker died, as far as a classic queue can tell: it does not count how often that was.

    A quorum queue does, and sends by itself what has killed too many.
    """
    return app.given.queue_type == "classic" and bool(message.delivery_info.get("redelivered"))


def _climb(app: Any, message: Any, delay: float) -> None:
    headers = message.headers
    with as_lost_connection():
        app.climb((fresh(headers), bytes_of(message.body)), headers["event"], delay)


def give_up(app: Any, message: Any, headers: Headers, failure: Failure) -> None:
    """Send a message to the archive, as it came."""
    with as_lost_connection():
        app.archive(fresh(headers), bytes_of(message.body), failure)


@contextmanager
def as_lost_connection() -> Iterator[None]:
    """Celery begins anew after a lost connection, and gets the message again; other errors end the worker."""
    try:
        yield
    except PostroomError as error:
        raise ConnectionError(str(error)) from error


def rejections(headers: Mapping[str, Any], queue: str) -> int:
    """How often this message came back from that queue without an ack, as RabbitMQ tells it."""
    deaths = headers.get("x-death") or ()
    return sum(
        int(death.get("count") or 0)
        for death in deaths
        if death.get("queue") == queue and death.get("reason") in _REJECTED
    )
