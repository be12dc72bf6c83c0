"""Nothing that is asked of RabbitMQ is refused by 4.x: what programs ask, held against its release notes.

No server of that series runs here, so this is by its word (docs/decisions/0013 has the addresses):

4.0   classic queues are not mirrored any more; a quorum queue drops or dead-letters what was delivered 20
      times, unless it says otherwise
4.3   refuses queues that are neither durable nor exclusive, a prefetch for a whole channel (`global`), and
      `x-queue-mode`, and `x-queue-version` 1 (https://github.com/rabbitmq/rabbitmq-server/releases/tag/v4.3.0)
all   a quorum queue is durable, and neither exclusive nor deleted by itself, knows the arguments below, and
      cannot be deleted "if unused" or "if empty" (https://www.rabbitmq.com/docs/quorum-queues)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.celery.workers import REPO
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage
from tests.events.wire import Asked, Wire
from tests.redis.proxy import started

pytestmark = pytest.mark.timeout(300)

_OF_QUORUM = {
    "x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
    "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-single-active-consumer",
    "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl", "x-queue-leader-locator",
}  # fmt: skip


def objections(asked: Asked) -> Iterator[str]:
    """Why 4.x would refuse this, or do something else than meant."""
    if asked.method == "queue.declare" and not asked.passive:
        yield from _to_queue(asked)
    if asked.method == "queue.delete" and (asked.if_unused or asked.if_empty):
        yield "a quorum queue is deleted or not"
    if asked.method == "basic.qos" and vars(asked)["told"]["global"]:
        yield "a prefetch for a whole channel"
    if asked.method == "basic.consume" and set(asked.arguments) - {"x-priority"}:
        yield "an argument of a consumer"


def _to_queue(asked: Asked) -> Iterator[str]:
    given = asked.arguments
    if not asked.durable and not asked.exclusive:
        yield "neither durable nor exclusive"
    if asked.durable and asked.exclusive:
        yield "durable and exclusive"
    if "x-queue-mode" in given or given.get("x-queue-version") == 1 or "x-ha-policy" in given:
        yield "an argument of classic queues that were"
    if given.get("x-queue-type") == "quorum":
        yield from _to_quorum(asked)


def _to_quorum(asked: Asked) -> Iterator[str]:
    given = asked.arguments
    if not asked.durable or asked.exclusive or asked.auto_delete:
        yield "a quorum queue that goes away"
    if unknown := set(given) - _OF_QUORUM:
        yield f"no argument of a quorum queue: {unknown}"
    if given.get("x-overflow") not in (None, "drop-head", "reject-publish"):
        yield "an overflow of classic queues"
    if given.get("x-dead-letter-strategy") == "at-least-once" and given.get("x-overflow") != "reject-publish":
        yield "would be at-most-once"
    # Nobody consumes a rung. What is dead-lettered at a limit, and comes back by the ladder, is a loop.
    if given.get("x-delivery-limit", 20) < 1_000_000 and "retry" not in asked.name:
        yield "dropped after some deliveries"


@pytest.fixture
def wire(rabbit: Rabbit) -> Iterator[Wire]:
    with started(Wire(rabbit.port)) as wire:
        yield wire


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_nothing_that_is_asked_is_refused(
    rabbit: Rabbit, wire: Wire, tmp_path: Path, queue_type: str
) -> None:
    """A worker with all the chatter of Celery, a publisher, a retry, the archive, statistics, an inspect."""
    with Stage(wire.url, tmp_path, queue_type=queue_type) as stage:
        stage.worker("billing", "-E", quiet=False)
        stage.publish("shop.order.late", 1)
        stage.publish("shop.stock.broken", "tea")
        stage.until(lambda: len(stage.lines("late")) == 2)
        stage.until(lambda: rabbit.count(f"{stage.name('billing')}.v1.archive") == 1)
        service = ("--service", "tests.events.service")
        assert stage.command("stats").returncode == 0
        assert stage.postroom("dead", "replay", "-w", "error=broken", "--yes", *service).returncode == 0
        ping = [sys.executable, "-m", "celery", "-A", "tests.events.service", "inspect", "ping"]
        ran = subprocess.run(ping, cwd=REPO, env=stage.environ("billing"), capture_output=True, check=False)
        assert b"pong" in ran.stdout, ran.stderr
    asked = wire.asked
    assert {each.method for each in asked} >= {"queue.declare", "basic.qos", "basic.consume"}
    names = " ".join(each.told["name"] for each in asked if each.method == "queue.declare")
    for part in (".v1.event.", ".v1.retry.1s", "celery.pidbox", "celeryev.", "reader"):
        assert part in names
    wrong = {f"{each}: {reason}" for each in asked for reason in objections(each)}
    assert not wrong


def test_what_4_would_refuse_is_seen() -> None:
    """Each rule has something that it finds."""
    usual = {"name": "q", "passive": False, "durable": True, "exclusive": False, "auto_delete": False}
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}

    def queue(arguments: dict[str, object], **other: bool) -> Asked:
        return Asked("queue.declare", {**usual, **other, "arguments": arguments})

    assert not list(objections(queue(quorum)))
    refused = [
        queue({}, durable=False), queue({}, exclusive=True), queue({"x-queue-mode": "lazy"}),
        queue(quorum | {"x-max-priority": 9}),
        queue(quorum, auto_delete=True), queue(quorum | {"x-delivery-limit": 5}),
        queue(quorum | {"x-overflow": "reject-publish-dlx"}), queue({"x-queue-type": "quorum"}),
        queue(quorum | {"x-dead-letter-strategy": "at-least-once"}),
        Asked("queue.delete", {"if_unused": True}), Asked("basic.qos", {"global": True}),
        Asked("basic.consume", {"arguments": {"x-cancel-on-ha-failover": True}}),
    ]  # fmt: skip
    assert all(len(list(objections(each))) == 1 for each in refused)
