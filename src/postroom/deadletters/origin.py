"""Where a message comes from that is the replay of a dead letter.

No message carries that: a replay is a message like any other, and its id follows from the letter's. So the
letter is looked for, first where the queue's history tells of replays, then among the letters themselves;
bounded, and never wrong, since the letter names its replays. One that is gone is not found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from postroom.engine import Engine
from postroom.logs import Event
from postroom.model import Entry, Message, State

#: How many entries of a history and how many letters are looked at, and for how long (seconds).
_ENTRIES, _LETTERS, _SECONDS = 10_000, 5_000, 1.0
_PAGE = 200
#: The part of an id that a replay has from its letter.
_SHARED = 12
#: A message whose id is so much older than its put (ms) may be a replay; most are not, and cost no search.
_YOUNG = 1_000


def origin(engine: Engine, message: Message, queues: list[str]) -> Entry | None:
    """The dead letter that this message is a replay of, in its own queue or one of these."""
    end = time.monotonic() + _SECONDS
    for id in _told(engine, message):
        (entry,) = engine.get(message.queue, [id])
        if entry and message.id in entry.replayed_as:
            return entry
    if message.put_at - int(message.id[:_SHARED], 16) < _YOUNG:
        return None
    looked = 0
    for queue in dict.fromkeys((message.queue, *queues)):
        for page in _pages(engine, queue):
            looked += len(page)
            for entry in page:
                if message.id in entry.replayed_as:
                    return entry
            if looked >= _LETTERS or time.monotonic() > end:
                return None
    return None


def _told(engine: Engine, message: Message) -> Iterator[str]:
    """Letters of its queue that were replayed, and whose id it could have."""
    after, looked = "", 0
    while looked < _ENTRIES and (log := engine.log(message.queue, after=after, limit=1_000)).entries:
        after, looked = log.cursor, looked + len(log.entries)
        for entry in log.entries:
            if entry.event == Event.REPLAY:
                yield from (id for id in entry.ids if id[:_SHARED] == message.id[:_SHARED])


def _pages(engine: Engine, queue: str) -> Iterator[list[Entry]]:
    cursor = None
    while True:
        page = engine.find(queue, State.DEAD, cursor=cursor, limit=_PAGE)
        yield page.entries
        if (cursor := page.cursor) is None:
            return
