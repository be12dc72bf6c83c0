"""What only RabbitMQ has: a topology that is declared, and confirms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kombu import Connection

from postroom.celery.events import events_app
from postroom.celery.events.declaring import declare
from postroom.errors import Conflict, NotFound
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(300)


def test_the_command_prints_declares_and_explains(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        name = stage.name("billing")
        plan = stage.command("topology", "--dry-run")
        assert plan.returncode == 0, plan.stderr
        assert f"queue     {name}.v1.event.shop.order.placed" in plan.stdout
        assert "20 queues" in plan.stdout  # 12 rungs, 5 events, a group, the archive and what it drops
        assert f"{name}.v1.archive  not declared" in stage.command("stats").stdout
        declared = stage.command("topology", "--json")
        assert declared.returncode == 0, declared.stderr
        assert len(json.loads(declared.stdout)["queues"]) == 20
        stats = stage.command("stats").stdout
        assert f"delayed   {name}.v1.retry.1s  0" in stats
        assert f"archived  {name}.v1.archive  0\nthe archive is 0% full" in stats
        stage.config = {"archive_most": 5}
        refused = stage.command("topology")
        assert refused.returncode == 4
        assert "exists with another x-max-length: there '10000', here '5'" in refused.stderr
        assert "Traceback" not in refused.stderr
        ended = stage.command("worker", "--concurrency", "1")
        assert ended.returncode != 0
        assert "this worker cannot start: queue" in ended.stderr + ended.stdout


def test_a_topology_can_be_declared_again(rabbit: Rabbit) -> None:
    app = events_app("again", broker_url=rabbit.url)
    app.handler("again.#", name="again")(lambda: None)
    with app.connection_for_write() as connection:
        for _ in range(2):
            declare(connection, app.topology)


def test_an_event_that_nobody_is_bound_to_is_counted_or_an_error(rabbit: Rabbit) -> None:
    careless = events_app("careless", broker_url=rabbit.url)
    careless.event("nobody.is.bound")(lambda: None)()
    careful = events_app("careful", broker_url=rabbit.url, unrouted="error")
    event = careful.event("nobody.is.bound")(lambda: None)
    with pytest.raises(NotFound, match=r"nobody\.is\.bound"):
        event()
    with pytest.raises(NotFound), careful.publisher.window():
        for _ in range(3):
            event()
    assert careless.publisher.unrouted == 1
    for app in (careless, careful):
        app.publisher.close()


def test_an_exchange_of_another_kind_is_explained_to_publishers(rabbit: Rabbit) -> None:
    rabbit.ctl("add_vhost", "others")
    rabbit.ctl("set_permissions", "-p", "others", "guest", ".*", ".*", ".*")
    url = rabbit.url.removesuffix("//") + "/others"
    with Connection(url) as connection:
        connection.default_channel.exchange_declare("events", "direct", durable=True, auto_delete=False)
    app = events_app("confused", broker_url=url)
    with pytest.raises(
        Conflict, match=r"exists with another type: there 'direct', here 'topic'.*virtual host"
    ):
        app.event("a.b")(lambda: None)()


def test_a_window_has_every_event_confirmed_at_its_end(rabbit: Rabbit) -> None:
    app = events_app("windowed", broker_url=rabbit.url)
    event = app.event("windowed.number.said")(lambda number: None)
    app.handler("windowed.#", name="windowed.handler")(lambda number: None)
    with app.connection_for_write() as connection:
        declare(connection, app.topology)
    with app.publisher.window():
        for number in range(1_000):
            event(number)
    assert rabbit.count("windowed.v1.event.windowed.#") == 1_000
    app.publisher.close()
