"""Dead letters as lines of JSON, and back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from postroom import Worker, audit
from postroom.deadletters import DeadLetters, Filter
from postroom.delivery import Delivery
from postroom.errors import InvalidInput
from postroom.model import State
from postroom.policy import Policy
from postroom.room import Room
from tests.dead.letters import BOOM, bury, ids


def exported(dead: DeadLetters, filter: Filter | None = None) -> list[bytes]:
    file = io.BytesIO()
    count = dead.export(file.write, filter or Filter())
    lines = file.getvalue().splitlines(keepends=True)
    assert len(lines) == count
    return lines


def test_a_line_tells_everything(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "chat_events", {"n": 1}, kind="send", correlation_id="c")
    (line,) = exported(dead)
    shown = json.loads(line)
    assert shown.items() >= dead.get(id).as_dict().items()
    assert shown["postroom"] == 1


def test_what_went_out_comes_back_the_same(room: Room, dead: DeadLetters) -> None:
    options: dict[str, Any] = {
        "kind": "send",
        "headers": {"a": "b"},
        "priority": 9,
        "correlation_id": "c",
        "max_attempts": 4,
    }
    bury(room, "chat_events", {"n": 1}, **options, unique_key="k", remember="1h", ack_timeout="7s")
    bury(room, "heavy_payouts", b"\xff\x00")
    lines = exported(dead)
    before = [(letter.entry.message, letter.failure) for letter in dead.find().letters]
    for queue in ("chat_events", "heavy_payouts"):
        room.queue(queue).drop(force=True)
    assert dead.bring_in(lines) == (2, 2)
    for (message, failure), letter in zip(before, dead.find().letters, strict=True):
        again = letter.entry.message
        names = ("id", "queue", "body", "content_type", "unique_key", "remember", "ack_timeout", *options)
        assert [getattr(again, name) for name in names] == [getattr(message, name) for name in names]
        assert (letter.failure.summary, letter.failure.traceback) == (failure.summary, failure.traceback)
        assert letter.group == failure.fingerprint


def test_the_history_of_a_letter_goes_with_it(room: Room, dead: DeadLetters) -> None:
    def fail(delivery: Delivery) -> None:
        raise ValueError(f"attempt {delivery.attempt}")

    room.queue("chat_events", Policy(max_attempts=25, backoff="0s"))
    room.queue("chat_events").put({}, correlation_id="c")
    Worker(room, {"chat_events": fail}).run(drain=True)
    (letter,) = dead.find().letters
    lines, before = exported(dead), letter.as_dict()
    room.queue("chat_events").drop(force=True)
    assert dead.bring_in(lines) == (1, 1)
    (again,) = dead.find().letters
    assert again.as_dict() | {"died_at": 0} == before | {"died_at": 0}
    assert (again.retries, len(again.attempts)) == (24, 20)


def test_a_line_of_an_older_release_is_understood(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "chat_events", {})
    (line,) = exported(dead)
    room.queue("chat_events").drop(force=True)
    old = {name: value for name, value in json.loads(line).items() if name not in ("attempt", "put_at")}
    assert dead.bring_in([json.dumps(old).encode()]) == (1, 1)
    assert dead.get(id).attempts == ()


def test_a_file_that_is_read_twice_makes_no_second_letter(room: Room, dead: DeadLetters) -> None:
    made = bury(room, "chat_events", *range(3))
    lines = exported(dead)
    room.queue("chat_events").discard(made[0])
    assert dead.bring_in(lines) == (3, 1)
    assert dead.bring_in(lines) == (3, 0)
    assert ids(room.queue("chat_events"), State.DEAD) == sorted(made)


def test_many_lines_of_several_queues(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(1_200))
    bury(room, "fast_default", *range(30))
    lines = exported(dead)
    dead.discard(Filter())
    told: list[int] = []
    assert dead.bring_in(lines, on_progress=told.append) == (1_230, 1_230)
    assert told == [500, 1_000, 1_200, 1_230]
    assert dead.groups().groups[0].queues == {"chat_events": 1_200, "fast_default": 30}


def test_into_one_queue_and_only_what_matches(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", {"n": 1}, {"n": 2})
    (line,) = exported(dead, Filter(where={"n": "2"}))
    assert dead.bring_in([line], to="heavy_payouts") == (1, 1)
    assert room.queue("heavy_payouts").stats().dead == 1
    act = audit.read(room.engine).acts[-1]
    assert (act.event, act.queue, act.count) == ("import", "heavy_payouts", 1)


@pytest.mark.parametrize(
    "line", [b"no json", b"{}", b'{"postroom": 2}', b'{"postroom":1,"id":"x","queue":"q"}']
)
def test_a_line_that_is_no_letter_is_refused_with_its_number(
    room: Room, dead: DeadLetters, line: bytes
) -> None:
    bury(room, "chat_events", 1, failure=BOOM)
    (good,) = exported(dead)
    with pytest.raises(InvalidInput, match="line 3: this is no dead letter"):
        dead.bring_in([good, b"\n", line])


def test_a_newer_form_and_a_wrong_id_are_refused(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1)
    (line,) = exported(dead)
    shown = json.loads(line)
    for change in ({"postroom": 2}, {"id": "short"}):
        with pytest.raises(InvalidInput, match="line 1"):
            dead.bring_in([json.dumps(shown | change).encode()])
