"""A dead letter of a message that is gone already: it was acked before the work on it failed."""

from __future__ import annotations

import hashlib

from postroom.deadletters.replay import new_message
from postroom.engine import Engine
from postroom.model import Attempt, Failure, Message, Past


def keep(
    engine: Engine,
    message: Message,
    failure: Failure,
    once: str,
    *,
    consumer: str,
    took: int,
    earlier: int = 0,
) -> str:
    """Keep it as a dead letter of its queue; the letter's id. The same `once` makes the same letter.

    `consumer` worked on it just now, for so long (ms), after so many `earlier` attempts.
    """
    now = engine.now()
    last = Attempt(consumer=consumer, started_at=now - took, ended_at=now, error=failure.summary[:500])
    past = Past(put_at=message.put_at, attempt=earlier + 1, attempts=(last,))
    id = hashlib.sha256(f"{once}:dead".encode(), usedforsecurity=False).hexdigest()[:32]
    engine.put(message.queue, [new_message(message, id=id, failure=failure, past=past, unique_key=None)])
    return id
