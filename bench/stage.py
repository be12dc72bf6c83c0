"""What a trial stands on: an engine's URL, a queue for it alone, and bodies of 200 bytes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import postroom
from postroom.model import NewMessage
from postroom.queue import Queue

#: What can be measured: a name and the URL to open. A new engine is one line.
ENGINES = {
    "memory": "memory://",
}

_FRAME = {"to": "ada@example.org", "subject": "the news of the day", "text": ""}
#: Exactly 200 bytes when written as compact JSON, which is what a queue makes of it.
BODY = _FRAME | {"text": "x" * (200 - len(json.dumps(_FRAME, separators=(",", ":"))))}
DATA = json.dumps(BODY, separators=(",", ":")).encode()


class Stage(NamedTuple):
    """What to measure on, and whether it should be quick rather than exact."""

    url: str
    quick: bool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def queue(self) -> Iterator[Queue]:
        """A new queue in a room of its own; both are gone afterwards."""
        with postroom.open(self.url) as room:
            queue = room.queue(f"bench-{secrets.token_hex(8)}")
            try:
                yield queue
            finally:
                queue.drop(force=True)


def fill(queue: Queue, count: int) -> None:
    """Put so many messages, in calls as large as the contract allows."""
    while count > 0:
        queue.room.engine.put(queue.name, [NewMessage(body=DATA) for _ in range(min(count, 1_000))])
        count -= 1_000
