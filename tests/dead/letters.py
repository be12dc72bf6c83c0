"""Dead letters to order, and what became of them."""

from __future__ import annotations

from typing import Any

from postroom.limits import MAX_BATCH
from postroom.model import Failure, State
from postroom.queue import Queue
from postroom.room import Room

FAST = ("chat_events", "fast_default")
HEAVY = ("heavy_payouts",)
BOOM = Failure(type="ValueError", text="boom", traceback="Traceback …")


def bury(room: Room, queue: str, *bodies: Any, failure: Failure = BOOM, **options: Any) -> list[str]:
    """Dead letters, one for each body."""
    where = room.queue(queue)
    made = [where.message(body, **options).replace(failure=failure) for body in bodies]
    ids: list[str] = []
    for first in range(0, len(made), MAX_BATCH):
        ids += [put.id for put in room.engine.put(queue, made[first : first + MAX_BATCH]).puts]
    return ids


def check_fields(shown: dict[str, Any], *, worked: bool = True, raised: bool = False) -> None:
    """Every field of a dead letter says something, and they fit together.

    worked   somebody had it in hand: then there is a worker and the history of the attempts
    raised   an exception ended it: then there is a traceback
    """
    texts = ("id", "queue", "task_id", "task_name", "exception", "classification", "group", "payload_hash")
    assert all(isinstance(shown[name], str) and shown[name] for name in texts), shown
    assert {"args", "kwargs", "correlation_id", "due_at"} <= shown.keys()
    assert len(shown["payload_hash"]) == 40
    assert bool(shown["traceback"]) is raised, shown
    assert shown["put_at"] <= shown["died_at"]
    attempts = shown["attempts"]
    assert bool(attempts) is bool(shown["worker"]) is worked, shown
    assert shown["retries"] >= max(0, len(attempts) - 1)
    for attempt in attempts:
        assert shown["put_at"] <= attempt["started_at"] <= attempt["ended_at"] <= shown["died_at"], shown
        assert attempt["error"], shown
        assert attempt["consumer"], shown
    if attempts:
        assert attempts[-1]["consumer"] == shown["worker"]


def ids(queue: Queue, state: State) -> list[str]:
    return sorted(entry.id for entry in queue.find_all(state))


def bodies(room: Room, queue: str) -> list[Any]:
    """What waits in a queue, taken out and acked."""
    found = []
    while delivery := room.queue(queue).claim(timeout=0):
        found.append(delivery.body)
        delivery.ack()
    return found
