"""The other choices than the usual ones: classic queues, one for all, no archive, a fine and long ladder.

One service with one worker for all of them, but for the one that is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import NotFound
from kombu import Queue

from postroom.celery.events import events_app
from postroom.celery.events.starting import _add_queues
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(300)
CHOICES: dict[str, Any] = {"queue_type": "classic", "archive": False, "fine": True, "rungs": 21,
                           "queues": "one",
                           "task_queues": {"own": {"exchange": "own", "binding_key": "own"}}}  # fmt: skip


@pytest.fixture(scope="module")
def stage(rabbit: Rabbit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(rabbit.url, tmp_path_factory.mktemp("choices"), **CHOICES) as stage:
        stage.worker("billing")
        yield stage


def test_a_fine_ladder_has_delays_below_a_second(stage: Stage) -> None:
    id = stage.publish("shop.order.late", 0.3)
    stage.until(lambda: len(stage.lines("late", id=id)) == 2)
    first, second = stage.lines("late", id=id)
    assert second["at"] - first["at"] >= 0.25
    assert second["rungs"] == ["256ms", "64ms"], "320 ms, rounded up, and no other rung"


def test_a_long_ladder_has_more_than_23_days_in_one_round(stage: Stage, rabbit: Rabbit) -> None:
    stage.publish("shop.order.late", 24 * 24 * 3_600)
    queue = stage.name("billing") + ".v1.retry.1048576s"
    stage.until(lambda: rabbit.count(queue) == 1)
    (letter,) = rabbit.peek(queue)
    assert sum(name.startswith("postroom-rung-") for name in letter.headers) == 7
    assert "postroom-left" not in letter.headers
    assert f"delayed   {queue}  1\n" in stage.command("stats").stdout


def test_one_queue_brings_all_events(stage: Stage, rabbit: Rabbit) -> None:
    names = stage.name("billing") + ".v1"
    assert rabbit.count(f"{names}.all") == rabbit.count(f"{names}.group.stock") == 0
    with pytest.raises(NotFound):
        rabbit.count(f"{names}.event.shop.order.placed")
    stage.publish("shop.order.placed", 5)
    stage.publish("shop.stock.new", "cup")
    stage.until(lambda: stage.lines("placed", number=5) and stage.lines("count", item="cup"))


def test_without_an_archive_a_line_in_the_log_is_all(stage: Stage) -> None:
    stage.publish("shop.stock.broken", "tea")
    stage.until(lambda: "failed for good after 1 retries, and is dropped" in stage.workers[0].log())
    stage.publish("shop.order.placed", 1)
    stage.until(lambda: stage.lines("placed"))


def test_own_queues_are_kept(stage: Stage) -> None:
    stage.shop.send_task("plain", (1,), queue=Queue("own", routing_key="own"))
    stage.shop.send_task("plain", (2,), queue=stage.name("billing"))
    stage.until(lambda: len(stage.lines("plain")) == 2)


def test_own_queues_are_kept_also_as_a_list() -> None:
    own = Queue("own", routing_key="own")
    app = events_app("billing", broker_url="amqp://127.0.0.1:1//", task_queues=[own])

    @app.handler("a.b")
    def handler() -> None: ...

    _add_queues(app)
    # Behind them that of plain tasks, if another app of this process has any: Celery shares them.
    assert list(app.conf.task_queues)[:2] == ["own", "billing.v1.event.a.b"]
    assert app.conf.task_queues["own"] is own


def test_on_classic_queues_a_killed_worker_is_an_attempt(rabbit: Rabbit, tmp_path: Path) -> None:
    """They do not count how often a message was given out: without that, one could kill workers for good."""
    with Stage(rabbit.url, tmp_path, queue_type="classic") as stage:
        first = stage.worker("billing")
        stage.publish("shop.order.held", 1)
        stage.until(lambda: stage.lines("held"))
        first.kill()
        stage.release(1)
        stage.worker("billing")
        stage.until(lambda: stage.lines("released"))
        assert [line["retries"] for line in stage.lines("held")] == [0, 1]


def test_a_delay_longer_than_the_ladder_goes_round_again(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path, rungs=1) as stage:
        stage.worker("billing")
        stage.publish("shop.order.late", 3)
        stage.until(lambda: len(stage.lines("late")) == 2)
        first, second = stage.lines("late")
        assert second["at"] - first["at"] >= 2.95
