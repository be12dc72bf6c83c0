"""Hooks before a put: they may change a message, or refuse it."""

from __future__ import annotations

import pytest

from postroom import Policy
from postroom.errors import InvalidInput, PartialPut, Refused
from postroom.model import NewMessage, State
from postroom.queue import Queue
from postroom.room import Room
from tests.door.staging import entries, taken


def test_a_hook_sets_priority_delay_and_headers(room: Room) -> None:
    @room.before_put
    def score_risk(message: NewMessage, queue: Queue) -> NewMessage:
        assert queue.name == "payments"
        risky = b"offshore" in message.body
        return message.replace(priority=200 if risky else 1, delay=60_000, headers={"risk": str(risky)})

    queue = room.queue("payments")
    queue.put("offshore")
    queue.put("groceries")
    found = {entry.message.body: entry.message for entry in entries(queue, State.SCHEDULED)}
    assert found[b'"offshore"'].priority == 200
    assert found[b'"offshore"'].headers == {"risk": "True"}
    assert found[b'"groceries"'].priority == 1
    assert {message.due - message.put_at for message in found.values()} == {60_000}


def test_a_hook_that_returns_nothing_leaves_the_message(room: Room) -> None:
    seen: list[NewMessage] = []
    room.before_put(lambda message, queue: seen.append(message))
    put = room.queue("q").put("as it was", priority="high")
    delivery = taken(room.queue("q"))
    assert [message.id for message in seen] == [put.id]
    assert (delivery.body, delivery.priority) == ("as it was", 10)


def test_hooks_run_in_the_order_of_their_registration_on_what_the_one_before_made(room: Room) -> None:
    room.before_put(lambda message, queue: message.replace(kind=message.kind + "a"))
    room.before_put(lambda message, queue: None)
    room.before_put(lambda message, queue: message.replace(kind=message.kind + "b"))
    room.queue("q").put(1, kind="-")
    assert taken(room.queue("q")).kind == "-ab"


def test_every_message_of_many_passes(room: Room) -> None:
    room.before_put(lambda message, queue: message.replace(priority=int(message.body)))
    queue = room.queue("q")
    queue.put_many(range(5))
    queue.put_many([queue.message(7)])
    assert [taken(queue).body for _ in range(6)] == [7, 4, 3, 2, 1, 0]


def refuse_threes(message: NewMessage, queue: Queue) -> None:
    if message.body == b"3":
        raise Refused("no threes today")


def test_what_a_hook_refuses_is_not_put(room: Room) -> None:
    room.before_put(refuse_threes)
    later: list[NewMessage] = []
    room.before_put(lambda message, queue: later.append(message))
    with pytest.raises(Refused, match="no threes today") as caught:
        room.queue("q").put(3)
    assert caught.value.code == "refused"
    assert later == []
    assert room.queues() == []


def test_nor_is_any_other_of_its_call(room: Room) -> None:
    room.before_put(refuse_threes)
    with pytest.raises(Refused):
        room.queue("q").put_many(range(2_000))
    assert room.queues() == []


def test_any_error_of_a_hook_refuses(room: Room) -> None:
    def throttle(message: NewMessage, queue: Queue) -> None:
        raise LookupError("no such tenant")

    room.before_put(throttle)
    with pytest.raises(LookupError):
        room.queue("q").put(1)
    assert room.queues() == []


def test_what_a_hook_makes_is_checked_like_any_message(room: Room) -> None:
    room.before_put(lambda message, queue: message.replace(priority=300))
    with pytest.raises(InvalidInput, match="priority"):
        room.queue("q").put(1)
    assert room.queues() == []


def test_what_was_refused_is_repeated_without_being_changed_twice(room: Room) -> None:
    room.before_put(lambda message, queue: message.replace(priority=message.priority + 1))
    queue = room.queue("q", Policy(capacity=1_000))
    with pytest.raises(PartialPut) as caught:
        queue.put_many(range(1_200))
    queue.purge()
    queue.put_many(caught.value.refused)
    assert {entry.message.priority for entry in entries(queue, State.READY)} == {6}


def test_hooks_belong_to_their_room(room: Room) -> None:
    room.before_put(refuse_threes)
    other = type(room)(room.engine, room.config)
    assert other.queue("q").put(3).created
