"""An attempt that fails: when the next one is, and what it leaves behind in the process that made it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from celery.app.trace import build_tracer
from pytest import MonkeyPatch

from postroom.celery.events import EventsApp, events_app


class Order:
    """What a handler has in its hands when it fails."""


def test_a_failed_attempt_is_let_go_without_the_collector(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(EventsApp, "climb", lambda *_: None)
    app = events_app("billing", broker_url="amqp://")
    held: list[weakref.ref[Order]] = []

    @app.handler("shop.order.placed", name="fails")
    def fails() -> None:
        order = Order()
        held.append(weakref.ref(order))
        raise ValueError("it fails")

    told: dict[str, Any] = {"event": "shop.order.placed", "event_id": "e", "retries": 0}
    gc.collect()
    gc.disable()
    try:
        traced = build_tracer("fails", app.tasks["fails"], app=app)("id", (), {}, told)
        assert traced.info.state == "RETRY"
        assert [each() for each in held] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 4, 8]),
        ({"retry_backoff": 3, "retry_backoff_max": 10}, [3, 6, 10, 10]),
        ({"default_retry_delay": 7}, [7, 7, 7, 7]),
    ],
)
def test_a_retry_that_says_no_time_has_that_of_its_handler(
    monkeypatch: MonkeyPatch, options: dict[str, Any], expected: list[int]
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(EventsApp, "climb", lambda *told: delays.append(told[-1] / 1_000))
    app = events_app("billing", broker_url="amqp://")

    @app.handler("shop.order.placed", name="asks", bind=True, **options)
    def asks(self: Any) -> None:
        raise self.retry()

    for retries in range(4):
        told: dict[str, Any] = {"event": "shop.order.placed", "event_id": "e", "retries": retries}
        assert build_tracer("asks", app.tasks["asks"], app=app)("id", (), {}, told).info.state == "RETRY"
    assert delays == expected
