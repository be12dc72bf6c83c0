"""The lifecycle topic: what happened in the room, read from the log of every queue; and topics, followed.

The lifecycle is virtual: no engine writes it, a reader keeps one cursor per queue. An entry is known by
(queue, id), so whoever resumes from saved cursors can tell a repeat.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from postroom.engine import Engine
from postroom.logs import LogEntry, TopicEntry

#: A follower looks again after this long even when nothing rang (seconds).
_NET = 5.0


class Lifecycle:
    """Follows the history of some queues, or of all, from now on or from saved `cursors`.

    `missed` counts entries that a log's bound took before this reader came for them.
    """

    def __init__(
        self, engine: Engine, queues: list[str] | None = None, cursors: Mapping[str, str] | None = None
    ) -> None:
        self._engine = engine
        self._names = queues
        self.missed: int = 0
        if cursors is None:
            cursors = {queue: engine.log(queue).cursor for queue in self._queues()}
        self.cursors: dict[str, str] = dict(cursors)

    def read(self, limit: int = 100) -> list[LogEntry]:
        """What is new since the last read, oldest first, at most `limit` from each queue."""
        entries: list[LogEntry] = []
        cursors, missed = dict(self.cursors), 0
        for queue in self._queues():
            # A queue that came into being after this reader, or its cursors, is read from its beginning.
            log = self._engine.log(queue, after=cursors.get(queue, ""), limit=limit)
            cursors[queue] = log.cursor
            missed += log.missed
            entries += log.entries
        # Only now: when a queue cannot be read, what was read of the others is read again.
        self.cursors = cursors
        self.missed += missed
        return sorted(entries, key=lambda entry: entry.at)

    def follow(self, timeout: float | None = None) -> Iterator[LogEntry]:
        """Every entry as it happens, until nothing more came before the timeout (seconds in all)."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._engine.waiter((), topics=("lifecycle",)) as waiter:
            waiter.arm()
            while True:
                entries = self.read()
                yield from entries
                left = _NET if end is None else end - time.monotonic()
                if left <= 0:
                    return
                if not entries:  # else there may be more than one read takes
                    waiter.wait(min(left, _NET))

    def _queues(self) -> list[str]:
        return self._names if self._names is not None else [info.name for info in self._engine.queues()]


def follow_topic(
    engine: Engine, topic: str, after: str | None = None, timeout: float | None = None
) -> Iterator[TopicEntry]:
    """Every entry of a topic as it is published, until nothing more came before the timeout (seconds in all).

    Behind a cursor, or (None) from now on; "": from the oldest kept.
    """
    end = None if timeout is None else time.monotonic() + timeout
    cursor = engine.read(topic, after=None).cursor if after is None else after
    with engine.waiter((), topics=(topic,)) as waiter:
        waiter.arm()
        while True:
            page = engine.read(topic, after=cursor)
            cursor = page.cursor
            yield from page.entries
            left = _NET if end is None else end - time.monotonic()
            if left <= 0:
                return
            if not page.entries:  # else there may be more than one read takes
                waiter.wait(min(left, _NET))
