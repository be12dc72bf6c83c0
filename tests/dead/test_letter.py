"""Every way to give up ends in a dead letter that says everything about it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from postroom import Bury, Worker
from postroom.call import Payload, payload_of
from postroom.deadletters import Classification, DeadLetter, DeadLetters, call_of, classify, keep
from postroom.delivery import Delivery
from postroom.model import Failure, Message, NewMessage
from postroom.policy import Policy
from postroom.room import Room
from tests.dead.letters import BOOM, bury, check_fields
from tests.door.staging import eventually


def only(dead: DeadLetters) -> DeadLetter:
    (letter,) = dead.find().letters
    return letter


def work(room: Room, handler: Any, **policy: Any) -> None:
    room.queue("jobs", Policy(**{"max_attempts": 1, **policy}))
    worker = Worker(room, {"jobs": handler})
    worker.run(drain=True)


def test_attempts_used_up(room: Room, dead: DeadLetters) -> None:
    def fail(delivery: Delivery) -> None:
        raise ValueError("no such user 42")

    put = room.queue("jobs").put({"user": 42}, kind="mail.send", correlation_id="request-7")
    before = int(time.time() * 1_000) - 60_000
    work(room, fail)
    shown = only(dead).as_dict()
    check_fields(shown, raised=True)
    assert (shown["id"], shown["queue"], shown["task_id"]) == (put.id, "jobs", put.id)
    assert (shown["task_name"], shown["args"], shown["kwargs"]) == ("mail.send", [{"user": 42}], {})
    assert shown["exception"] == "ValueError: no such user 42"
    assert "in fail" in shown["traceback"]
    assert shown["classification"] == "exception"
    assert (shown["retries"], shown["correlation_id"]) == (0, "request-7")
    assert len(shown["payload_hash"]) == 40
    assert shown["worker"] == shown["attempts"][0]["consumer"] != ""
    assert before < shown["put_at"] <= shown["attempts"][0]["started_at"] <= shown["died_at"]
    assert shown["group"] == only(dead).group != ""


def test_the_history_of_the_attempts_is_there(room: Room, dead: DeadLetters) -> None:
    def fail(delivery: Delivery) -> None:
        raise ValueError(f"attempt {delivery.attempt}")

    room.queue("jobs").put({})
    room.queue("jobs", Policy(max_attempts=3, backoff="0s"))
    Worker(room, {"jobs": fail}).run(drain=True)
    letter = only(dead)
    assert [attempt.error for attempt in letter.attempts] == [f"ValueError: attempt {n}" for n in range(3)]
    assert letter.retries == 2


def test_rejected_by_the_handler(room: Room, dead: DeadLetters) -> None:
    def refuse(delivery: Delivery) -> None:
        raise Bury("never for this address")

    room.queue("jobs").put({})
    work(room, refuse)
    assert only(dead).classification is Classification.REJECTED
    assert only(dead).failure.text == "never for this address"
    check_fields(only(dead).as_dict(), raised=True)


def test_rejected_by_a_consumer(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs").put({})
    delivery = room.queue("jobs").claim(timeout=0)
    assert delivery is not None
    delivery.bury("wrong tenant")
    assert only(dead).classification is Classification.REJECTED
    assert only(dead).failure.summary == "Rejected: wrong tenant"
    check_fields(only(dead).as_dict())


def test_undecodable(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs").put("{no json", content_type="application/json")
    work(room, lambda delivery: delivery.body)
    letter = only(dead)
    assert letter.classification is Classification.UNDECODABLE
    assert letter.as_dict()["args"] == ["{no json"]
    check_fields(letter.as_dict(), raised=True)


def test_no_handler(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs").put({}, kind="unknown")
    worker = Worker(room, queues=["jobs"])
    worker.handle(queue="jobs", kind="known")(lambda delivery: None)
    worker.run(drain=True)
    letter = only(dead)
    assert (letter.failure.type, letter.classification) == ("NoHandler", Classification.UNDECODABLE)
    check_fields(letter.as_dict())


def test_expired(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs").put({}, expires="1ms")
    eventually(lambda: room.engine.sweep("jobs").expired, 60)
    assert only(dead).classification is Classification.EXPIRED
    check_fields(only(dead).as_dict(), worked=False)


def test_the_consumer_went_silent(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs", Policy(max_attempts=1, lease="300ms", ack_timeout=None))
    room.queue("jobs").put({})
    assert room.queue("jobs").claim(timeout=0)
    eventually(lambda: room.engine.sweep("jobs").dead, 60)
    letter = only(dead)
    assert letter.classification is Classification.CRASH_LOOP
    assert letter.worker == room.consumer or letter.worker.startswith(room.consumer)
    check_fields(letter.as_dict())


def test_the_work_took_too_long(room: Room, dead: DeadLetters) -> None:
    room.queue("jobs", Policy(max_attempts=1, lease="300ms", ack_timeout="300ms"))
    room.queue("jobs").put({})
    assert room.queue("jobs").claim(timeout=0)
    eventually(lambda: room.engine.sweep("jobs").dead, 60)
    assert only(dead).classification is Classification.TIMEOUT
    check_fields(only(dead).as_dict())


def test_a_failure_of_what_was_acked_early(room: Room, dead: DeadLetters) -> None:
    put = room.queue("jobs").put({"a": 1}, kind="late", correlation_id="task-1")
    delivery = room.queue("jobs").claim(timeout=0)
    assert delivery is not None
    delivery.ack()
    eventually(lambda: room.engine.now() > delivery.message.put_at + 20, 60)
    told: dict[str, Any] = {"consumer": "host:7", "took": 10, "earlier": 2}
    id = keep(room.engine, delivery.message, BOOM, put.id, **told)
    assert keep(room.engine, delivery.message, BOOM, put.id, **told) == id
    letter = only(dead)
    shown = letter.as_dict()
    check_fields(shown, raised=True)
    assert (letter.id, shown["task_id"], dead.get("task-1").id) == (id, id, id)
    assert (shown["worker"], shown["retries"], shown["put_at"]) == ("host:7", 2, delivery.message.put_at)
    (attempt,) = letter.attempts
    assert (attempt.ended_at - attempt.started_at, attempt.error) == (10, "ValueError: boom")


CELERY = {"task": "shop.pay", "id": "task-9", "retries": "4", "argsrepr": "(1,)", "kwargsrepr": "{}"}


def message(body: bytes, **fields: Any) -> Message:
    return Message(id=NewMessage().id, queue="q", body=body, put_at=1, due=1, **fields)


BODY = b'[[1], {"invoice": 7}, {"chain": null}]'


def test_the_call_of_a_celery_task() -> None:
    call = call_of(message(BODY, headers=CELERY))
    assert call == ("task-9", "shop.pay", [1], {"invoice": 7}, 4)


def test_the_call_of_a_celery_task_as_the_transport_keeps_it() -> None:
    plain = {"kind": "shop.pay", "correlation_id": "task-9"}
    assert call_of(message(BODY, **plain)) == ("task-9", "shop.pay", [1], {"invoice": 7}, 0)
    retried = {"k": '{"h":{"retries":4,"argsrepr":"(1,)","kwargsrepr":"{}"}}'}
    assert call_of(message(BODY, **plain, headers=retried)).retries == 4
    pickled = message(b"\x80", **plain, headers=retried, content_type="application/octet-stream")
    assert call_of(pickled) == ("task-9", "shop.pay", "(1,)", "{}", 4)


def test_a_plain_message_is_not_taken_for_a_celery_task() -> None:
    event = message(b'{"a": 1}', kind="k", correlation_id="c", headers={"k": '{"h":{"a":"b"},"x":1}'})
    assert call_of(event)[1:4] == ("k", [{"a": 1}], {})
    assert call_of(message(BODY))[2] == [[[1], {"invoice": 7}, {"chain": None}]]
    assert call_of(message(b"1", headers={"k": "no json"}))[2] == [1]


def test_a_celery_body_that_is_not_json_is_shown_as_celery_printed_it() -> None:
    pickled = message(b"\x80\x04", headers=CELERY, content_type="application/x-python-serialize")
    assert call_of(pickled)[2:4] == ("(1,)", "{}")


def test_a_celery_body_that_only_should_be_json_is_shown_as_it_is() -> None:
    told = {"task": "shop.pay", "id": "task-9"}
    assert call_of(message(b"[[1], {", headers=told))[2:4] == ([b"[[1], {"], {})
    assert call_of(message(b"[[1], {", headers=CELERY))[2:4] == ("(1,)", "{}")


def test_a_call_of_bytes_can_be_written_as_json(room: Room, dead: DeadLetters) -> None:
    bury(room, "jobs", b"\xff\x00")
    assert only(dead).as_dict()["args"] == [{"base64": "/wA="}]


def test_the_payload_of_a_task_is_its_call_and_of_anything_else_its_body(
    room: Room, dead: DeadLetters
) -> None:
    assert payload_of(message(BODY, headers=CELERY)) == Payload({"args": [1], "kwargs": {"invoice": 7}}, True)
    transported: dict[str, Any] = {"kind": "shop.pay", "correlation_id": "task-9"}
    assert payload_of(message(BODY, **transported)).is_call
    event = message(b'{"a": 1}', headers={"task": "order.placed", "id": "event-1"})
    assert payload_of(event) == Payload({"a": 1})
    assert payload_of(message(b"[1, null]")) == Payload([1, None])
    assert payload_of(message("grüezi".encode(), content_type="text/plain")) == Payload("grüezi")
    bury(room, "jobs", {"user": 42})
    assert only(dead).payload == Payload({"user": 42})
    assert "payload" not in only(dead).as_dict()


PICKLED = {"k": '{"h":{"origin":"shop"},"t":"application/x-python-serialize","e":"binary"}'}
PACKED = {"k": '{"h":{"compression":"application/x-gzip"}}'}
BYTES = {"content_type": "application/octet-stream"}


@pytest.mark.parametrize(
    ("carried", "why"),
    [
        (
            message(b"\x80\x04N.", headers=PICKLED, **BYTES),
            "python-serialize, and to read that would run code",
        ),
        (message(b"\x80", content_type="application/x-pickle"), "application/x-pickle is refused"),
        (message(b"- [1]", content_type="application/x-yaml"), "is application/x-yaml, which is neither"),
        (message(b"\x1f\x8b", headers=PACKED), "is compressed (application/x-gzip)"),
        (message(b"\x1f\x8b", headers=PACKED, **BYTES), "is compressed (application/x-gzip)"),
        (message(b"\x00", **BYTES), "is application/octet-stream, which is neither JSON nor text"),
        (message(b"[[1], {", headers=CELERY), "is not application/json"),
        (message(b"[[NaN], {}, {}]", headers=CELERY), "cannot be written as JSON: NaN and infinity"),
        (message(b'"\\ud800"'), "cannot be written as JSON: 'utf-8' codec"),
    ],
    ids=["pickle", "native pickle", "yaml", "gzip", "gzip of bytes", "bytes", "garbled", "NaN", "surrogate"],
)
def test_a_payload_that_cannot_be_edited_says_why(carried: Message, why: str) -> None:
    payload = payload_of(carried)
    assert (payload.value, payload.is_call) == (None, False)
    assert why in payload.fixed


@pytest.mark.parametrize(
    ("failure", "classification"),
    [
        (Failure(type="LeaseExpired"), "crash-loop"),
        (Failure(type="LeaseExpired", traceback="raised by a handler"), "exception"),
        (Failure(type="Expired", traceback="raised by a handler"), "exception"),
        (Failure(type="TimeoutError", traceback="…"), "timeout"),
        (Failure(type="WorkerLostError", traceback="…"), "crash-loop"),
        (Failure(type="NotRegistered", traceback="…"), "undecodable"),
        (Failure(type="KeyError", traceback="…"), "exception"),
        (Failure(type="Failed"), "exception"),
    ],
)
def test_the_class_of_a_failure(failure: Failure, classification: str) -> None:
    assert classify(failure) == classification
