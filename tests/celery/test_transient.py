"""Queues that go by themselves, and who finds those whose users did not."""

from __future__ import annotations

import pytest

from postroom.celery.exchanges import Exchanges
from postroom.celery.transient import Collector, TransientQueues
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.testing import ManualClock

SPAN = 10_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Engine:
    return MemoryEngine(clock)


def process(engine: Engine) -> TransientQueues:
    """What one process has of them."""
    return TransientQueues(engine, Exchanges(engine.records), lambda: None)


def use(transients: TransientQueues, *queues: str) -> None:
    for queue in queues:
        transients.expect(queue, SPAN)
        transients.ensure(queue)


def noted(engine: Engine) -> list[str]:
    return [note.key for note in engine.records.list("celery.transient", limit=1_000)]


def test_what_was_left_behind_is_found_behind_any_number_in_use(engine: Engine, clock: ManualClock) -> None:
    killed, lives, looks = (process(engine) for _ in range(3))
    use(killed, "zzz")
    clock.advance(SPAN)
    use(lives, *(f"in-use-{n:04}" for n in range(1_000)))
    assert [looks.collect() for _ in range(3)] == [0, 1, 0]
    assert len(noted(engine)) == 1_000
    assert "zzz" not in noted(engine)


def test_a_user_that_signs_again_after_an_outage_keeps_its_queue(engine: Engine, clock: ManualClock) -> None:
    lives, looks = process(engine), process(engine)
    use(lives, "reply")
    clock.advance(SPAN)
    assert looks.collect() == 0
    lives._sign("reply")
    assert [looks.collect() for _ in range(3)] == [0, 0, 0]
    assert noted(engine) == ["reply"]


def test_a_user_that_was_silent_for_too_long_is_noted_again(engine: Engine, clock: ManualClock) -> None:
    lives, looks = process(engine), process(engine)
    use(lives, "reply")
    clock.advance(SPAN)
    assert [looks.collect() for _ in range(2)] == [0, 1]
    assert noted(engine) == []
    lives.ours["reply"].signed_at -= SPAN / 1_000
    lives._sign("reply")
    assert noted(engine) == ["reply"]


def look(collector: Collector) -> None:
    collector._due = 0.0  # it is time
    collector()


def test_of_many_workers_one_looks(engine: Engine, clock: ManualClock) -> None:
    killed = process(engine)
    use(killed, "reply")
    clock.advance(SPAN)
    first, second = (Collector(engine, process(engine), 5_000) for _ in range(2))
    assert 50_000 < first() <= 60_000, "not at once"
    look(first)
    for _ in range(3):
        look(second)
    assert noted(engine) == ["reply"], "the first one leads, and it has looked once"
    look(first)
    assert noted(engine) == []
