"""An archive that fills up is told of before it is full, and whatever it drops is counted."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import amqp
import pytest
from celery.contrib.testing.worker import start_worker
from prometheus_client import CollectorRegistry, generate_latest

from postroom.celery.events import EventsApp, archive, events_app, watching
from postroom.celery.events.metrics import EventsCollector
from tests.celery.workers import REPO, wait_until
from tests.events.rabbit import Rabbit
from tests.events.test_archive import die, service

pytestmark = pytest.mark.timeout(300)


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    return [record for record in caplog.records if getattr(record, "event", "") == event]


def metrics(app: EventsApp) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EventsCollector(app))
    return generate_latest(registry).decode()


def test_an_archive_that_fills_up_warns_and_then_counts_what_it_drops(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    app = service(rabbit, "filling", archive_most=10)
    for number in range(7):
        die(app, number)
    app.watch.look()
    assert not told(caplog, "events.archive_filling")
    die(app, 7)
    for _ in range(2):
        app.watch.look()
    (warning,) = told(caplog, "events.archive_filling")
    assert (warning.archived, warning.filled) == (8, 0.8)
    dropped = [die(app, number) for number in range(8, 13)]
    assert len(dropped) == 5
    wait_until(lambda: rabbit.count(app.names.lost) == 3, lambda: "three letters were dropped")
    app.watch.look()
    (lost,) = told(caplog, "events.archive_lost")
    assert (lost.count, lost.reasons, len(lost.ids)) == (3, {"maxlen": 3}, 3)
    app.watch.look()
    assert app.watch.lost == {"maxlen": 3}, "each is told once"
    text = metrics(app)
    assert 'postroom_events_archive_lost_total{reason="maxlen",service="filling"} 3.0' in text
    assert 'postroom_events_archive_lost_total{reason="expired",service="filling"} 0.0' in text
    assert 'postroom_events_archived{service="filling"} 10.0' in text
    assert 'postroom_events_archive_filled_ratio{service="filling"} 1.0' in text
    queue = app.handlers.queue_of("shop.order.placed")
    assert f'postroom_events_ready{{queue="{queue}",service="filling"}} 0.0' in text
    assert 'postroom_events_delayed{rung="filling.v1.retry.1s",service="filling"} 0.0' in text
    page = (REPO / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    told_there = set(re.findall(r"^\| `(postroom_events_\w+)` \|", page, re.MULTILINE))
    assert told_there == set(re.findall(r"^(postroom_events_\w+)\{", text, re.MULTILINE))
    app.publisher.close()


def test_an_archive_lets_go_of_what_is_old_and_tells(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    app = service(rabbit, "forgetting", archive_retention="1s")
    die(app, 1)
    wait_until(lambda: rabbit.count(app.names.lost) == 1, lambda: "it is kept for longer")
    assert rabbit.count(app.names.archive) == 0
    app.watch.look()
    (lost,) = told(caplog, "events.archive_lost")
    assert (lost.count, lost.reasons) == (1, {"expired": 1})
    assert 'postroom_events_archive_lost_total{reason="expired",service="forgetting"} 1.0' in metrics(app)
    app.publisher.close()


def test_an_archive_that_grows_old_warns_too(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    app = service(rabbit, "aging", archive_retention="10h")
    die(app, 1)
    head = rabbit.peek(app.names.archive)[0]
    with archive.opened(app, f"sqlite:///{tmp_path}/notes.db") as dead:
        dead.discard([dead.find().letters[0].id])
    old = (datetime.now(UTC) - timedelta(hours=9)).isoformat()
    with rabbit.connect() as connection:
        channel = connection.default_channel
        headers = {**head.headers, "archived_at": old}
        message = channel.prepare_message(head.body, 0, "application/json", "utf-8", headers)
        channel.basic_publish(message, exchange=app.names.archive)
    wait_until(lambda: rabbit.count(app.names.archive) == 1, lambda: "the old letter is there")
    app.watch.look()
    (warning,) = told(caplog, "events.archive_filling")
    assert warning.filled == pytest.approx(0.9, abs=0.01)
    wait_until(lambda: rabbit.count(app.names.archive) == 1, lambda: "a look takes nothing")
    app.publisher.close()


@pytest.fixture
def logging_kept() -> Iterator[None]:
    """A worker inside of this process sets up its logging, for whoever comes after it as well."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.usefixtures("logging_kept")
def test_a_queue_that_is_gone_is_consumed_anew_by_who_was_not_told(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_EVERY", 0.5)
    # A client that does not ask for it is never told.
    monkeypatch.setattr(amqp.Connection, "negotiate_capabilities", {})
    app = events_app("untold", broker_url=rabbit.url, archive=False)
    got: list[int] = []
    said = app.event("untold.number.said")(lambda number: None)

    @app.handler("untold.number.said")
    def note(number: int) -> None:
        got.append(number)

    def arrives(number: int) -> bool:
        said(number)
        return number in got

    with start_worker(app, perform_ping_check=False, shutdown_timeout=60):
        wait_until(lambda: arrives(1), lambda: "nothing arrives")
        with rabbit.connect() as connection:
            connection.default_channel.queue_delete(app.queue_of("untold.number.said"))
        wait_until(lambda: arrives(2), lambda: "nothing arrives any more")
    app.publisher.close()


def test_metrics_say_when_the_broker_is_away(rabbit: Rabbit) -> None:
    app = service(rabbit, "away")
    app.conf.broker_url = app.conf.broker_read_url = "amqp://127.0.0.1:1//"
    assert 'postroom_events_broker_up{service="away"} 0.0' in metrics(app)
