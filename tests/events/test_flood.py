"""A flood of failing events, of a size for `make test`; `make oldest` has the one of 10,000."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from tests.events.flood import flood
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage


@pytest.mark.timeout(600)
def test_a_flood_of_failing_events_stays_with_its_service(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        found = flood(stage, rabbit, events=150, rounds=2)
    assert found.others == Counter(range(150)), "another service has each event once"
    # The pauses double: whatever the machine does, nobody tries more often than this.
    most = 1 + int(math.log2(found.seconds + 1))
    assert max(found.tries.values()) <= most
    assert set(found.tries) == set(range(150))
    assert found.p95 < 60, "healthy events go on"
    assert found.worker_growth < 400
    assert found.broker_growth < 400
