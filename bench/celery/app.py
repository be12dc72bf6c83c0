"""The Celery app that is measured: what it does is the same on every transport."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu.pools
from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

from postroom.celery import close_offices  # and by that, kombu knows postroom+…://
from postroom.celery.events import events_app

TRANSPORT_ALIASES["null"] = "bench.celery.null:Transport"

#: Whom a broker URL is for: ours, kombu's own for Redis, and one that has no broker at all.
OURS, STOCK, NULL = "Postroom", "stock", "null transport"
#: The last, but it asks a Redis that is near for a PONG before it hands on what the prefetch takes.
PINGED = "null transport, a PING a batch"
#: On RabbitMQ: a service with one handler, and a Celery app with the same queue type, late acks and prefetch.
EVENTS, PLAIN = "events", "plain Celery"

EVENT = "bench.thing.happened"

#: How late each delayed task began (milliseconds), in the process that ran them.
lateness: list[float] = []
#: When the first task began, by the clock of the wall.
first: list[float] = []


def broker(whose: str, url: str) -> str:
    """The broker URL of one of them on this Redis."""
    return {OURS: f"postroom+{url}", NULL: "null://", PINGED: url.replace("redis", "null")}.get(whose, url)


@contextmanager
def opened(whose: str, url: str) -> Iterator[Any]:
    """An app to publish with; whatever it connected is closed at the end."""
    app = make_app(whose, url)
    try:
        yield app
    finally:
        app.close()
        kombu.pools.reset()
        close_offices()


def make_app(whose: str, url: str, **settings: Any) -> Celery:
    """An app without a result backend; nothing of Celery is switched off but results and a late connect."""
    if whose == EVENTS:
        app: Celery = events_app("bench", broker_url=url)
        app.handler(EVENT, name="bench.noop")(noop)
    else:
        app = Celery("bench", broker=broker(whose, url), set_as_current=False)
        app.task(noop, name="bench.noop")
    if whose == PLAIN:
        settings = {"task_default_queue_type": "quorum", **settings}
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        **settings,
    )
    app.task(late, name="bench.late")
    return app


def noop(*args: Any) -> None:
    if not first:
        first.append(time.time())


def late(due: float) -> None:
    lateness.append((time.time() - due) * 1_000)
