"""A reader of an archive whose RabbitMQ has just come back: the queue is there, and tells of nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from postroom.celery.events import holding
from postroom.celery.events.holding import Held
from postroom.errors import Conflict, EngineUnavailable


def letter(tag: int, left: int) -> Any:
    return SimpleNamespace(body=f"letter {tag}", delivery_tag=tag, delivery_info={"message_count": left})


class Waking:
    """A connection and its channel: so many letters, none of which is counted; a get waits for the leader.

    Once it has one, it counts a consumer that is gone, which has all letters, for `missed` looks.
    """

    def __init__(self, letters: int, missed: int = 0) -> None:
        self._letters = [letter(tag, letters - tag) for tag in range(1, letters + 1)]
        self._has_leader, self._missed = False, missed

    def channel(self) -> Waking:
        return self

    def queue_declare(self, queue: str, *, passive: bool) -> Any:
        if not self._has_leader:
            return SimpleNamespace(message_count=0, consumer_count=0)
        self._missed -= 1
        held = self._missed >= 0
        return SimpleNamespace(message_count=0 if held else len(self._letters), consumer_count=int(held))

    def basic_get(self, queue: str) -> Any:
        self._has_leader = True
        return self._letters.pop(0) if self._letters and not self._missed else None

    def basic_qos(self, size: int, count: int, a_global: bool) -> None:
        assert count == len(self._letters)

    def basic_consume(self, queue: str, callback: Callable[[Any], None]) -> str:
        self._callback = callback
        return "reader"

    def drain_events(self, timeout: float) -> None:
        self._callback(self._letters.pop(0))

    def basic_cancel(self, consumer: str) -> None:
        pass


@pytest.mark.parametrize("missed", [0, 3], ids=["free", "in_the_hands_of_the_dead"])
@pytest.mark.parametrize("letters", [0, 1, 3])
def test_letters_that_are_not_counted_yet_are_held_too(letters: int, missed: int) -> None:
    held = Held(Waking(letters, missed), "archive")
    assert [message.delivery_tag for message in held.messages] == list(range(1, letters + 1))
    assert held.total == letters and held.is_all


def test_letters_that_are_not_handed_out_are_no_empty_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that found nothing would end, and had done nothing."""

    class Stuck(Waking):
        def drain_events(self, timeout: float) -> None:
            raise TimeoutError

    monkeypatch.setattr(holding, "_QUIET", 0.01)
    connection = Stuck(3)
    connection.basic_get("archive")
    with pytest.raises(EngineUnavailable, match="does not hand them out"):
        Held(connection, "archive")


def test_letters_that_somebody_keeps_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "_PATIENCE", 0.01)
    connection = Waking(1, missed=1_000)
    connection.basic_get("archive")
    with pytest.raises(Conflict, match="another reader"):
        Held(connection, "archive")
