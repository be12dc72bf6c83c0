"""With `priority_zero_is_highest` a task sees the number it was sent with, and its retry keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

import postroom
from postroom.model import State
from tests.celery.workers import Shop

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("zero_is_highest", [True, False])
def test_a_retry_has_the_priority_of_its_task(tmp_path: Path, zero_is_highest: bool) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    options = {"priority_zero_is_highest": zero_is_highest}
    with Shop(f"postroom+{url}", tmp_path, broker_transport_options=options) as shop:
        worker = shop.worker("--pool", "solo")
        shop.python("flaky.apply_async(['late', 1], {'countdown': 3600}, priority=2)")
        shop.until(lambda: shop.labels("try"))
        assert worker.stop() == 0
    with postroom.open(url) as room:
        (entry,) = room.queue("shop").find(State.SCHEDULED).entries
        assert entry.message.priority == (253 if zero_is_highest else 2)
