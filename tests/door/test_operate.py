"""An operator's moves: each from the state it expects, or not at all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from postroom import Delivery, Policy, QueueFull, audit
from postroom.errors import BodyTooLarge, Conflict, InvalidInput, LeaseLost, NotFound
from postroom.ids import new_id
from postroom.model import Outcome, State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import entries, taken

Moves = Callable[[Queue, str], object]

CANCEL: Moves = lambda queue, id: queue.cancel(id)  # noqa: E731
RESCHEDULE: Moves = lambda queue, id: queue.reschedule(id, delay=5)  # noqa: E731
RUN_NOW: Moves = lambda queue, id: queue.run_now(id)  # noqa: E731
REPLAY: Moves = lambda queue, id: queue.replay(id, number=1)  # noqa: E731
DISCARD: Moves = lambda queue, id: queue.discard(id)  # noqa: E731


@pytest.fixture
def queue(room: Room) -> Queue:
    return room.queue("q")


def in_state(queue: Queue, state: State) -> str:
    put = queue.put({"n": 1}, delay="1h" if state is State.SCHEDULED else None)
    if state in (State.PROCESSING, State.DEAD):
        delivery = taken(queue)
        if state is State.DEAD:
            delivery.bury("dead")
    assert queue.get(put.id).state is state
    return put.id


def test_cancel_takes_a_waiting_message_out(queue: Queue) -> None:
    for state in (State.READY, State.SCHEDULED):
        id = in_state(queue, state)
        queue.cancel(id)
        with pytest.raises(NotFound):
            queue.get(id)
    assert queue.stats().depth == 0


def test_release_takes_a_message_from_whoever_works_on_it(queue: Queue) -> None:
    id = in_state(queue, State.PROCESSING)
    queue.release(id)
    assert (queue.get(id).state, queue.get(id).attempt) == (State.READY, 0)


def test_the_consumer_of_a_released_message_is_told(queue: Queue) -> None:
    queue.put("x")
    delivery = taken(queue)
    queue.release(delivery.id)
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert queue.stats().ready == 1


def test_cancel_takes_a_message_from_whoever_works_on_it_if_it_is_asked_to(queue: Queue) -> None:
    queue.put("x", unique_key="one")
    delivery = taken(queue)
    with pytest.raises(Conflict):
        queue.cancel(delivery.id)
    queue.cancel(delivery.id, processing=True)
    with pytest.raises(LeaseLost) as told:
        delivery.ack()
    assert told.value.outcome is Outcome.GONE
    stats = queue.stats()
    assert (stats.processing, stats.counters["cancelled"], stats.counters["acked"]) == (0, 1, 0)
    assert queue.put("x", unique_key="one").created
    assert [act.event for act in audit.read(queue.room.engine).acts] == ["cancel"]


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED])
def test_cancel_with_processing_takes_what_waits_too(queue: Queue, state: State) -> None:
    id = in_state(queue, state)
    queue.cancel(id, processing=True)
    with pytest.raises(NotFound):
        queue.get(id)


def test_cancel_leaves_alone_whoever_claimed_it_later(queue: Queue) -> None:
    id = in_state(queue, State.PROCESSING)
    seen = queue.get(id).deliveries
    queue.release(id)
    with pytest.raises(Conflict, match="nobody works on"):
        queue.cancel(id, deliveries=seen)
    successor = taken(queue)
    with pytest.raises(Conflict, match="changed hands: now "):
        queue.cancel(id, deliveries=seen)
    successor.ack()


def test_extend_gives_the_work_more_time(queue: Queue, clock: ManualClock) -> None:
    id = in_state(queue, State.PROCESSING)
    queue.extend(id, "1h")
    assert queue.get(id).deadline == clock() + 3_600_000
    queue.extend(id)
    assert queue.get(id).deadline == clock() + 30_000


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.DEAD])
def test_only_what_somebody_works_on_can_be_released_or_extended(queue: Queue, state: State) -> None:
    id = in_state(queue, state)
    for operate in (queue.release, queue.extend):
        with pytest.raises(Conflict, match=f"nobody works on {id}: it is {state}"):
            operate(id)
        with pytest.raises(NotFound):
            operate(new_id())
    assert queue.get(id).state is state


def test_what_changed_hands_meanwhile_is_left_alone(
    room: Room, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = in_state(queue, State.PROCESSING)
    before = queue.get(id)
    queue.release(id)
    successor = taken(queue)
    monkeypatch.setattr(room.engine, "get", lambda *_: [before])
    cancel = functools.partial(queue.cancel, processing=True)
    for operate in (queue.release, queue.extend, cancel):
        with pytest.raises(LeaseLost, match="changed hands meanwhile"):
            operate(id)
    assert isinstance(successor, Delivery)
    successor.ack()


def test_reschedule_gives_another_time(queue: Queue, clock: ManualClock) -> None:
    for state in (State.READY, State.SCHEDULED):
        id = in_state(queue, state)
        queue.reschedule(id, delay="5s")
        assert (queue.get(id).state, queue.get(id).due) == (State.SCHEDULED, clock() + 5_000)
        queue.reschedule(id, at=datetime(2026, 1, 2, tzinfo=UTC))
        assert queue.get(id).due == clock() + 86_400_000
        queue.reschedule(id, delay=0)
        assert queue.get(id).state is State.READY
        queue.cancel(id)


@pytest.mark.parametrize(
    "options",
    [{}, {"delay": 1, "at": 1}, {"delay": -1}, {"at": datetime(2100, 1, 1, tzinfo=UTC)}, {"delay": "soon"}],
    ids=repr,
)
def test_a_time_that_makes_no_sense_is_refused(queue: Queue, options: Any) -> None:
    id = in_state(queue, State.SCHEDULED)
    before = queue.get(id)
    with pytest.raises(InvalidInput):
        queue.reschedule(id, **options)
    assert queue.get(id) == before


def test_run_now(queue: Queue) -> None:
    id = in_state(queue, State.SCHEDULED)
    queue.run_now(id)
    assert taken(queue).id == id


def test_discard_lets_go_of_a_dead_letter(queue: Queue) -> None:
    queue.discard(in_state(queue, State.DEAD))
    assert queue.stats().dead == 0


def test_replay_puts_a_new_message_and_marks_the_old_one(queue: Queue) -> None:
    id = in_state(queue, State.DEAD)
    first = queue.replay(id)
    assert first != id
    assert queue.get(id).state is State.DEAD
    assert queue.get(id).replayed_as == (first,)
    delivery = taken(queue)
    assert (delivery.id, delivery.body, delivery.attempt) == (first, {"n": 1}, 0)
    assert queue.replay(id, number=1) == first, "a repeated call is one message"
    second = queue.replay(id)
    assert queue.get(id).replayed_as == (first, second)


def test_a_replay_may_have_another_body(queue: Queue) -> None:
    queue.replay(in_state(queue, State.DEAD), body={"n": 2})
    assert taken(queue).body == {"n": 2}


def test_a_replay_obeys_the_limits_of_a_put(room: Room) -> None:
    queue = room.queue("q", Policy(capacity=1))
    id = in_state(queue, State.DEAD)
    with pytest.raises(BodyTooLarge):
        queue.replay(id, body=b"x" * (17 * 2**20))
    queue.put("in the way")
    with pytest.raises(QueueFull):
        queue.replay(id)
    assert queue.get(id).replayed_as == ()


def test_a_replay_waits_for_its_unique_key(queue: Queue) -> None:
    put = queue.put(1, unique_key="report")
    taken(queue).bury()
    holder = queue.put(2, unique_key="report")
    with pytest.raises(Conflict, match=holder.id):
        queue.replay(put.id)
    queue.cancel(holder.id)
    assert queue.replay(put.id)


@pytest.mark.parametrize(
    ("move", "states"),
    [
        (CANCEL, [State.PROCESSING, State.DEAD]),
        (RESCHEDULE, [State.PROCESSING, State.DEAD]),
        (RUN_NOW, [State.READY, State.PROCESSING, State.DEAD]),
        (REPLAY, [State.READY, State.SCHEDULED, State.PROCESSING]),
        (DISCARD, [State.READY, State.SCHEDULED, State.PROCESSING]),
    ],
    ids=["cancel", "reschedule", "run_now", "replay", "discard"],
)
def test_a_move_from_any_other_state_is_a_conflict(queue: Queue, move: Moves, states: list[State]) -> None:
    for state in states:
        id = in_state(queue, state)
        before = queue.get(id)
        with pytest.raises(Conflict, match=id) as caught:
            move(queue, id)
        assert caught.value.code == "conflict"
        assert queue.get(id) == before
        queue.drop(force=True)


@pytest.mark.parametrize("move", [CANCEL, RESCHEDULE, RUN_NOW, REPLAY, DISCARD])
def test_a_move_of_what_is_not_there_is_told(queue: Queue, move: Moves) -> None:
    with pytest.raises(NotFound):
        move(queue, new_id())


def test_purge_drops_what_waits_and_nothing_else(queue: Queue) -> None:
    for state in (State.PROCESSING, State.DEAD, State.READY, State.SCHEDULED, State.READY):
        in_state(queue, state)
    assert queue.purge() == 3
    stats = queue.stats()
    assert (stats.depth, stats.processing, stats.dead) == (0, 1, 1)
    assert queue.purge() == 0


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.PROCESSING, State.DEAD])
def test_drop_refuses_while_anything_is_in_the_queue(room: Room, queue: Queue, state: State) -> None:
    in_state(queue, state)
    with pytest.raises(Conflict):
        queue.drop()
    assert len(entries(queue, state)) == 1
    assert queue.drop(force=True) == 1
    assert room.queues() == []


def test_drop_of_an_empty_queue(room: Room, queue: Queue) -> None:
    in_state(queue, State.READY)
    queue.purge()
    assert queue.drop() == 0
    assert room.queues() == []


def test_pause_stops_claims_only(queue: Queue) -> None:
    queue.put_many([1, 2])
    held = taken(queue)
    queue.pause("maintenance")
    queue.put(3)
    held.ack()
    assert queue.claim(timeout=0) is None
    assert queue.stats().paused
    queue.resume()
    assert taken(queue).body == 2
