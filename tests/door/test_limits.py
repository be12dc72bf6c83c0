"""What a key may put: `rate_key` and `put_rate`. And handing back for a while: `Later`."""

from __future__ import annotations

import asyncio

import pytest

from postroom import Delivery, Policy, aio
from postroom.engines.memory import MemoryEngine
from postroom.errors import InvalidInput, Later, PartialPut, QueueFull, RateLimited
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import Hire, Wire, entries, eventually, room_on, taken


@pytest.fixture
def reports(room: Room) -> Queue:
    return room.queue("reports", Policy(put_rate="3/m"))


def test_a_key_may_put_its_burst_and_is_then_told_when_again(reports: Queue, clock: ManualClock) -> None:
    for number in range(3):
        reports.put(number, rate_key="affiliate-7")
    with pytest.raises(RateLimited) as refused:
        reports.put(3, rate_key="affiliate-7")
    assert refused.value.retry_after == 20.0
    assert reports.stats().ready == 3
    clock.advance("20s")
    reports.put(3, rate_key="affiliate-7")


def test_keys_queues_and_puts_without_a_key_do_not_meet(room: Room, reports: Queue) -> None:
    other = room.queue("other", Policy(put_rate="3/m"))
    for number in range(3):
        reports.put(number, rate_key="a")
    reports.put("another key", rate_key="b")
    other.put("another queue", rate_key="a")
    for number in range(10):
        reports.put(number)


def test_a_key_costs_one_call_more_and_nothing_without_a_rate() -> None:
    wire = Wire(MemoryEngine())
    room = room_on(wire)
    limited, free = room.queue("limited", Policy(put_rate="3/m")), room.queue("free")
    assert limited.policy != free.policy  # both known from here on
    wire.calls.clear()
    limited.put(1, rate_key="a")
    free.put(1, rate_key="a")
    assert [call.verb for call in wire.calls] == ["records.take", "put", "put"]


def test_many_count_together_or_not_at_all(reports: Queue) -> None:
    with pytest.raises(InvalidInput):
        reports.put_many(range(4), rate_key="a")
    reports.put_many(range(2), rate_key="a")
    with pytest.raises(RateLimited):
        reports.put_many(range(2), rate_key="a")
    reports.put("the third", rate_key="a")


def test_a_later_call_of_many_that_is_refused_says_what_was_put(room: Room) -> None:
    queue = room.queue("reports", Policy(put_rate="1500/h"))
    with pytest.raises(PartialPut) as partial:
        queue.put_many(range(1_200 + 800), rate_key="a")
    assert len(partial.value.accepted) == 1_000
    assert isinstance(partial.value.__cause__, RateLimited)


def test_a_new_rate_is_a_new_bucket(room: Room, reports: Queue) -> None:
    reports.put_many(range(3), rate_key="a")
    faster = room.queue("reports", Policy(put_rate="5/m"))
    faster.put_many(range(5), rate_key="a")


@pytest.mark.parametrize("key", ["", "x" * 1_001, 7])
def test_a_key_that_makes_no_sense_is_refused(reports: Queue, key: str) -> None:
    with pytest.raises(InvalidInput):
        reports.put(1, rate_key=key)


def test_a_put_in_the_callers_transaction_cannot_be_counted(reports: Queue) -> None:
    with pytest.raises(InvalidInput, match="rate_key"):
        reports.put(1, rate_key="a", connection=object())


def test_asyncio_puts_are_counted_too() -> None:
    async def put_two() -> None:
        async with aio.open("memory://") as room:
            queue = room.queue("reports", Policy(put_rate="1/m"))
            await queue.put(1, rate_key="a")
            with pytest.raises(RateLimited):
                await queue.put(2, rate_key="a")

    asyncio.run(put_two())


def test_a_full_queue_still_says_so(room: Room) -> None:
    queue = room.queue("reports", Policy(put_rate="3/m", capacity=1))
    queue.put(1, rate_key="a")
    with pytest.raises(QueueFull):
        queue.put(2, rate_key="a")


# --- later ---------------------------------------------------------------------------------------


def test_a_handler_that_says_later_burns_no_attempt(live: Room, hire: Hire) -> None:
    queue = live.queue("jobs", Policy(max_attempts=1))
    attempts: list[int] = []

    def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) < 4:
            raise Later(retry_after=0.001)

    queue.put(1)
    hire(live, {"jobs": handle})
    eventually(lambda: len(attempts) == 4 and queue.stats().processing == 0)
    assert attempts == [0, 0, 0, 0]
    assert queue.stats().dead == 0


def test_a_delivery_handed_back_for_a_while_is_nobodys_until_then(room: Room, clock: ManualClock) -> None:
    queue = room.queue("jobs")
    queue.put(1)
    with taken(queue):
        raise Later(retry_after=5)
    assert [entry.attempt for entry in entries(queue, State.SCHEDULED)] == [0]
    clock.advance("5s")
    taken(queue).release("1m")
    assert queue.claim(timeout=0) is None
    clock.advance("1m")
    assert taken(queue).attempt == 0
