"""What one transaction does: changes of queues, topics and records, and whom to wake when it is on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from postroom.engines.sqlite.sql import SQL
from postroom.engines.sqlite.state import SqliteState
from postroom.engines.steps.bells import topic_bell
from postroom.engines.steps.engine import Step, T
from postroom.limits import TOPIC_LIMIT, topic_age
from postroom.policy import Policy

DEFAULT = Policy()
#: A time that is further ahead than this came from a clock that was wrong for a moment (ms).
_GLITCH = 86_400_000
#: How many queues are kept in memory at most.
_MOST_KNOWN = 1_000


Ring = Callable[[dict[str, int], set[str]], None]


def steady(now: int, last: int) -> int:
    """The time, which holds still rather than go back; more than a day back, the last was wrong."""
    return last if now < last <= now + _GLITCH else now


class Known:
    """Queues as the last transactions of a connection left them: as good as read, if nobody else wrote."""

    def __init__(self) -> None:
        self._states: dict[str, SqliteState] = {}
        self._connection: sqlite3.Connection | None = None
        self._version: tuple[int] | None = None
        self._sure = True

    def begin(self, connection: sqlite3.Connection) -> None:
        """A transaction has begun. If another connection wrote, or ours rolled back, all is forgotten."""
        # The number counts the commits of others, from the opening of the connection.
        version = connection.execute("PRAGMA data_version").fetchone()
        same = self._sure and connection is self._connection and version == self._version
        if not same or len(self._states) > _MOST_KNOWN:
            self._states.clear()
        self._connection, self._version, self._sure = connection, version, False

    def committed(self) -> None:
        self._sure = True

    def take(self, queue: str) -> SqliteState | None:
        """The queue, to be given back by `keep` when a step has succeeded with it."""
        return self._states.pop(queue, None)

    def keep(self, state: SqliteState) -> None:
        if state.key:
            self._states[state.name] = state


class Transaction:
    """The context of the steps that are committed together."""

    def __init__(self, connection: sqlite3.Connection, now: int, known: Known, ring: Ring) -> None:
        self.connection = connection
        self._known = known
        known.begin(connection)
        #: Read after the transaction had begun: to get its turn may have taken a while.
        self.now = now
        self._ring = ring
        #: Queues with the number of waiters to wake, and names all of whose waiters wake.
        self._rings: dict[str, int] = {}
        self._bells: set[str] = set()

    def change(self, queue: str, step: Step[T], make: Policy | None) -> T:
        """Run the step on the queue, made with this policy if need be, and write what becomes of it."""
        state = self._known.take(queue)
        if state is None:
            state = SqliteState.load(self.connection, queue, self.now, make or DEFAULT)
        now = steady(self.now, state.last_call)
        if make and not state.key:
            state.make(now)
        state.reached(now)
        result = step(state, now)
        if state.announce(now):
            self._bells.add(topic_bell("lifecycle"))
        if count := state.rings_wanted():
            self._rings[queue] = max(count, self._rings.get(queue, 0))
        state.save()
        self._known.keep(state)
        return result

    def forget(self, queue: str) -> None:
        """The queue is no more what it was, by other means than a step."""
        self._known.take(queue)

    def publish(self, topic: str, entries: Sequence[bytes], keep: int = TOPIC_LIMIT) -> None:
        """Append to a topic, and let go of what is too much or too old."""
        row = self.connection.execute(SQL["topic"], (topic,)).fetchone()
        first = row[0] + 1 if row else 1
        last = first + len(entries) - 1
        rows = ((topic, id, self.now, data) for id, data in enumerate(entries, first))
        self.connection.executemany(SQL["publish"], rows)
        self.connection.execute(SQL["save_topic"], (topic, last))
        old = self.now - topic_age(topic)
        prune = {"topic": topic, "last": last, "beyond": last - keep, "old": old}
        self.connection.execute(SQL["prune_topic"], prune)
        self._bells.add(topic_bell(topic))

    def committed(self) -> None:
        """Wake whom it concerns. A step that was undone may have asked for a ring: that does no harm."""
        self._known.committed()
        self._ring(self._rings, self._bells)
