"""Claiming: what is given out, how long one waits, and what wakes one up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from postroom import Delivery, Policy
from postroom.engines.steps.engine import wall_clock
from postroom.errors import InvalidInput
from postroom.model import State
from postroom.room import Room
from postroom.rotation import Rotation
from postroom.testing import ManualClock
from tests.door.staging import PATIENCE, Wire, eventually, room_on, taken


class Caller:
    """Makes one call in a thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.answer = self._call()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it still waits"
        return self.answer


def asleep(wire: Wire) -> None:
    """Until somebody waits with a waiter that is armed: a claim has come back empty after the arming."""
    eventually(lambda: any(c.verb == "turn" and c.args[3] and c.args[3].waiter for c in wire.calls))


# ---- How long -------------------------------------------------------------------------------------


def test_a_claim_that_does_not_wait_gives_none_at_once() -> None:
    with room_on(poll_timeout="1h") as room:
        assert room.queue("q", Policy(lease="1h")).claim(timeout=0) is None


@pytest.mark.parametrize("timeout", [0.2, "200ms"])
def test_none_means_that_the_time_is_over(timeout: Any) -> None:
    with room_on(poll_timeout="1h") as room:
        queue = room.queue("q", Policy(lease="1h"))
        began = time.monotonic()
        assert queue.claim(timeout=timeout) is None
        assert time.monotonic() - began >= 0.2


def test_without_a_timeout_the_configured_one_counts() -> None:
    with room_on(poll_timeout="150ms") as room:
        queue = room.queue("q", Policy(lease="1h"))
        began = time.monotonic()
        assert queue.claim() is None
        assert time.monotonic() - began >= 0.15


