"""Marks on charts: what somebody marks, what is noted about incidents, and how much of it is kept."""

from __future__ import annotations

import pytest

from postroom import audit, marks
from postroom.deadletters import DeadLetters
from postroom.errors import InvalidInput
from postroom.model import Failure, NewMessage
from postroom.room import Room
from postroom.testing import ManualClock

HOUR = 3_600_000


def test_a_deploy_is_marked_and_noted(room: Room, clock: ManualClock) -> None:
    with audit.acting("ada"):
        made = marks.add(room.engine, " deploy 1.2 ")
    assert made == marks.Mark(at=clock(), text="deploy 1.2", by="ada")
    assert marks.read(room.engine, HOUR) == [made]
    act = audit.read(room.engine).acts[-1]
    assert (act.event, act.by, act.info) == ("mark", "ada", {"text": "deploy 1.2", "cause": "deploy"})


def test_they_come_in_order_and_only_within_the_span(room: Room, clock: ManualClock) -> None:
    for text in ("one", "two", "three"):
        marks.add(room.engine, text, "note")
        clock.advance("1h")
    assert [mark.text for mark in marks.read(room.engine, 2 * HOUR + 1)] == ["two", "three"]
    clock.advance("31d")
    assert marks.read(room.engine, 60 * 24 * HOUR) == []


def test_what_is_noted_about_incidents_is_there_too(live: Room) -> None:
    """By the wall clock: so are notes."""
    live.engine.put("emails", [NewMessage(failure=Failure(type="Boom", fingerprint="boom"))])
    dead = DeadLetters(live)
    dead.note("boom", "the bank is down", status="acknowledged")
    dead.note("boom", status="resolved")
    found = [(mark.text, mark.cause, mark.group) for mark in marks.read(live.engine, HOUR)]
    assert found == [
        ("incident: the bank is down", "incident", "boom"),
        ("resolved: the bank is down", "incident", "boom"),
    ]


def test_the_oldest_goes_when_there_are_too_many(
    room: Room, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST", 3)
    for number in range(5):
        marks.add(room.engine, str(number))
        clock.advance("1s")
    assert [mark.text for mark in marks.read(room.engine, HOUR)] == ["2", "3", "4"]


@pytest.mark.parametrize("text", ["", "  ", "x" * 121, None])
def test_what_says_nothing_or_too_much_is_refused(room: Room, text: str) -> None:
    with pytest.raises(InvalidInput, match="mark"):
        marks.add(room.engine, text)
    with pytest.raises(InvalidInput, match="cause"):
        marks.add(room.engine, "x", "party")
