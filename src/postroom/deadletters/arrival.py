"""A dead letter of a message that is gone already: it was acked before the work on it failed."""

from __future__ import annotations

import hashlib

from postroom.deadletters.replay import new_message
from postroom.engine import Engine
from postroom.model import Failure, Message


def keep(engine: Engine, message: Message, failure: Failure, once: str) -> str:
    """Keep it as a dead letter of its queue; the letter's id. The same `once` makes the same letter."""
    id = hashlib.sha256(f"{once}:dead".encode(), usedforsecurity=False).hexdigest()[:32]
    engine.put(message.queue, [new_message(message, id=id, failure=failure, unique_key=None)])
    return id
