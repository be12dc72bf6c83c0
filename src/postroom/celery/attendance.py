"""A Celery worker shows itself to the room: see `postroom.staff`.

Celery says once that a worker is ready, and hands out its consumer: that knows the queues and the pool as
they are, also after `celery control add_consumer` or an autoscale.
"""

from __future__ import annotations

from typing import Any

import msgspec

from postroom.celery.presence import busy
from postroom.staff import Look, WorkerInfo, this_process

_UID = "postroom.celery.attendance"


def show_ourselves() -> None:
    """From the moment on at which the worker of this process is ready."""
    from celery.signals import worker_ready

    worker_ready.connect(_on_ready, weak=False, dispatch_uid=_UID)


def _on_ready(sender: Any = None, **_: Any) -> None:
    office = getattr(sender.connection.transport, "office", None)
    if office is not None:
        office.attend(_appearance(sender, office))


def _appearance(consumer: Any, office: Any) -> Look:
    from celery import __version__

    seen = this_process(consumer.hostname, door="celery", celery=__version__)
    role = getattr(consumer.app, "postroom_role", "")

    def look() -> WorkerInfo:
        return msgspec.structs.replace(
            seen,
            role=role,
            queues=tuple(consumer.app.amqp.queues.consume_from),
            concurrency=consumer.pool.num_processes,
            busy=busy(),
            ids=tuple(delivery.id for delivery in list(office.held.values())),
        )

    return look
