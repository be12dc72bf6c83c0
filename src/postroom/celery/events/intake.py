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

from postroom.celery.events.envelope import Envelope, Headers, bytes_of, complete, fresh
from postroom.celery.events.publisher import Outgoing
from postroom.celery.events.topology import CRASH_BUDGET
from postroom.errors import PostroomError
from postroom.model import Failure

log: logging.Logger = logging.getLogger(__name__)

#: How long the event loop of a worker sleeps at most (s).
_TICK = 1.0
#: What is left of a delay that is longer than the ladder (ms).
LEFT = "postroom-left"
#: Names whose strategy is remembered.
_MOST = 4_096


class Strategies(dict[str, Any]):
    """Celery's strategies by name of task, and one for every event that is no name of a task."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(consumer.strategies)
        self._consumer = consumer

    def __missing__(self, name: str) -> Any:
        app = self._consumer.app
        handlers = app.handlers_of(name)
        if not (app.on_rabbitmq or handlers):
            raise KeyError(name)
        strategy = self._for_one(handlers[0]) if len(handlers) == 1 else self._for_all(name, handlers)
        if handlers and len(self) < _MOST:
            self[name] = strategy
        return strategy

    def _for_one(self, handler: str) -> Any:
        run = self[handler]

        def hand_on(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
            headers = message.headers
            headers["event"] = headers.get("event") or headers["task"]
            headers["task"] = handler
            run(message, body, ack, reject, callbacks)

        return hand_on

    def _for_all(self, name: str, handlers: list[str]) -> Any:
        app = self._consumer.app

        def hand_on(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
            complete(message.headers)
            if handlers:
                self._split(handlers, message)
            else:
                failure = Failure(type="NoHandler", text=f"nothing in {app.service} handles {name}")
                give_up(app, message, message.headers, failure)
            ack(log, self._consumer.connection_errors)

        return hand_on

    def _split(self, handlers: list[str], message: Any) -> None:
        app, headers = self._consumer.app, message.headers
        envelope = Envelope.read(headers)
        # By its own name: what is rejected later finds its way back by that, and by no name of a queue.
        event, queue = envelope.event, app.queue_of(envelope.event)
        exchange, key = (app.names.recover, event) if app.on_rabbitmq else ("", queue)
        with as_lost_connection(), app.publisher.window():
            for handler in handlers:
                copy = envelope.headers(task=handler, retries=headers.get("retries") or 0)
                app.publisher.publish(Outgoing(exchange, key, copy, bytes_of(message.body)))


def _nothing() -> None:
    """What a tick does."""


class Intake(bootsteps.StartStopStep):
    """Have this worker know events. See "Extensions and Bootsteps" in Celery's documentation."""

    requires: tuple[str, ...] = ("celery.worker.consumer.tasks:Tasks",)
    _tick: Any = None

    def start(self, parent: Any) -> None:
        parent.strategies = Strategies(parent)
        # An event loop with nothing to read sleeps until its next timer, and looks only then whether it
        # was told to stop.
        self._tick = parent.timer.call_repeatedly(_TICK, _nothing)

    def stop(self, parent: Any) -> None:
        if self._tick is not None:  # a worker may have to begin anew before it came this far
            self._tick.cancel()


def receive(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Any:
    """The strategy of a handler: Celery's, for what is to run now."""
    run, on_rabbitmq = celerys.default(task, app, consumer, **kwargs), app.on_rabbitmq

    def received(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        complete(message.headers)
        if on_rabbitmq and _is_elsewhere(task, app, message):
            ack(log, consumer.connection_errors)
        else:
            run(message, body, ack, reject, callbacks)

    return received


def _is_elsewhere(task: Any, app: Any, message: Any) -> bool:
    """Whether the message was sent on: to the ladder, with what is left of its delay, or to the archive."""
    headers = message.headers
    headers["retries"] = headers.get("retries") or 0
    if "x-death" in headers:
        headers["retries"] += rejections(headers, app.queue_of(headers["event"]))
    if (left := headers.get(LEFT) or 0) > 0:
        _climb(app, message, left)
        return True
    was_lost = _is_from_the_dead(app, message)
    headers["retries"] += was_lost
    if task.max_retries is not None and headers["retries"] > task.max_retries:
        failure = _failure(task, headers["retries"], was_lost=was_lost)
        give_up(app, message, {**headers, "retries": headers["retries"] - 1}, failure)
        return True
    if was_lost:
        _climb(app, message, app.given.ladder.first)
    return was_lost


def _failure(task: Any, attempts: int, *, was_lost: bool) -> Failure:
    """What is known of an attempt of which nobody could tell any more."""
    kind, what = ("WorkerLost", "was lost with its worker") if was_lost else ("Rejected", "was rejected")
    text = f"{task.name} {what}, {attempts} attempts in all; the logs of the workers say more"
    return Failure(type=kind, text=text)


def _is_from_the_dead(app: Any, message: Any) -> bool:
    """Whether its workers died of it, or lost their connections: more often than is borne without an attempt.

    A quorum queue counts how often that was. A classic one does not, so there the first time is enough.
    """
    if app.given.queue_type == "classic":
        return bool(message.delivery_info.get("redelivered"))
    return bool((message.headers.get("x-delivery-count") or 0) > CRASH_BUDGET)


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
    """How often this message was rejected in that queue, as RabbitMQ tells it."""
    deaths = headers.get("x-death") or ()
    return sum(
        int(death.get("count") or 0)
        for death in deaths
        if death.get("queue") == queue and death.get("reason") == "rejected"
    )
