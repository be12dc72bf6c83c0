"""A Celery worker of a role: what the matrix says about the worker itself, in Celery's words."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from postroom.role import Role


def arguments(role: Role) -> list[str]:
    """The arguments of `celery worker` for this role."""
    given = ["--queues", ",".join(role.queues), "--concurrency", str(role.concurrency)]
    # Celery counts what is at work into its prefetch, so that holding nothing beside it is once its pool.
    return given if role.prefetch is None else [*given, "--prefetch-multiplier", "1"]


def prepare(app: Any, role: Role) -> list[str]:
    """Have this app's worker be one of this role; the arguments to start it with."""
    given = arguments(role)
    app.postroom_role = role.name
    conf = app.conf
    conf.broker_transport_options = {
        **(conf.broker_transport_options or {}), "order": role.order, "weights": dict(role.weights),
    }  # fmt: skip
    if role.prefetch:
        app.steps["consumer"].add(_holding(role.concurrency + role.prefetch))
    _stop_in_time(role)
    return given


def _holding(count: int) -> type:
    """A part of the worker that sets its prefetch exactly: Celery itself knows only multiples of the pool."""
    from celery import bootsteps

    class Holding(bootsteps.Step):
        def __init__(self, consumer: Any, **kwargs: Any) -> None:
            consumer.initial_prefetch_count = count
            super().__init__(consumer, **kwargs)

    return Holding


def _stop_in_time(role: Role) -> None:
    """A warm shutdown waits for whatever runs; after the role's stop_timeout it is made a cold one."""
    from celery import signals

    def on_stop(**_: Any) -> None:
        timer = threading.Timer(role.stop_timeout / 1_000, os.kill, (os.getpid(), signal.SIGQUIT))
        timer.daemon = True
        timer.start()

    signals.worker_shutting_down.connect(on_stop, weak=False)
