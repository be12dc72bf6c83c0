"""The order between the queues of a worker: nobody starves, unless that was asked for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from postroom import Delivery, Worker
from postroom.room import Room
from tests.door.staging import PATIENCE, Hire, eventually


def worked_off(room: Room, names: list[str], **options: Any) -> list[str]:
    """Drain these queues; which queue each message came from, in the order of their handling."""
    order: list[str] = []
    handlers = {name: lambda delivery: order.append(delivery.queue) for name in names}
    Worker(room, handlers, **options).run(drain=True)
    return order


@pytest.mark.parametrize("prefetch", [None, 0, 64])
def test_no_queue_with_work_starves(live: Room, prefetch: int | None) -> None:
    live.queue("flood").put_many(range(3_000))
    live.queue("b").put_many(range(5))
    live.queue("c").put_many(range(5))
    order = worked_off(live, ["flood", "b", "c"], prefetch=prefetch)
    assert Counter(order) == {"flood": 3_000, "b": 5, "c": 5}
    last = max(place for place, name in enumerate(order) if name != "flood")
    assert last < 800, "the others had their turn long before the flood was over"


def test_a_worker_with_more_queues_than_it_can_ask_in_time_comes_to_rest(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked all of them again before it had asked the last: no drain ended, and no idle worker slept."""
    monkeypatch.setattr("postroom.worker.attention._DEAF", 0.0)  # as if it took longer than that
    names = [f"q{number}" for number in range(20)]
    for name in names:
        room.queue(name).put(name)
    assert sorted(worked_off(room, names)) == sorted(names)


@pytest.mark.parametrize("prefetch", [None, 0])
@pytest.mark.parametrize("order", ["round_robin", "listed", "priority"])
def test_a_message_in_a_quiet_queue_is_seen_while_another_is_busy(
    live: Room, hire: Hire, prefetch: int | None, order: Any
) -> None:
    """It had nothing when the worker last asked, and the worker has had its hands full ever since."""
    arrived = threading.Event()
    busy = threading.Event()

    def slow(delivery: Delivery) -> None:
        busy.set()
        time.sleep(0.005)

    flood = live.queue("flood")
    flood.put_many(range(5_000))
    handlers = {"quiet": lambda delivery: arrived.set(), "flood": slow}
    hire(live, handlers, prefetch=prefetch, order=order)
    assert busy.wait(PATIENCE)
    done = flood.stats().counters["acked"]
    eventually(lambda: flood.stats().counters["acked"] > done + 20)
    live.queue("quiet").put("hello", priority="high")
    assert arrived.wait(PATIENCE)
    assert flood.stats().ready > 1_000


def test_round_robin_takes_turns(live: Room) -> None:
    for name in "abc":
        live.queue(name).put_many(range(30))
    order = worked_off(live, ["a", "b", "c"], prefetch=0)
    assert set(order[:48]) == {"a", "b", "c"}


def test_listed_finishes_the_first_before_the_second(live: Room) -> None:
    for name in "abc":
        live.queue(name).put_many(range(50))
    assert worked_off(live, ["b", "a", "c"], order="listed") == ["b"] * 50 + ["a"] * 50 + ["c"] * 50


def test_priority_goes_by_the_most_urgent_message(live: Room) -> None:
    seen: list[int] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.body)
        time.sleep(0.006)  # too slow to start a second one ahead

    for priority in range(1, 13):
        live.queue(f"q{priority % 3}").put(priority, priority=priority)
    Worker(live, dict.fromkeys(["q0", "q1", "q2"], handler), order="priority", prefetch=0).run(drain=True)
    assert seen == list(range(12, 0, -1))


def test_also_among_what_is_held(live: Room, hire: Hire, gate: threading.Event) -> None:
    seen: list[str] = []

    def handler(delivery: Delivery) -> None:
        gate.wait()
        seen.append(delivery.body)

    hire(live, {"a": handler, "b": handler}, order="priority", prefetch=64)
    live.queue("a").put("first")
    eventually(lambda: live.queue("a").stats().processing == 1)
    live.queue("a").put("low", priority="low")
    eventually(lambda: live.queue("a").stats().processing == 2)
    live.queue("b").put("high", priority="high")
    eventually(lambda: live.queue("b").stats().processing == 1)
    gate.set()
    eventually(lambda: len(seen) == 3)
    assert seen == ["first", "high", "low"]


def test_equally_urgent_queues_take_turns(live: Room) -> None:
    live.queue("flood").put_many(range(2_000))
    live.queue("other").put_many(range(5))
    order = worked_off(live, ["flood", "other"], order="priority", prefetch=0)
    assert max(place for place, name in enumerate(order) if name == "other") < 400


@pytest.mark.parametrize("prefetch", [None, 0, 64])
def test_weighted_queues_get_their_shares(live: Room, prefetch: int | None) -> None:
    live.queue("a").put_many(range(3_000))
    live.queue("b").put_many(range(3_000))
    order = worked_off(live, ["a", "b"], order="weighted", weights={"a": 3, "b": 1}, prefetch=prefetch)
    share = Counter(order[:3_000])["a"] / 3_000
    assert 0.70 < share < 0.80
    assert Counter(order) == {"a": 3_000, "b": 3_000}


def test_a_weight_is_one_unless_given(live: Room) -> None:
    for name in "abc":
        live.queue(name).put_many(range(3_000))
    order = worked_off(live, ["a", "b", "c"], order="weighted", weights={"a": 2}, prefetch=0)
    shares = Counter(order[:4_000])
    # Within a few batches, which is what a queue gives at a time.
    assert 1_800 <= shares["a"] <= 2_200
    assert abs(shares["b"] - shares["c"]) <= 200
