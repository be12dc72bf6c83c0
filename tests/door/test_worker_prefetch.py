"""How far ahead a worker reaches: enough to be quick, never so far that others go without."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from postroom import Delivery, Policy
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.worker import dispatcher
from postroom.worker.pace import Pace
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, room_on, taken


def held(queue: Queue) -> tuple[int, int]:
    """How many are started, how many merely held."""
    found = entries(queue, State.PROCESSING)
    started = sum(entry.started_at is not None for entry in found)
    return started, len(found) - started


@pytest.mark.parametrize(("concurrency", "prefetch"), [(1, 0), (2, 5), (4, 64), (3, 1)])
def test_a_given_prefetch_is_a_bound(
    live: Room, hire: Hire, gate: threading.Event, concurrency: int, prefetch: int
) -> None:
    queue = live.queue("q")
    queue.put_many(range(200))
    hire(live, {"q": lambda delivery: gate.wait()}, concurrency=concurrency, prefetch=prefetch)
    eventually(lambda: held(queue) == (concurrency, prefetch))
    threading.Event().wait(0.05)
    assert held(queue) == (concurrency, prefetch)


def test_a_start_is_reported_before_its_handler_runs(live: Room, hire: Hire) -> None:
    queue = live.queue("q")
    queue.put_many(range(400))
    unstarted: list[str] = []

    def handler(delivery: Delivery) -> None:
        entry = queue.get(delivery.id)
        if entry.started_at is None or entry.state is not State.PROCESSING:
            unstarted.append(delivery.id)

    hire(live, {"q": handler}, concurrency=4, prefetch=64)
    eventually(lambda: queue.stats().counters["acked"] == 400)
    assert unstarted == []


def test_settling_starting_and_claiming_go_together(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(2_000))
    wire.calls.clear()
    hire(room, {"q": lambda delivery: None}, concurrency=4, prefetch=200, keeper=False)
    eventually(lambda: queue.stats().counters["acked"] == 2_000)
    assert wire.count("turn") < 1_000, "fewer round trips than messages"
    assert wire.count("settle") == wire.count("claim") == 0
    fused = [call for call in wire.calls if call.verb == "turn" and call.args[1] and call.args[2]]
    assert fused, "some settle and start in one turn"


def test_quick_handlers_earn_batches(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(3_000))
    wire.calls.clear()
    hire(room, {"q": lambda delivery: None}, keeper=False)
    eventually(lambda: queue.stats().counters["acked"] == 3_000)
    assert wire.count("turn") < 1_500


def test_slow_handlers_do_not_hoard(live: Room, hire: Hire, gate: threading.Event) -> None:
    queue = live.queue("q")
    queue.put_many(range(20))
    stuck: list[int] = []

    def wait(delivery: Delivery) -> None:
        stuck.append(delivery.body)
        gate.wait()

    hire(live, {"q": wait}, concurrency=2)
    eventually(lambda: len(stuck) == 2)
    others: list[int] = []
    hire(live, {"q": lambda delivery: others.append(delivery.body)})
    eventually(lambda: len(others) == 18)
    assert sorted(stuck + others) == list(range(20))


def warmed_up(room: Room, hire: Hire, gate: threading.Event, pause: float) -> tuple[Queue, list[Any]]:
    """A worker that has learned that its handlers are quick, and then meets one that is not; what it begins
    from there."""
    queue = room.queue("q")
    begun: list[Any] = []

    def handler(delivery: Delivery) -> None:
        begun.append(delivery.body)
        if delivery.body == "long":
            gate.wait()
        elif pause:
            time.sleep(pause)

    worker = hire(room, {"q": handler})
    queue.put_many(range(100))
    eventually(lambda: queue.stats().counters["acked"] == 100)
    assert not worker.last_exceptions
    begun.clear()
    queue.put_many(["long", *range(40)])
    eventually(lambda: begun)
    return queue, begun


@pytest.mark.parametrize("pause", [0.0, 0.004], ids=["started ahead", "held ahead"])
def test_what_waits_behind_a_long_handler_is_handed_back(
    live: Room, hire: Hire, gate: threading.Event, pause: float
) -> None:
    queue, _ = warmed_up(live, hire, gate, pause)
    eventually(lambda: queue.stats().processing == 1)
    got = queue.claim_many(100, timeout=5)
    while len(got) < 40:
        got += queue.claim_many(100, timeout=5)
    assert sorted(delivery.body for delivery in got) == list(range(40))
    assert {delivery.attempt for delivery in got} == {0}, "handing back does not count"


@pytest.mark.parametrize("pause", [0.0, 0.004], ids=["started ahead", "held ahead"])
def test_what_is_urgent_overtakes_what_waits_behind_a_long_handler(
    live: Room, hire: Hire, gate: threading.Event, pause: float
) -> None:
    assert dispatcher._STALL <= 0.1, "it is noticed before a person would"
    queue, begun = warmed_up(live, hire, gate, pause)
    eventually(lambda: queue.stats().processing == 1)
    queue.put("urgent", priority="high")
    gate.set()
    eventually(lambda: len(begun) == 42)
    assert begun == ["long", "urgent", *range(40)]


def test_a_long_handler_holds_up_no_other_hand(live: Room, hire: Hire, gate: threading.Event) -> None:
    queue = live.queue("q", Policy(keep_done="1h"))
    begun: list[Any] = []

    def handler(delivery: Delivery) -> None:
        begun.append(delivery.body)
        if delivery.body == "long":
            gate.wait()

    queue.put("long")
    hire(live, {"q": handler}, concurrency=2)
    eventually(lambda: begun)
    time.sleep(3 * dispatcher._STALL)  # nothing moves, for longer than a stall takes
    for count in range(1, 51):
        queue.put(count)
        eventually(lambda count=count: queue.stats().counters["acked"] == count)  # type: ignore[misc]
    queue.put_many(range(51, 201))
    eventually(lambda: queue.stats().counters["acked"] == 200)
    assert begun == ["long", *range(1, 201)]
    assert queue.stats().counters["claimed"] < 400, "claimed and handed back, again and again"


def test_who_has_a_free_hand_begins_what_its_other_hand_took_too_long_for(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    queue = live.queue("q", Policy(ack_timeout="300ms", max_attempts=2))
    begun: list[int] = []

    def handler(delivery: Delivery) -> None:
        begun.append(delivery.attempt)
        gate.wait()

    queue.put("long")
    hire(live, {"q": handler}, concurrency=2)
    eventually(lambda: len(begun) == 2)
    assert queue.stats().counters["claimed"] < 5


def test_a_burst_after_a_pause_is_not_taken_for_a_stall(live: Room, hire: Hire) -> None:
    queue = live.queue("q", Policy(keep_done="1h"))
    hire(live, {"q": lambda delivery: None})
    queue.put_many(range(200))
    eventually(lambda: queue.stats().counters["acked"] == 200)
    for number in range(2, 8):  # one in six: a machine that stands still for so long is a stall
        released = queue.stats().counters["released"]
        time.sleep(0.3)  # the pause: three times as long as a stall
        queue.put_many(range(200))
        eventually(lambda number=number: queue.stats().counters["acked"] == 200 * number)  # type: ignore[misc]
        if queue.stats().counters["released"] == released:
            return
    pytest.fail("every burst was taken for a stall")


def test_a_given_prefetch_is_held_behind_a_long_handler_too(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    queue = live.queue("q")
    queue.put_many(range(20))
    hire(live, {"q": lambda delivery: gate.wait()}, prefetch=10)
    eventually(lambda: held(queue) == (1, 10))
    time.sleep(0.4)  # nothing may happen, for longer than a stall takes
    assert held(queue) == (1, 10)


# ---- The pace itself ------------------------------------------------------------------------------


def pace(*seconds: float) -> Pace:
    pace = Pace()
    for each in seconds:
        pace.note(each)
    return pace


def test_without_experience_a_hand_takes_one_message() -> None:
    assert (Pace().started, Pace().held(4)) == (1, 0)


def test_the_quicker_the_more_up_to_a_bound() -> None:
    assert (pace(1.0).started, pace(1.0).held(4)) == (1, 0)
    assert (pace(0.01).started, pace(0.01).held(4)) == (1, 20)
    assert (pace(0.001).started, pace(0.001).held(4)) == (5, 0)
    assert (pace(0.0).started, pace(0.0).held(4)) == (32, 0)


def test_all_hands_together_have_a_bound_too() -> None:
    assert [pace(0.0).all_started(hands) for hands in (1, 4, 100, 1_000)] == [32, 128, 256, 1_000]
    assert [pace(0.01).all_started(hands) for hands in (1, 4, 1_000)] == [1, 4, 1_000]


def test_one_slow_message_among_many_slows_the_pace_at_once_and_for_a_while() -> None:
    quick = pace(*[0.0001] * 50)
    assert quick.started == 32
    quick.note(1.0)
    assert quick.started == 1
    for _ in range(100):
        quick.note(0.0001)
    assert quick.started == 32


def test_a_stall_counts_before_it_is_over() -> None:
    quick = pace(0.0001)
    quick.note_stall(1.0)
    assert (quick.started, quick.held(4)) == (1, 0)


def test_a_busy_worker_leaves_a_suspect_to_those_who_can_begin_it(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    queue = live.queue("q", Policy(ack_timeout="200ms", lease="30s"))
    suspect = queue.put("suspect")
    taken(queue)  # ... and never heard of again
    eventually(lambda: queue.stats().overdue)
    live.engine.sweep("q")
    queue.put("long", ack_timeout="1h", priority="high")
    begun = threading.Event()

    def handler(delivery: Delivery) -> None:
        if delivery.body == "long":
            begun.set()
            gate.wait(PATIENCE)

    hire(live, {"q": handler}, concurrency=1, prefetch=8)
    assert begun.wait(PATIENCE)
    time.sleep(0.5)  # longer than it takes to hand started work back
    assert queue.get(suspect.id).deliveries <= 3
    gate.set()
    eventually(lambda: queue.stats().counters["acked"] == 2)  # begun by the first free hand
