"""A Celery worker shows itself to the room, and hears what it is told there: see `postroom.staff`.

Celery says once that a worker is ready, and hands out its consumer: that knows the queues and the pool as
they are, also after `celery control add_consumer` or an autoscale.
"""

from __future__ import annotations

from typing import Any

import msgspec

from postroom.celery.presence import busy, is_stopping, stop_softly
from postroom.staff import Word, WorkerInfo, this_process

_UID = "postroom.celery.attendance"
_STATES = {"quiet": "quiet", "resume": "working", "stop": "stopping"}


def show_ourselves() -> None:
    """From the moment on at which the worker of this process is ready."""
    from celery.signals import worker_ready

    worker_ready.connect(_on_ready, weak=False, dispatch_uid=_UID)


def _on_ready(sender: Any = None, **_: Any) -> None:
    office = getattr(sender.connection.transport, "office", None)
    if office is not None:
        worker = _Worker(sender, office)
        office.attend(worker.look, worker.hear)


class _Worker:
    """The Celery worker of this process, by its consumer."""

    def __init__(self, consumer: Any, office: Any) -> None:
        from celery import __version__

        self._consumer, self._office = consumer, office
        self._seen = this_process(consumer.hostname, door="celery", celery=__version__)
        #: What it was told last, and what it consumed when that was to be quiet.
        self._told: Word = "resume"
        self._left: tuple[str, ...] = ()

    def look(self) -> WorkerInfo:
        return msgspec.structs.replace(
            self._seen,
            role=getattr(self._consumer.app, "postroom_role", ""),
            state="stopping" if is_stopping() else _STATES[self._told],
            queues=self._left or self._consumed(),
            concurrency=_hands(self._consumer.pool),
            busy=busy(),
            breakers=self._office.allowance.breakers,
            runs=self._office.lately.told(),
            reads=self._office.fanout.places(),
            ids=tuple(delivery.id for delivery in list(self._office.held.values())),
        )

    def hear(self, word: Word) -> None:
        """Do what the room says, by the thread in which the consumer lives."""
        self._told = word
        if word == "quiet":
            self._left = self._left or self._consumed()
        self._consumer.call_soon({"quiet": self._be_quiet, "resume": self._resume, "stop": self._stop}[word])

    def _consumed(self) -> tuple[str, ...]:
        return tuple(self._consumer.app.amqp.queues.consume_from)

    def _be_quiet(self) -> None:
        """As `celery control cancel_consumer` of every queue. What the worker has fetched it still does."""
        for queue in self._consumed():
            self._consumer.cancel_task_queue(queue)

    def _resume(self) -> None:
        for queue in self._left:
            self._consumer.add_task_queue(queue)
        self._left = ()

    def _stop(self) -> None:
        """As by SIGTERM: warm. Who counts how long a stop takes is told of it, as then."""
        from celery.signals import worker_shutting_down

        worker_shutting_down.send(sender=self._consumer.hostname, sig="SIGTERM", how="Warm", exitcode=0)
        stop_softly()


def _hands(pool: Any) -> int:
    """How many tasks a pool works on at once. Of greenlets Celery before 5.7 counts only those at work."""
    hands: int = pool.limit if pool.is_green else pool.num_processes
    return hands
