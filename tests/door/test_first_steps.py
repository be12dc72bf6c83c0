"""Mistakes of the first day: each is met with a sentence, not with a surprise."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from postroom import Delivery, Retry, Worker
from postroom.errors import InvalidInput
from postroom.ids import new_id
from postroom.room import Room
from tests.door.staging import taken


@pytest.mark.parametrize(
    "body", [math.nan, {"a": [1, math.inf]}, [None, (-math.inf,)], {"x": {"y": math.nan}}]
)
def test_a_number_that_is_none_is_not_turned_into_null(room: Room, body: Any) -> None:
    with pytest.raises(InvalidInput, match="NaN"):
        room.queue("q").put(body)
    assert room.queue("q").stats().depth == 0


@pytest.mark.parametrize("body", [None, {"a": None}, "null", [1.5, None]])
def test_null_itself_is_fine(room: Room, body: Any) -> None:
    room.queue("q").put(body)
    assert taken(room.queue("q")).body == body


def test_retry_takes_its_span_first(room: Room) -> None:
    queue = room.queue("q")
    put = queue.put(1)
    with taken(queue):
        raise Retry("10m")
    entry = queue.get(put.id)
    assert entry.due - entry.message.put_at == 600_000


def test_a_handler_is_registered_with_parentheses(room: Room) -> None:
    worker = Worker(room)
    with pytest.raises(InvalidInput, match="parentheses"):
        worker.handle(lambda delivery: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("handlers", [print, ["q"], "q", {"q": "print"}, {"q": {"kind": print}}])
def test_handlers_are_functions_by_queue(room: Room, handlers: Any) -> None:
    with pytest.raises(InvalidInput, match="handler"):
        Worker(room, handlers)


@pytest.mark.parametrize("options", [{"concurrency": "4"}, {"concurrency": 0}, {"prefetch": 1.5}])
def test_numbers_of_a_worker_are_numbers(room: Room, options: Any) -> None:
    with pytest.raises(InvalidInput):
        Worker(room, {"q": print}, **options)


def test_a_worker_needs_an_open_room() -> None:
    with pytest.raises(InvalidInput, match=r"postroom\.open"):
        Worker("memory://", {"q": print})  # type: ignore[arg-type]


def test_a_policy_is_a_policy(room: Room) -> None:
    with pytest.raises(InvalidInput, match="Policy"):
        room.queue("q", policy={"max_attempts": 2})  # type: ignore[arg-type]


def test_one_queue_may_be_followed_by_its_name(room: Room) -> None:
    lifecycle = room.lifecycle("q")
    room.queue("q").pause()
    assert [entry.event for entry in lifecycle.read()] == ["pause"]


def test_every_message_of_a_state_page_by_page(room: Room) -> None:
    queue = room.queue("q")
    queue.put_many(range(250))
    assert len({entry.id for entry in queue.find_all("ready", limit=100)}) == 250


def test_a_log_line_about_a_handler_says_which_message(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    put = room.queue("q").put(1)

    def handler(delivery: Delivery) -> None:
        raise ValueError("no such customer")

    Worker(room, {"q": handler}, keeper=False).run(drain=True)
    (record,) = [record for record in caplog.records if record.__dict__.get("event") == "handler.failed"]
    assert put.id in record.getMessage()
    assert "no such customer" in record.getMessage()


def test_a_program_that_configures_no_logging_is_told_why_its_handler_fails() -> None:
    program = """
import postroom

with postroom.open("memory://") as room:
    room.queue("q").put({"to": "ada"})
    postroom.Worker(room, {"q": lambda delivery: delivery.body["too"]}).run(drain=True)
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and not ran.stdout
    assert "handler failed on" in ran.stderr
    assert "KeyError: 'too'" in ran.stderr


def test_one_id_is_not_given_to_many(room: Room) -> None:
    with pytest.raises(InvalidInput, match="one message"):
        room.queue("q").put_many([1, 2], id=new_id())
    assert room.queue("q").stats().depth == 0
