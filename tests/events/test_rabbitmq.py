"""What only RabbitMQ has: a topology that is declared, and confirms."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kombu import Connection

from postroom.celery.events import Event, EventsApp, events_app
from postroom.celery.events.declaring import declare
from postroom.errors import Conflict, NotFound
from tests.celery.workers import WorkerProcess
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage
from tests.redis.proxy import proxied

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


def test_the_command_starts_a_worker_without_chatter(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        command = [sys.executable, "-m", "postroom.cli", "events", "worker", "tests.events.service"]
        options = ["--loglevel", "INFO", "--pool", "solo", "-n", "quiet@events"]
        log = tmp_path / "quiet.log"
        worker = WorkerProcess([*command, *options], stage.environ("billing"), log, "quiet").until_ready()
        stage.workers.append(worker)
        stage.publish("shop.order.placed", 1)
        stage.until(lambda: stage.lines("placed"))
        assert "mingle" not in worker.log()
        assert "postroom events worker" not in worker.log(), "it would warn of gossip and heartbeat, too"


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


def saying(rabbit: Rabbit, name: str) -> tuple[EventsApp, Event[[int]]]:
    """A service that says numbers to itself; its queues are there, and no worker."""
    app = events_app(name, broker_url=rabbit.url)

    @app.event(f"{name}.number.said")
    def said(number: int) -> None: ...

    app.handler(f"{name}.#", name=f"{name}.handler")(lambda number: None)
    with app.connection_for_write() as connection:
        declare(connection, app.topology)
    return app, said


def test_a_publish_returns_when_it_is_confirmed_and_not_before(rabbit: Rabbit) -> None:
    app, event = saying(rabbit, "confirming")
    with proxied(rabbit.port) as proxy, ThreadPoolExecutor(1) as pool:
        app.conf.broker_url = app.conf.broker_write_url = f"amqp://guest:guest@127.0.0.1:{proxy.port}//"
        event(0)
        assert rabbit.count(app.queue_of("confirming.number.said")) == 1, "there when the call is over"
        proxy.stall()
        publishing = pool.submit(event, 1)
        with pytest.raises(TimeoutError):
            publishing.result(1)
        proxy.cut()
        proxy.mend()
        publishing.result(60)
        app.publisher.close()
    assert rabbit.count(app.queue_of("confirming.number.said")) == 2


def test_what_was_not_confirmed_is_sent_again_and_counted(rabbit: Rabbit) -> None:
    app, event = saying(rabbit, "resending")
    with proxied(rabbit.port) as proxy:
        app.conf.broker_url = app.conf.broker_write_url = f"amqp://guest:guest@127.0.0.1:{proxy.port}//"
        event(0)
        with app.publisher.window():
            proxy.stall()
            for number in range(1, 100):
                event(number)
            proxy.cut()
            proxy.mend()
        assert app.publisher.resent == 99
        app.publisher.close()
    queue = app.queue_of("resending.number.said")
    assert [json.loads(message.body)[0][0] for message in rabbit.peek(queue)] == list(range(100))


def test_a_window_has_every_event_confirmed_at_its_end(rabbit: Rabbit) -> None:
    app, event = saying(rabbit, "windowed")
    with app.publisher.window():
        for number in range(1_000):
            event(number)
    assert rabbit.count("windowed.v1.event.windowed.#") == 1_000
    app.publisher.close()
