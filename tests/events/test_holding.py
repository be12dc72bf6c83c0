"""A reader of an archive whose RabbitMQ has just come back: the queue is there, and tells of nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from postroom.celery.events.holding import Held


def letter(tag: int, left: int) -> Any:
    return SimpleNamespace(body=f"letter {tag}", delivery_tag=tag, delivery_info={"message_count": left})


class Waking:
    """A connection and its channel: so many letters, none of which is counted; a get waits for the leader."""

    def __init__(self, letters: int) -> None:
        self._letters = [letter(tag, letters - tag) for tag in range(1, letters + 1)]

    def channel(self) -> Waking:
        return self

    def queue_declare(self, queue: str, *, passive: bool) -> Any:
        return SimpleNamespace(message_count=0)

    def basic_get(self, queue: str) -> Any:
        return self._letters.pop(0) if self._letters else None

    def basic_qos(self, size: int, count: int, a_global: bool) -> None:
        assert count == len(self._letters)

    def basic_consume(self, queue: str, callback: Callable[[Any], None]) -> str:
        self._callback = callback
        return "reader"

    def drain_events(self, timeout: float) -> None:
        self._callback(self._letters.pop(0))

    def basic_cancel(self, consumer: str) -> None:
        pass


@pytest.mark.parametrize("letters", [0, 1, 3])
def test_letters_that_are_not_counted_yet_are_held_too(letters: int) -> None:
    held = Held(Waking(letters), "archive")
    assert [message.delivery_tag for message in held.messages] == list(range(1, letters + 1))
    assert held.total == letters and held.is_all
