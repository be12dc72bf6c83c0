"""What an attempt that failed leaves behind in the process that made it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

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
