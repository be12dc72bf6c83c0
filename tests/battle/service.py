"""A service of the battle on RabbitMQ, made from its environment: it handles every event of every queue.

BATTLE_SERVICE  which of `SERVICES` it is
BATTLE_BROKER   the URL of RabbitMQ; the other names are those of `Bench.here`
"""

from __future__ import annotations

import os
from typing import Any

from celery.exceptions import Retry
from celery.signals import worker_ready

from postroom.celery.events import EventsApp, events_app
from tests.battle.work import QUEUES, Bench


def event_of(queue: str) -> str:
    return f"battle.{queue}.happened"


def made(service: str, broker: str) -> EventsApp:
    """The app of a service, with its handler."""
    # As many as it has hands: whatever a worker holds when its connection is lost goes to another one.
    settings = {"worker_prefetch_multiplier": 1, "worker_hijack_root_logger": False}
    app = events_app(service, broker_url=broker, **settings)
    app.handler(*map(event_of, QUEUES), name=f"{service}.work", bind=True)(work)
    return app


def work(self: Any, label: str, seconds: float, later: float) -> None:
    """Work; what is meant for later comes back by the ladder, and is worked on then."""
    label = f"{label}.{self.app.service}"
    if not later or self.request.retries:
        bench.work(label, seconds)
        return
    bench.note("begin", label)
    try:
        self.retry(countdown=later)
    except Retry:
        bench.note("failed", label)  # its copy is confirmed; this one is acked after this line
        raise


if "BATTLE_SERVICE" in os.environ:
    bench = Bench.here()
    app = made(os.environ["BATTLE_SERVICE"], os.environ["BATTLE_BROKER"])

    @worker_ready.connect
    def say_ready(**_: Any) -> None:
        bench.note("ready")
        bench.watch()
