"""What workers answer to `celery control retry`, which all of them hear at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import postroom
from postroom.celery import control
from postroom.deadletters import DeadLetters
from postroom.model import Failure, NewMessage
from postroom.room import Room


def state_in(room: Room) -> Any:
    """What Celery hands to a command, as far as a command of ours looks."""
    transport = SimpleNamespace(office=SimpleNamespace(room=room))
    return SimpleNamespace(consumer=SimpleNamespace(connection=SimpleNamespace(transport=transport)))


def test_a_letter_that_another_worker_replays_meanwhile_is_told_by_its_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with postroom.open("memory://") as room:
        id = room.queue("work").put(NewMessage(body=b"1", failure=Failure(type="ValueError"))).id
        before, look = iter([DeadLetters(room).get(id)]), DeadLetters.get
        replayed = DeadLetters(room).replay([id]).last
        # The look of a worker that comes second was before the first one's replay.
        monkeypatch.setattr(DeadLetters, "get", lambda self, id: next(before, None) or look(self, id))
        assert control.retry(state_in(room), id) == {"ok": f"{id} was replayed before, as {replayed}"}
        assert control.retry(state_in(room), "nobody") == {"error": "there is no dead letter nobody"}
