"""Workers and RabbitMQ are killed, and RabbitMQ closes a channel: every event is handled all the same."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from amqp import Message
from kombu.asynchronous.timer import Timer

from postroom.celery.events import EventsApp, events_app, intake
from postroom.celery.events.declaring import declare
from postroom.celery.events.topology import CRASH_BUDGET
from postroom.errors import EngineUnavailable
from tests.celery.workers import wait_until
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage
from tests.redis.proxy import proxied

pytestmark = pytest.mark.timeout(300)


def test_a_killed_worker_and_a_killed_broker_lose_nothing(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        victim = stage.worker("billing")
        survivor = stage.worker("mailing", "--pool", "solo")
        stage.publish("shop.order.held", 1)
        stage.until(lambda: len(stage.lines("held")) == 2)
        victim.kill()
        rabbit.kill()
        stage.release(1)
        stage.until(lambda: stage.lines("released", "mailing"))
        rabbit.start()
        stage.publish("shop.order.held", 1)  # over a connection that was lost meanwhile
        stage.worker("billing")
        stage.until(lambda: len(stage.lines("released", "billing")) == 2)
        stage.until(lambda: len(stage.lines("released", "mailing")) == 2)
        # What it had done when the broker died came again, and was known.
        stage.until(lambda: "was handled already" in survivor.log())
        assert [line["retries"] for line in stage.lines("held", "mailing")] == [0, 0]
        assert [line["retries"] for line in stage.lines("held", "billing")] == [0, 0, 0], "no attempt"


def test_retries_that_fall_due_while_rabbitmq_is_dead_come_back(rabbit: Rabbit) -> None:
    """Not all behind the rungs is there when they send them on. RabbitMQ tries again, by the setting of the
    how-to soon; without it, in about every second run, that takes three minutes."""
    apps = [laddered(f"late{number}-{secrets.token_hex(4)}", rabbit) for number in range(6)]
    put_on_ladders(rabbit, apps)
    await_events(rabbit, apps, 20)  # so no queue is new when RabbitMQ is killed
    put_on_ladders(rabbit, apps)
    rabbit.kill()
    rabbit.start()  # which takes longer than the longest of these rungs
    await_events(rabbit, apps, 40)


def put_on_ladders(rabbit: Rabbit, apps: list[EventsApp]) -> None:
    """Ten on the rung of a second, and ten on that of two."""
    rungs = [app.names.rung(ttl) for app in apps for ttl in (1_000, 2_000)]
    with rabbit.connect() as connection, connection.channel() as channel:
        for rung in rungs * 10:
            message = Message("{}", content_type="application/json", delivery_mode=2)
            channel.basic_publish_confirm(message, exchange=rung, routing_key="late.happened")


def await_events(rabbit: Rabbit, apps: list[EventsApp], count: int) -> None:
    queues = [app.names.queue("late.happened", None, one=False) for app in apps]
    # At least: what a rung has just passed on when RabbitMQ is killed it may pass on again.
    wait_until(
        lambda: min(map(rabbit.count, queues)) >= count,
        lambda: str({queue: count for queue, count in rabbit.totals().items() if count}),
    )


def laddered(service: str, rabbit: Rabbit) -> EventsApp:
    app = events_app(service, broker_url=rabbit.url)
    app.handler("late.happened", name=f"{service}.work")(lambda: None)
    with rabbit.connect() as connection:
        declare(connection, app.topology)
    return app


@pytest.mark.parametrize(("most", "tries", "archived"), [(1, [1], 0), (0, [], 1)])
def test_an_event_whose_workers_die_again_and_again_has_used_an_attempt(
    rabbit: Rabbit, tmp_path: Path, most: int, tries: list[int], archived: int
) -> None:
    """At a limit of its own RabbitMQ would drop it: by the ladder it would be a loop of dead letters."""
    with Stage(rabbit.url, tmp_path, max_retries=most) as stage:
        assert stage.command("topology").returncode == 0
        names = stage.name("billing") + ".v1"
        stage.publish("shop.order.placed", 1)
        for _ in range(1 + CRASH_BUDGET):
            die_of_one(rabbit, f"{names}.event.shop.order.placed")
        stage.worker("billing", "--pool", "solo")
        stage.until(lambda: len(stage.lines("placed")) == len(tries))
        stage.until(lambda: rabbit.count(f"{names}.archive") == archived)
        stage.publish("shop.order.placed", 2)
        stage.until(lambda: stage.lines("placed", number=2))
        assert [line["retries"] for line in stage.lines("placed", number=1)] == tries


def die_of_one(rabbit: Rabbit, queue: str) -> None:
    """As a worker that has the first event of this queue in its hands, and is killed."""
    with rabbit.connect() as connection:
        channel = connection.channel()
        wait_until(lambda: channel.basic_get(queue), lambda: f"nothing is in {queue}")


def test_what_is_handled_is_acked_before_the_next_one_runs(rabbit: Rabbit, tmp_path: Path) -> None:
    """Also by the solo pool, whose handlers run inside the event loop that sends the acks."""
    with Stage(rabbit.url, tmp_path, worker_prefetch_multiplier=4) as stage:
        worker = stage.worker("billing", "--pool", "solo")
        stage.publish("shop.order.placed", 0)
        stage.until(lambda: stage.lines("placed"))  # its first read is Celery's own, before its loop
        stage.publish("shop.order.held", 1)
        stage.until(lambda: stage.lines("held", number=1))
        stage.publish("shop.order.held", 2)
        stage.release(1)
        stage.until(lambda: stage.lines("held", number=2))
        worker.kill()
        stage.release(2)
        stage.worker("billing", "--pool", "solo")
        stage.until(lambda: stage.lines("released", number=2))
        assert len(stage.lines("held", number=1)) == 1


@contextmanager
def short_patience(rabbit: Rabbit) -> Iterator[None]:
    """Have RabbitMQ close channels that took longer than a second to ack (else half an hour)."""
    setting = "application:set_env(rabbit, {}, {})."
    try:
        rabbit.ctl("eval", setting.format("consumer_timeout", 1_000))
        rabbit.ctl("eval", setting.format("channel_tick_interval", 500))
        yield
    finally:
        rabbit.ctl("eval", setting.format("consumer_timeout", 1_800_000))
        rabbit.ctl("eval", setting.format("channel_tick_interval", 60_000))


def test_a_channel_that_the_broker_closes_is_opened_again(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage, short_patience(rabbit):
        worker = stage.worker("billing", "--pool", "solo")
        stage.publish("shop.order.held", 1)
        stage.until(lambda: stage.lines("held"))
        stage.until(lambda: "acknowledgement on channel" in rabbit.log())
        stage.release(1)
        stage.until(lambda: "was handled already" in worker.log())
        stage.publish("shop.order.placed", 2)
        stage.until(lambda: stage.lines("placed"))
        assert len(stage.lines("held")) == 1


def test_a_worker_whose_broker_came_back_empty_declares_again(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        worker = stage.worker("billing", "--pool", "solo")
        names = stage.name("billing") + ".v1"
        # It says that it is ready before RabbitMQ has noted who consumes, and would tell of a deletion.
        stage.publish("shop.order.placed", 0)
        stage.until(lambda: len(stage.lines("placed")) == 1)
        with rabbit.connect() as connection:
            channel = connection.default_channel
            channel.queue_delete(f"{names}.event.shop.order.placed")
            # RabbitMQ tells whoever consumes it, and the worker begins anew by itself.
            stage.until(lambda: worker.log().count("Connected to") == 2)
            stage.publish("shop.order.placed", 1)
            stage.until(lambda: len(stage.lines("placed")) == 2)
            for queue in ("event.shop.order.placed", "retry.1s", "archive"):
                channel.queue_delete(f"{names}.{queue}")
        rabbit.ctl("close_all_connections", "maintenance")
        stage.until(lambda: worker.log().count("Connected to") >= 3)
        stage.publish("shop.order.placed", 2)
        stage.until(lambda: len(stage.lines("placed")) == 3)
        assert rabbit.count(f"{names}.retry.1s") == rabbit.count(f"{names}.archive") == 0


def test_a_worker_begins_anew_although_its_old_connection_seems_alive(rabbit: Rabbit, tmp_path: Path) -> None:
    """An exclusive queue for control commands, as Celery has it, would belong to that one for minutes."""
    with proxied(rabbit.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}//"
        with Stage(url, tmp_path) as stage:
            same = ("--pool", "solo", "-n", "same@events")
            victim = stage.worker("billing", *same)
            proxy.stall()
            victim.kill()
            stage.worker("billing", *same)
            for number in range(2):  # one of them goes to who seems alive
                stage.publish("shop.order.placed", number)
            stage.until(lambda: stage.lines("placed"))


def test_the_loop_of_a_worker_looks_up_every_second_whether_it_is_to_stop() -> None:
    app = events_app("billing", broker_url="amqp://127.0.0.1:1//")
    parent = SimpleNamespace(app=app, strategies={}, timer=Timer())
    step = intake.Intake(parent)
    step.stop(parent)  # a worker may have to begin anew before it came this far
    step.start(parent)
    pause, tick = next(iter(parent.timer))
    assert (pause or 0) <= 1.0
    step.stop(parent)
    assert tick is None or tick.canceled


def test_what_cannot_be_sent_on_is_a_lost_connection_for_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    app = events_app("billing", broker_url="amqp://127.0.0.1:1//")
    task = app.handler("a.b", name="handler")(lambda: None)

    def away(*_: object) -> None:
        raise EngineUnavailable("away")

    monkeypatch.setattr(app, "climb", away)

    class Message:
        headers = {"event": "a.b", intake.LEFT: 5}  # noqa: RUF012  # a message as Celery hands it over
        body = b"[[], {}, {}]"
        delivery_info: dict[str, object] = {}  # noqa: RUF012  # the same

    with pytest.raises(ConnectionError, match="away"):
        intake._is_elsewhere(task, app, Message())
