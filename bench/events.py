"""Events on RabbitMQ beside what Celery and kombu do there: publishing with confirms, and handling.

One node for all rounds, as a service has it. Bodies have 200 bytes; queues are quorum queues on both sides.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from kombu import Connection

from bench.celery.app import EVENT, EVENTS, PLAIN, opened
from bench.celery.workers import celery_worker
from bench.measure import Case, rate
from bench.stage import BODY, Stage
from postroom.celery.events.declaring import declare
from tests.events.rabbit import Rabbit, running

_PUBLISH, _HANDLE = "Events on RabbitMQ: publish", "Events on RabbitMQ: handled"


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":  # beside the other measurements of Celery
        return []

    @cache
    def node() -> Rabbit:
        return stage.kept.enter_context(running())

    return [_publishing(stage, node), _handling(stage, node)]


def _publishing(stage: Stage, node: Any) -> Case:
    """The same messages into the same queue, each confirmed when the call or the window ends."""
    turn = itertools.count()
    figures = (
        stage.figure(f"{_PUBLISH}, in a window", "/s"),
        stage.figure(f"{_PUBLISH}, kombu's confirm for each", "/s"),
        stage.figure(f"{_PUBLISH}, window ÷ kombu", "×"),
    )

    def trial() -> list[float]:
        count = stage.size(3_000, 300)
        with opened(EVENTS, node().url) as app:
            _declare(app)
            ways = [lambda: _in_a_window(app, count), lambda: _by_kombu(app, count)]
            # Whoever begins changes.
            order = [0, 1] if next(turn) % 2 else [1, 0]
            rates = {which: rate(count, ways[which]) for which in order}
            _purge(app)
            app.publisher.close()
        return [rates[0], rates[1], rates[0] / rates[1]]

    return Case("events: publish", figures, trial, prepare=node)


def _handling(stage: Stage, node: Any) -> Case:
    """A solo worker of each that drains no-ops.

    Both have persistent JSON messages of the same arguments in a quorum queue, late acks, results off, and
    four messages in their hands at a time. A service also counts attempts, knows what it has handled, and
    its queue sends on what is rejected.
    """
    turn = itertools.count()
    figures = (
        stage.figure(f"{_HANDLE}, by a service", "/s"),
        stage.figure(f"{_HANDLE}, plain Celery", "/s"),
        stage.figure(f"{_HANDLE}, service ÷ plain Celery", "×"),
        stage.figure(f"{_HANDLE}, processor time of a service", "µs"),
        stage.figure(f"{_HANDLE}, processor time of plain Celery", "µs"),
    )

    def trial() -> list[float]:
        count = stage.size(3_000, 300)
        order = [EVENTS, PLAIN] if next(turn) % 2 else [PLAIN, EVENTS]
        said = {whose: _drained(whose, node().url, count) for whose in order}
        rates = [said[whose]["rate"] for whose in (EVENTS, PLAIN)]
        spent = [said[whose]["cpu"] * 1e6 for whose in (EVENTS, PLAIN)]
        return [*rates, rates[0] / rates[1], *spent]

    return Case("events: handle", figures, trial, prepare=node)


def _drained(whose: str, url: str, count: int) -> dict[str, Any]:
    """What its worker says; see `bench.celery.worker`."""
    with opened(whose, url) as app:
        if whose == EVENTS:
            _declare(app)
            _in_a_window(app, count)
            app.publisher.close()
        else:
            for _ in range(count):
                app.send_task("bench.noop", (BODY,))
    # Names of their own: the two declare Celery's queue for control commands differently.
    options = ("--pool", "solo", "--hostname", f"{whose.partition(' ')[0]}@bench")
    with celery_worker(whose, url, *options, bench_count=count) as worker:
        worker.next()
        return worker.next()


def _in_a_window(app: Any, count: int) -> None:
    event = app.declared.get(EVENT) or app.event(EVENT)(_anything)
    with app.publisher.window():
        for _ in range(count):
            event(BODY)


def _anything(body: Any) -> None:
    """An event that checks nothing."""


def _by_kombu(app: Any, count: int) -> None:
    options = {"confirm_publish": True}
    with Connection(app.conf.broker_url, transport_options=options) as connection:
        producer = connection.Producer(auto_declare=False)
        for number in range(count):
            headers = {"task": EVENT, "id": str(number)}
            producer.publish(
                [[BODY], {}, {}], exchange="events", routing_key=EVENT, headers=headers, serializer="json"
            )


def _declare(app: Any) -> None:
    with app.connection_for_write() as connection:
        declare(connection, app.topology)


def _purge(app: Any) -> None:
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge(app.queue_of(EVENT))
