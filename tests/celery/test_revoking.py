"""Tasks that are revoked: while they wait in the store, and while they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from postroom.room import Room
from tests.celery.workers import Opener, pool

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def sender(broker: str) -> Iterator[Celery]:
    """Whoever revokes; in this process, as starting another takes a second."""
    with Celery("sender", broker=broker, set_as_current=False) as app:
        yield app


def test_what_is_revoked_does_not_run_when_it_is_due_and_what_is_terminated_not_again(
    open_shop: Opener, room: Room, sender: Celery, tmp_path: Path
) -> None:
    """Both are acked: a countdown that no worker has seen yet, and a task that a child works on."""
    shop = open_shop()
    worker = shop.worker(*pool("prefork"))
    queue, me = room.queue("shop"), [f"{worker.name}@shop"]
    shop.send("note", "waits", task_id="waits", countdown=3600)
    shop.send("until", str(tmp_path / "never"), "runs", task_id="runs")
    shop.until(lambda: shop.lines("begin", "runs"))
    (waiting,) = queue.find("scheduled").entries
    for id, terminate in (("waits", False), ("runs", True)):
        assert sender.control.revoke(id, terminate=terminate, reply=True, timeout=60, destination=me)
    queue.run_now(waiting.id)
    shop.send("note", "after")  # the pool has its hands again
    shop.until(lambda: shop.lines("note", "after"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 3, "what is revoked is not acked")
    stats = room.engine.stats("shop")
    assert (stats.depth, stats.dead, stats.counters["retried"]) == (0, 0, 0)
    assert (shop.lines("end"), shop.labels("note"), len(shop.lines("begin"))) == ([], ["after"], 1)
    assert "Discarding revoked task: tests.celery.shop.note[waits]" in worker.log()
    assert worker.stop() == 0
