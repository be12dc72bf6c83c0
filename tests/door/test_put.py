"""Putting messages: what each option means, and what is refused without a trace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import postroom
from postroom import Policy, QueueFull
from postroom.engines.memory import MemoryEngine
from postroom.errors import BodyTooLarge, Closed, InvalidInput, PartialPut, PostroomError
from postroom.ids import new_id
from postroom.limits import BINARY, JSON
from postroom.model import NewMessage, State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import Wire, entries, let_pass, room_on, taken

MB = 2**20


@pytest.fixture
def queue(room: Room) -> Queue:
    return room.queue("q")


@pytest.fixture
def unchanged(room: Room) -> Iterator[None]:
    """Nothing has been changed by the end of the test: there is not even a queue."""
    yield
    assert room.queues() == []


def refused(put: Callable[[], object], error: type[PostroomError] = InvalidInput) -> PostroomError:
    with pytest.raises(PostroomError) as caught:
        put()
    assert type(caught.value) is error, repr(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# ---- Priority -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "number"), [("low", 0), ("normal", 5), ("high", 10), (0, 0), (7, 7), (255, 255)]
)
def test_a_priority_is_a_label_or_a_number(queue: Queue, given: str | int, number: int) -> None:
    queue.put(1, priority=given)
    assert taken(queue).priority == number


def test_a_plain_put_is_normal(queue: Queue) -> None:
    queue.put(1)
    assert taken(queue).priority == 5


def test_higher_goes_first_and_equals_in_the_order_of_their_puts(queue: Queue) -> None:
    priorities: dict[str, str | int] = {"a": "low", "b": 5, "c": "high", "d": "normal", "e": 255, "f": 10}
    for name, priority in priorities.items():
        queue.put(name, priority=priority)
    assert [taken(queue).body for _ in range(6)] == ["e", "c", "f", "b", "d", "a"]


def test_labels_belong_to_the_policy(room: Room) -> None:
    queue = room.queue("q", Policy(labels={"normal": 3, "fire": 200}))
    queue.put("plain")
    queue.put("help", priority="fire")
    assert [taken(queue).priority for _ in range(2)] == [200, 3]
    assert "normal, fire" in str(refused(lambda: queue.put(1, priority="high")))


@pytest.mark.parametrize("priority", ["urgent", "", "HIGH", -1, 256, True, 5.0, None, [5]])
@pytest.mark.usefixtures("unchanged")
def test_any_other_priority_is_refused(queue: Queue, priority: Any) -> None:
    assert "priority" in str(refused(lambda: queue.put(1, priority=priority)))


# ---- When -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [30, 30.0, "30s", "0.5m", timedelta(seconds=30)])
def test_a_delayed_message_is_never_early(queue: Queue, clock: ManualClock, delay: Any) -> None:
    queue.put("later", delay=delay)
    assert queue.stats().scheduled == 1
    clock.advance("29.999s")
    assert queue.claim(timeout=0) is None
    clock.advance("1ms")
    assert taken(queue).body == "later"


def test_a_moment_is_a_datetime_or_epoch_seconds(queue: Queue, clock: ManualClock) -> None:
    due = clock() + 5_000
    queue.put("date", at=datetime.fromtimestamp(due / 1_000, UTC))
    queue.put("seconds", at=due / 1_000)
    assert {entry.due for entry in entries(queue, State.SCHEDULED)} == {due}
    clock.advance("5s")
    assert {taken(queue).body, taken(queue).body} == {"date", "seconds"}


def test_a_moment_that_is_over_is_now(queue: Queue) -> None:
    queue.put("late", at=datetime(2020, 1, 1, tzinfo=UTC))
    assert taken(queue).body == "late"


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": "-1s"},
        {"delay": timedelta(seconds=-1)},
        {"delay": "soon"},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": 10**400},
        {"delay": True},
        {"delay": timedelta(days=365 * 60)},
        {"delay": timedelta.max},
        {"at": datetime(2100, 1, 1, tzinfo=UTC)},
        {"at": 10**400},
        {"at": float("nan")},
        {"at": -5},
        {"at": "tomorrow"},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001  # a naive one is what is refused here
        {"delay": 1, "at": datetime(2026, 1, 2, tzinfo=UTC)},
        {"expires": -1},
        {"expires": 0},
        {"expires": "soon"},
        {"expires": datetime(2026, 1, 2)},  # noqa: DTZ001
        {"expires": datetime(2020, 1, 1, tzinfo=UTC)},
        {"expires": "10s", "delay": "10s"},
        {"expires": "10s", "delay": "11s"},
        {"ack_timeout": 0},
        {"ack_timeout": -1},
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 1_001},
        {"remember": -1},
        {"id": "not-an-id"},
        {"id": "A" * 32},
        {"dealy": 1},
        {"Priority": "high"},
    ],
    ids=repr,
)
@pytest.mark.usefixtures("unchanged")
def test_an_option_that_makes_no_sense_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    refused(lambda: queue.put(1, **options))
    refused(lambda: queue.put_many([1, 2], **options))
    if options.keys() - {"expires"}:  # an expiry is compared with the engine's clock, when it is put
        refused(lambda: queue.put_many([queue.message(1), queue.message(2, **options)]))


@pytest.mark.parametrize("expires", [60, "1m", timedelta(minutes=1), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)])
def test_what_nobody_took_in_time_is_a_dead_letter(queue: Queue, clock: ManualClock, expires: Any) -> None:
    put = queue.put("news", expires=expires)
    clock.advance("59.999s")
    taken(queue).release()
    clock.advance("1ms")
    assert queue.claim(timeout=0) is None
    failure = queue.get(put.id).failure
    assert failure and failure.type == "Expired"


def test_ack_timeout_and_attempts_of_its_own(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q")
    hasty, patient = queue.put("hasty", ack_timeout="5s", max_attempts=1), queue.put("patient")
    held = [taken(queue), taken(queue)]
    assert [delivery.max_attempts for delivery in held] == [1, 3]
    let_pass(room, clock, 6)
    assert queue.get(hasty.id).state is State.DEAD
    assert queue.get(patient.id).state is State.PROCESSING


# ---- Names and headers ----------------------------------------------------------------------------

BAD_NAMES = ["\0", "a\0b", "a{b", "a}b", "{}", "\n", "\x7f", "\ud800", "x" * 201, "é" * 101]


@pytest.mark.parametrize("name", ["", *BAD_NAMES, 5, None, b"bytes"])
@pytest.mark.usefixtures("unchanged")
def test_a_queue_name_that_no_store_could_carry_is_refused(room: Room, name: Any) -> None:
    assert "queue name" in str(refused(lambda: room.queue(name)))
    refused(lambda: room.queue(name, policy=Policy()))


@pytest.mark.parametrize("field", ["kind", "correlation_id", "unique_key", "content_type"])
@pytest.mark.parametrize("text", BAD_NAMES)
@pytest.mark.usefixtures("unchanged")
def test_so_is_any_other_name(queue: Queue, field: str, text: str) -> None:
    options: dict[str, Any] = {field: text}
    assert field in str(refused(lambda: queue.put(1, **options)))


@pytest.mark.parametrize("name", ["x" * 200, "é" * 100, "with space", "a.b/c:d", "ключ", "🐦"])
def test_all_other_names_are_carried(room: Room, name: str) -> None:
    room.queue(name).put(1, kind=name, correlation_id=name, unique_key=name)
    delivery = taken(room.queue(name))
    assert (delivery.queue, delivery.kind, delivery.correlation_id) == (name, name, name)


def test_headers_arrive(queue: Queue) -> None:
    given = {"tenant": "a", "trace": "é\0"}
    queue.put(1, headers=given)
    given["tenant"] = "changed later"
    assert taken(queue).headers == {"tenant": "a", "trace": "é\0"}


@pytest.mark.parametrize(
    "headers",
    [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}, {"a": "\ud800"}, "text", ["ab"], 5, {"a": "x" * 70_000}],
    ids=lambda headers: repr(headers)[:30],
)
@pytest.mark.usefixtures("unchanged")
def test_headers_that_are_not_text_are_refused(queue: Queue, headers: Any) -> None:
    assert "header" in str(refused(lambda: queue.put(1, headers=headers)))


# ---- Bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [None, True, 0, -1, 1.5, "", "text é\0", [], {}, [1, [2, {"a": None}]], {"a": {"b": [1]}}, 2**60],
    ids=repr,
)
def test_what_json_can_say_arrives_as_it_was_put(queue: Queue, body: Any) -> None:
    queue.put(body)
    delivery = taken(queue)
    assert delivery.body == body
    assert isinstance(delivery.data, bytes)
    assert delivery.message.content_type == JSON


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_arrive_as_bytes(queue: Queue, make: Callable[[bytes], Any]) -> None:
    raw = bytes(range(256))
    queue.put(make(raw))
    delivery = taken(queue)
    assert delivery.body == delivery.data == raw
    assert type(delivery.body) is bytes
    assert delivery.message.content_type == BINARY


def test_the_data_is_the_body_exactly_as_it_was_put(queue: Queue) -> None:
    queue.put(b'{"a":  1}', content_type=JSON)
    delivery = taken(queue)
    assert (delivery.data, delivery.body) == (b'{"a":  1}', {"a": 1})


def test_a_text_with_a_content_type_is_not_json(queue: Queue) -> None:
    queue.put("<p>é</p>", content_type="text/html; charset=utf-8")
    delivery = taken(queue)
    assert (delivery.data, delivery.body) == ("<p>é</p>".encode(), "<p>é</p>")


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (object(), {}),
        ({"when": object()}, {}),
        (lambda: None, {}),
        (1j, {}),
        ("\ud800", {}),
        ("\ud800", {"content_type": "text/plain"}),
        ({(1, 2): 3}, {}),
        (circle(), {}),
    ],
    ids=["object", "object inside", "function", "complex", "surrogate", "text", "tuple key", "circle"],
)
@pytest.mark.usefixtures("unchanged")
def test_what_json_cannot_say_is_refused(queue: Queue, body: Any, options: Any) -> None:
    assert "body" in str(refused(lambda: queue.put(body, **options)))
    refused(lambda: queue.put_many([1, body], **options))


@pytest.mark.parametrize(
    "content_type",
    ["application/x-python-serialize", "application/x-pickle", "application/PICKLE", "x/marshal", "pickle"],
)
@pytest.mark.usefixtures("unchanged")
def test_what_runs_code_when_it_is_decoded_is_refused(queue: Queue, content_type: str) -> None:
    assert "runs code" in str(refused(lambda: queue.put(b"cos\nsystem\n.", content_type=content_type)))


def test_a_megabyte_is_no_trouble(queue: Queue) -> None:
    body = {"text": "x" * MB}
    queue.put(body)
    assert taken(queue).body == body


def test_sixteen_megabytes_are_the_limit(queue: Queue) -> None:
    queue.put(bytes(16 * MB))
    error = refused(lambda: queue.put(bytes(16 * MB + 1)), BodyTooLarge)
    assert isinstance(error, InvalidInput)
    assert error.code == "body_too_large"
    assert queue.stats().depth == 1


@pytest.mark.usefixtures("unchanged")
def test_a_hundred_megabytes_are_refused(queue: Queue) -> None:
    refused(lambda: queue.put(bytes(100 * MB)), BodyTooLarge)


def test_the_limit_can_be_set() -> None:
    with postroom.open("memory://", max_body="1KB") as room:
        queue = room.queue("q")
        queue.put(bytes(1_024))
        refused(lambda: queue.put(bytes(1_025)), BodyTooLarge)
        refused(lambda: queue.put_many([b"small", bytes(1_025)]), BodyTooLarge)
        assert queue.stats().depth == 1


# ---- The same message -----------------------------------------------------------------------------


def test_the_same_id_is_the_same_message(queue: Queue) -> None:
    first = queue.put("one", id=new_id())
    again = queue.put("two", id=first.id)
    assert first.created
    assert not again.created
    assert again.id == first.id
    assert queue.stats().ready == 1
    assert taken(queue).body == "one"
    assert not queue.put("three", id=first.id).created, "while it is processing too"


def test_an_id_is_forgotten_with_its_message_unless_it_is_remembered(
    queue: Queue, clock: ManualClock
) -> None:
    forgotten, kept = queue.put(1), queue.put(2, remember="1h")
    for _ in range(2):
        taken(queue).ack()
    assert queue.put(1, id=forgotten.id).created
    assert not queue.put(2, id=kept.id).created
    clock.advance("1h")
    assert queue.put(2, id=kept.id).created


def test_a_unique_key_lets_one_wait_or_be_worked_on(queue: Queue) -> None:
    first = queue.put("one", unique_key="report")
    assert queue.put("two", unique_key="report") == type(first)(first.id, created=False)
    delivery = taken(queue)
    assert not queue.put("three", unique_key="report").created
    delivery.ack()
    assert queue.put("four", unique_key="report").created


def test_a_message_made_before_can_be_put_as_it_is(queue: Queue) -> None:
    made = queue.message({"n": 1}, priority="high", delay="1s")
    assert queue.put(made).id == made.id
    assert not queue.put(made).created
    (entry,) = entries(queue, State.SCHEDULED)
    assert (entry.message.body, entry.message.priority) == (b'{"n":1}', 10)
    refused(lambda: queue.put(made, priority="low"))


@pytest.mark.usefixtures("unchanged")
def test_a_message_is_only_made_by_message(queue: Queue) -> None:
    assert isinstance(queue.message(1), NewMessage)


# ---- Many -----------------------------------------------------------------------------------------


def test_many_messages_share_their_options(queue: Queue) -> None:
    queue.put_many((n for n in range(3)), kind="count", priority="high", delay="1s", headers={"a": "b"})
    found = entries(queue, State.SCHEDULED)
    assert {(e.message.kind, e.message.priority, e.message.headers["a"]) for e in found} == {
        ("count", 10, "b")
    }
    assert len({entry.message.id for entry in found}) == 3


def test_many_messages_keep_their_order(queue: Queue) -> None:
    puts = queue.put_many(range(2_500))
    assert [put.created for put in puts] == [True] * 2_500
    claimed = [delivery for _ in range(3) for delivery in queue.claim_many(1_000, timeout=0)]
    assert [delivery.body for delivery in claimed] == list(range(2_500))
    assert [delivery.id for delivery in claimed] == [put.id for put in puts]


def test_made_messages_and_bodies_can_be_mixed(queue: Queue) -> None:
    made = queue.message("made", kind="own")
    puts = queue.put_many([b"raw", made, {"a": 1}], kind="shared")
    assert puts[1].id == made.id
    got = [taken(queue) for _ in range(3)]
    assert [(d.body, d.kind) for d in got] == [(b"raw", "shared"), ("made", "own"), ({"a": 1}, "shared")]


def test_many_of_one_content_type(queue: Queue) -> None:
    queue.put_many(["a", b"b"], content_type="text/plain")
    assert [taken(queue).body for _ in range(2)] == ["a", "b"]


def test_none_are_none(queue: Queue) -> None:
    assert queue.put_many([]) == []


def sizes(wire: Wire) -> list[int]:
    return [len(call.args[1]) for call in wire.calls if call.verb == "put"]


def test_many_are_cut_into_calls_of_a_thousand(wire: Wire) -> None:
    room_on(wire).queue("q").put_many(range(2_500))
    assert sizes(wire) == [1_000, 1_000, 500]


def test_and_into_calls_of_sixteen_megabytes(wire: Wire) -> None:
    room_on(wire).queue("q").put_many([bytes(size * MB) for size in (6, 6, 6, 16, 1, 1, 15)])
    assert sizes(wire) == [2, 1, 1, 2, 1]


# ---- No room --------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_says_why(room: Room) -> None:
    queue = room.queue("q", Policy(capacity=2))
    queue.put(1)
    queue.put(2, delay="1h")
    with pytest.raises(QueueFull) as caught:
        queue.put(3)
    assert (caught.value.code, caught.value.reason) == ("queue_full", "capacity")
    assert queue.stats().depth == 2


def test_a_put_of_many_that_does_not_fit_leaves_nothing(room: Room) -> None:
    queue = room.queue("q", Policy(capacity=2))
    refused(lambda: queue.put_many([1, 2, 3]), QueueFull)
    assert queue.stats().depth == 0


def test_a_partial_put_says_what_to_repeat(room: Room) -> None:
    queue = room.queue("q", Policy(capacity=1_500))
    with pytest.raises(PartialPut) as caught:
        queue.put_many(range(2_100))
    partial = caught.value
    assert partial.code == "partial_put"
    assert (len(partial.accepted), len(partial.refused)) == (1_000, 1_100)
    assert isinstance(partial.__cause__, QueueFull)
    assert queue.stats().ready == 1_000
    for delivery in queue.claim_many(1_000, timeout=0):
        delivery.ack()
    assert all(put.created for put in queue.put_many(partial.refused))
    assert [delivery.body for delivery in queue.claim_many(1_000, timeout=0)] == list(range(1_000, 2_000))
    assert [delivery.body for delivery in queue.claim_many(1_000, timeout=0)] == list(range(2_000, 2_100))


def test_a_repeated_put_is_one_message_even_if_only_its_answer_was_lost(wire: Wire) -> None:
    queue = room_on(wire).queue("q")
    messages = [queue.message(n) for n in range(1_200)]
    wire.fail(1, "put")
    with pytest.raises(PostroomError) as lost:
        queue.put_many(messages)
    assert lost.value.code == "engine_unavailable"
    wire.fail(1, "put", arrived=True)
    with pytest.raises(PostroomError):
        queue.put_many(messages)
    assert {put.created for put in queue.put_many(messages)} == {True, False}
    assert queue.stats().ready == 1_200


def test_a_shut_down_room_takes_nothing_more(room: Room) -> None:
    queue = room.queue("q")
    queue.put("before")
    room.shutdown()
    assert refused(lambda: queue.put("after"), Closed).code == "closed"
    refused(lambda: queue.put_many(["after"]), Closed)
    assert queue.stats().depth == 1


# ---- Depth that is worth a warning ----------------------------------------------------------------


def test_a_deep_queue_is_warned_about_once_a_minute(
    room: Room, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("postroom.queue.time.monotonic", lambda: now)
    room.queue("q", Policy(warn_depth=3))
    room.queue("other", Policy(warn_depth=1))

    def warnings(puts: int, name: str = "q") -> list[Any]:
        caplog.clear()
        for n in range(puts):
            room.queue(name).put(n)
        return [record for record in caplog.records if record.levelno == logging.WARNING]

    assert warnings(2) == []
    (record,) = warnings(3)
    assert (record.event, record.queue, record.depth, record.warn_depth) == ("queue.deep", "q", 3, 3)
    assert len(warnings(1, "other")) == 1
    now += 59.9
    assert warnings(3) == []
    now += 0.1
    assert len(warnings(3)) == 1


def test_without_a_limit_nobody_is_warned(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.queue("q").put_many(range(2_000))
    assert caplog.records == []


def test_an_engine_is_asked_for_its_policy_once_not_with_every_put(wire: Wire) -> None:
    queue = room_on(wire).queue("q")
    for n in range(20):
        queue.put(n)
    assert wire.count("queues") == 1
    assert wire.count("put") == 20


def test_a_body_is_refused_before_the_engine_hears_of_it(wire: Wire) -> None:
    refused(lambda: room_on(wire, max_body="1KB").queue("q").put(object()))
    assert wire.count("put") == 0


def test_an_engine_of_a_given_size_refuses_by_itself() -> None:
    room = room_on(MemoryEngine(max_body=10))
    refused(lambda: room.queue("q").put(b"x" * 11), BodyTooLarge)
    room.close()


def test_a_mistyped_option_is_told_what_only_puts_take(room: Room) -> None:
    with pytest.raises(InvalidInput, match=r"content_type, id, and rate_key to put$"):
        room.queue("q").put(1, rate_kye="ada")  # type: ignore[call-arg]  # what is tested


def test_a_mistyped_option_is_told_which_there_are(room: Room) -> None:
    with pytest.raises(InvalidInput, match=r"no option dely for a message; there are kind, priority, delay"):
        room.queue("q").put({}, dely="10m")  # type: ignore[call-arg]