def test_waiting_for_ever_outlasts_the_configured_one(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="20ms")
    caller = Caller(lambda: room.queue("q").claim(timeout=None))
    eventually(lambda: wire.count("turn") > 8)
    room.queue("q").put("at last")
    assert caller.result().body == "at last"


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(live: Room, timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        live.queue("q").claim(timeout=timeout)


def test_who_waits_does_not_poll(wire: Wire) -> None:
    assert room_on(wire).queue("q").claim(timeout=0.3) is None
    assert wire.count("turn") <= 3


def test_a_put_wakes_who_waits(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    caller = Caller(lambda: room.queue("q").claim(timeout=None))
    asleep(wire)
    put = time.monotonic()
    room.queue("q").put("hello")
    assert caller.result().body == "hello"
    assert time.monotonic() - put < 30


def test_so_does_a_due_time_and_not_before(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    queue = room.queue("q")
    queue.put("delayed", delay="200ms")
    delivery = queue.claim(timeout=None)
    assert delivery and delivery.body == "delayed"
    assert delivery.message.due - delivery.message.put_at == 200
    assert 0 <= wall_clock() - delivery.message.due < 30_000


def test_a_deadline_gives_a_message_to_who_waits(live: Room) -> None:
    queue = live.queue("q", Policy(lease="150ms", ack_timeout="150ms"))
    put = queue.put("dropped")
    assert taken(queue).id == put.id
    again = queue.claim(timeout=PATIENCE)
    assert again and again.id == put.id
    assert (again.attempt, again.deliveries) == (1, 2)


def test_each_message_wakes_one_of_many(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    callers = [Caller(lambda: room.queue("q").claim(timeout=PATIENCE)) for _ in range(5)]
    asleep(wire)
    for n in range(5):
        room.queue("q").put(n)
    assert sorted(caller.result().body for caller in callers) == [0, 1, 2, 3, 4]


# ---- Shutdown -------------------------------------------------------------------------------------


def test_a_shutdown_wakes_everybody_at_once(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    callers = [Caller(lambda: room.queue("q").claim(timeout=None)) for _ in range(3)]
    asleep(wire)
    began = time.monotonic()
    room.shutdown()
    assert [caller.result() for caller in callers] == [None] * 3
    assert time.monotonic() - began < 30


def test_what_is_ready_is_still_given_out_after_a_shutdown(live: Room) -> None:
    queue = live.queue("q")
    queue.put("ready")
    queue.put("not yet", delay="1h")
    live.shutdown()
    assert live.is_shutdown
    delivery = queue.claim(timeout=None)
    assert delivery and delivery.body == "ready"
    delivery.ack()
    assert queue.claim(timeout=None) is None
    assert queue.stats().scheduled == 1


def test_a_message_put_just_before_the_shutdown_is_not_overlooked(wire: Wire) -> None:
    room = room_on(wire)
    other = room_on(wire)
    asked: list[int] = []
    turn = wire.send

    def put_and_shut_down(verb: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        answer = turn(verb, call, *args, **options)
        if verb == "turn" and not asked:
            asked.append(1)
            other.queue("q").put("in the last moment")
            room.shutdown()
        return answer

    wire.send = put_and_shut_down  # type: ignore[method-assign]
    delivery = room.queue("q").claim(timeout=None)
    assert delivery and delivery.body == "in the last moment"


def test_consuming_ends_with_the_shutdown_when_nothing_is_left(live: Room) -> None:
    queue = live.queue("q")
    queue.put_many(range(3))
    seen = []
    for delivery in queue.consume():
        with delivery:
            seen.append(delivery.body)
            live.shutdown()
    assert seen == [0, 1, 2]
    assert queue.stats().processing == 0


def test_consuming_ends_when_nothing_came_for_so_long(live: Room) -> None:
    queue = live.queue("q")
    queue.put_many(range(3))
    assert [delivery.body for delivery in queue.consume(timeout=0)] == [0, 1, 2]


# ---- What is given out ----------------------------------------------------------------------------


def test_a_direct_claim_is_started(room: Room) -> None:
    queue = room.queue("q")
    queue.put(1)
    delivery = taken(queue)
    entry = queue.get(delivery.id)
    assert entry.state is State.PROCESSING
    assert entry.started_at is not None
    assert entry.consumer.startswith(room.consumer)
    assert (delivery.attempt, delivery.deliveries) == (0, 1)


def test_claiming_many_gives_what_there_is(room: Room) -> None:
    queue = room.queue("q")
    queue.put_many(range(5))
    assert [delivery.body for delivery in queue.claim_many(3, timeout=0)] == [0, 1, 2]
    assert [delivery.body for delivery in queue.claim_many(3, timeout=0)] == [3, 4]
    assert queue.claim_many(3, timeout=0) == []


@pytest.mark.parametrize("n", [-1, 1_001])
def test_nobody_claims_less_than_nothing_or_more_than_a_thousand(room: Room, n: int) -> None:
    with pytest.raises(InvalidInput):
        room.queue("q").claim_many(n, timeout=0)


def test_claiming_does_not_make_a_queue(room: Room) -> None:
    assert room.queue("nobody").claim(timeout=0) is None
    assert room.queues() == []


def test_a_paused_queue_gives_nothing_until_it_is_resumed(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    queue = room.queue("q")
    queue.put("patience")
    queue.pause("maintenance")
    assert queue.claim(timeout=0) is None
    assert queue.stats().paused
    assert [info.pause_reason for info in room.queues()] == ["maintenance"]
    caller = Caller(lambda: queue.claim(timeout=None))
    asleep(wire)
    queue.resume()
    assert caller.result().body == "patience"


def test_the_rate_is_kept(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q", Policy(rate="2/s"))
    queue.put_many(range(5))
    assert [delivery.body for delivery in queue.claim_many(5, timeout=0)] == [0, 1]
    assert queue.claim(timeout=0) is None
    clock.advance("500ms")
    assert [delivery.body for delivery in queue.claim_many(5, timeout=0)] == [2]


def test_no_more_are_given_out_at_once_than_may_be(room: Room) -> None:
    queue = room.queue("q", Policy(max_in_flight=2))
    queue.put_many(range(5))
    first, second = queue.claim_many(5, timeout=0)
    assert queue.claim(timeout=0) is None
    first.ack()
    assert taken(queue).body == 2
    assert queue.claim(timeout=0) is None
    second.release()
    assert taken(queue).body == 1


def test_who_waits_for_a_free_place_is_told_when_there_is_one(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    queue = room.queue("q", Policy(max_in_flight=1))
    queue.put_many([1, 2])
    first = taken(queue)
    caller = Caller(lambda: queue.claim(timeout=None))
    asleep(wire)
    first.ack()
    assert caller.result().body == 2


# ---- Several queues -------------------------------------------------------------------------------


def claims(room: Room, queues: Any, times: int, **options: Any) -> list[str]:
    deliveries = [room.claim(queues, timeout=0, **options) for _ in range(times)]
    return [delivery.queue for (delivery,) in deliveries]


def test_no_queue_with_work_starves_in_a_claim_over_many(room: Room) -> None:
    room.queue("flood").put_many(range(1_000))
    room.queue("b").put_many(range(3))
    room.queue("c").put_many(range(3))
    order = claims(room, ["flood", "b", "c"], 12)
    assert (order.count("b"), order.count("c")) == (3, 3)


def test_a_rotation_goes_by_who_gave(room: Room) -> None:
    for name in "abc":
        room.queue(name).put_many(range(3))
    assert claims(room, Rotation(["a", "b", "c"]), 9) == list("abcabcabc")


def test_listed_queues_are_emptied_one_after_the_other(room: Room) -> None:
    for name in "abc":
        room.queue(name).put_many(range(2))
    assert claims(room, ["b", "a", "c"], 6, order="listed") == list("bbaacc")


def test_the_most_urgent_message_decides_between_queues(room: Room) -> None:
    room.queue("a").put_many([1, 2], priority=3)
    room.queue("b").put_many([1], priority=9)
    room.queue("b").put_many([1], priority=1)
    assert claims(room, ["a", "b", "empty"], 4, order="priority") == list("baab")


def test_a_claim_over_many_waits_for_all_of_them(wire: Wire) -> None:
    room = room_on(wire, poll_timeout="1h")
    caller = Caller(lambda: room.claim(["a", "b", "c"], timeout=None))
    asleep(wire)
    eventually(lambda: wire.count("turn") >= 6)
    room.queue("c").put("here")
    (delivery,) = caller.result()
    assert (delivery.queue, delivery.body) == ("c", "here")


@pytest.mark.parametrize("queues", ["text", [], [""], ["a{b"], [5]])
def test_queues_are_named_in_a_list(room: Room, queues: Any) -> None:
    with pytest.raises(InvalidInput):
        room.claim(queues, timeout=0)


def test_an_order_is_one_of_four(room: Room) -> None:
    with pytest.raises(InvalidInput, match="round_robin, listed, priority, weighted"):
        room.claim(["a"], timeout=0, order="random")  # type: ignore[arg-type]


# ---- When the engine fails in between -------------------------------------------------------------


def test_what_was_claimed_is_not_lost_because_the_policy_could_not_be_read(wire: Wire) -> None:
    room = room_on(wire)
    room_on(wire).queue("q").put("precious")
    wire.fail(1, "queues")
    with pytest.raises(Exception, match="queues failed"):
        room.queue("q").claim(timeout=0)
    delivery = room.queue("q").claim(timeout=0)
    assert isinstance(delivery, Delivery)
    assert (delivery.body, delivery.deliveries) == ("precious", 1)
