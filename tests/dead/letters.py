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


def ids(queue: Queue, state: State) -> list[str]:
    return sorted(entry.id for entry in queue.find_all(state))


def bodies(room: Room, queue: str) -> list[Any]:
    """What waits in a queue, taken out and acked."""
    found = []
    while delivery := room.queue(queue).claim(timeout=0):
        found.append(delivery.body)
        delivery.ack()
    return found
