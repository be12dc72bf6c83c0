"""The SQLite engine: the steps of the contract as transactions on one file.

Every change is one step in a transaction of this process's one writer, which commits the steps of
several threads together; looks have a connection of their own and do not wait for writers. Who waits
is woken after the commit: in this process directly, in others by the doorbell.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from postroom.engine import Capabilities, QueueInfo
from postroom.engines.sqlite import forks, inspection, outbox, trash
from postroom.engines.sqlite.checkpointer import Checkpointer
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.putting import Putting
from postroom.engines.sqlite.reader import Reader
from postroom.engines.sqlite.records import SqliteRecords
from postroom.engines.sqlite.ringing import Ringing
from postroom.engines.sqlite.sql import SQL
from postroom.engines.sqlite.state import SqliteState
from postroom.engines.sqlite.transaction import DEFAULT, Known, Transaction, steady
from postroom.engines.sqlite.writer import Writer
from postroom.engines.steps.cursor import Kept
from postroom.engines.steps.engine import Step, SteppedEngine, T
from postroom.engines.steps.state import QueueState
from postroom.errors import Closed, Conflict, EngineUnavailable
from postroom.findings import Finding
from postroom.limits import AUDIT, MAX_BODY, TOPIC_LIMIT, check_after, check_limit, check_name, check_publish
from postroom.logs import Log, Stored, TopicEntry, TopicPage, drop_told
from postroom.model import Accepted, NewMessage, Swept
from postroom.policy import Policy
from postroom.records import Records
from postroom.waiter import Waiter

#: How long a fork waits for a step that is under way, in seconds.
_FORK_WAIT = 10.0
#: How long whoever purges cleans up, and pauses in between: longer than others between two tries (seconds).
_CLEAN_FOR = 2.0
_CLEAN_PAUSE = 0.005


def time_of_day() -> int:
    return time.time_ns() // 1_000_000


class SqliteEngine(SteppedEngine):
    capabilities: ClassVar[Capabilities] = Capabilities(durable=True, shared=True, blocking=True, joins=True)

    def __init__(
        self, file: File, clock: Callable[[], int] = time_of_day, *, max_body: int = MAX_BODY
    ) -> None:
        self.max_body = max_body
        self._clock = clock
        self._latest = 0
        self._closed = False
        self._lock = threading.Lock()
        self._file = file
        self._reader = Reader(file)
        self._ringing = Ringing(file, self._reader)
        self._checkpointer = Checkpointer(file.path, file.connect)
        self._known = Known()
        self._writer = Writer(file, self._transaction)
        self.records: Records = SqliteRecords(self._now, self._reader, self._writer)
        with self._reader.look():
            pass  # whatever is wrong with the file is said now
        self._checkpointer.start()
        self._suspended: list[Checkpointer | Reader | Writer[Transaction]] = []
        self._ready_to_fork = False
        forks.watch(self)

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        return Transaction(connection, self._now(), self._known, self._committed)

    # --- queues -----------------------------------------------------------------------------

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        def step(transaction: Transaction) -> int:
            state = SqliteState.load(transaction.connection, queue, 0, DEFAULT)
            if not (force or state.empty()):
                raise Conflict(f"{queue}: there are still messages in it; purge it first, or force the drop")
            count = state.waiting + state.processing + state.dead
            if count:
                transaction.publish(AUDIT, [drop_told(queue, count, by, why)])
            transaction.forget(queue)
            if state.key:
                transaction.connection.execute(SQL["trash"], (state.key, None))
                transaction.connection.execute(SQL["drop_queue"], (state.key,))
            return count

        count = self._writer.run(step)
        self._clean()
        return count

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        now = self._now()
        with self._reader.look() as connection:
            if names is None:
                states = SqliteState.load_all(connection)
            else:
                states = [SqliteState.load(connection, name, 0, DEFAULT) for name in names]
        return [state.info(now) for state in states if state.key]

    def purge(self, queue: str) -> int:
        count = super().purge(queue)
        self._clean()
        return count

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        swept = super().sweep(queue, limit=limit, triggered_by=triggered_by)
        # Behind a purge or drop whose process ended too early.
        return swept._replace(full=True, next_wake=0) if self._clean_some() else swept

    def _clean(self) -> None:
        """Remove what a purge or a drop left behind, with pauses for others; the sweeps do the rest."""
        end = time.monotonic() + _CLEAN_FOR
        while self._clean_some() and time.monotonic() < end:
            time.sleep(_CLEAN_PAUSE)

    def _clean_some(self) -> bool:
        """Remove one portion; whether there is more. An error only means: later, it is all trash."""
        try:
            return self._writer.run(lambda transaction: trash.clean(transaction.connection))
        except (EngineUnavailable, Closed):
            return False

    # --- putting, also in a transaction of the caller's own ---------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        self.check_put(messages)
        return self._writer.run(Putting(queue, messages))

    def put_within(
        self, connection: object, queue: str, messages: Sequence[NewMessage], policy: Policy
    ) -> Accepted:
        self.check_put(messages)
        self._check_open()
        with outbox.joined(connection, self._file.path) as joined:
            # It never hears of the commit, so it never rings.
            transaction = Transaction(joined, self._now(), Known(), self._committed)
            return Putting(queue, messages, policy)(transaction)

    # --- steps ------------------------------------------------------------------------------

    def _change(self, queue: str, step: Step[T], *, make: bool = False) -> T:
        policy = DEFAULT if make else None
        return self._writer.run(lambda transaction: transaction.change(queue, step, policy))

    def _look(self, queue: str, look: Step[T]) -> T:
        now = self._now()
        with self._reader.look() as connection:
            state = SqliteState.load(connection, queue, now, DEFAULT)
            return look(state, steady(now, state.last_call))

    def _committed(self, rings: dict[str, int], bells: set[str]) -> None:
        self._ringing.tell(rings, bells, self._writer.stamp)
        self._checkpointer.nudge()

    def stored(self, queue: str, id: str) -> list[Stored]:
        if self.get(queue, [id]) == [None]:
            return []
        with self._reader.look() as connection:
            found = connection.execute(SQL["stored"], (queue, bytes.fromhex(id)))
            names = [name if "." in name else f"postroom_message.{name}" for name, *_ in found.description]
            row = found.fetchone() or ()
        return [Stored(*each) for each in zip(names, row, strict=False) if each[1] is not None]

    def _spread(self, queue: str, waiter: Waiter) -> int:
        return self._ringing.rank_delay(queue, waiter)

    # --- waiting, history, topics -----------------------------------------------------------

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        self._check_open()
        return self._ringing.waiter(queues, topics)

    def ring(self, queues: Iterable[str]) -> None:
        self._check_open()
        self._ringing.tell_now(dict.fromkeys(queues, 2))

    def _read_log(self, state: QueueState, after: str | None, limit: int) -> Log:
        assert isinstance(state, SqliteState)
        return Log(*state.read_log(after, limit))

    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        check_publish(topic, entries, keep)
        if entries:
            self._writer.run(lambda transaction: transaction.publish(topic, entries, keep))

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        check_name(topic, "topic")
        check_limit(limit)
        self._now()
        with self._reader.look() as connection:
            last = _number(connection, "topic", topic, 0)
            kept = Kept(1, _number(connection, "topic_before", topic, last), last)
            begin, missed = kept.begin(after)
            rows = connection.execute(SQL["read_topic"], (topic, begin, limit)).fetchall()
        entries = [TopicEntry(str(id), at, data) for id, at, data in rows]
        return TopicPage(entries, str(begin + len(entries)), missed)

    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        check_after(after)
        check_limit(limit)
        self._now()
        with self._reader.look() as connection:
            return [name for (name,) in connection.execute(SQL["topics"], (after, limit))]

    # --- opening, closing, forking ----------------------------------------------------------

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ringing.close()
            self._checkpointer.close()
            self._writer.close()
            self._reader.close()

    def before_fork(self) -> None:
        parts = (self._checkpointer, self._writer, self._reader)
        self._suspended = [part for part in parts if part.suspend(_FORK_WAIT)]
        self._ready_to_fork = len(self._suspended) == len(parts)

    def after_fork_in_parent(self) -> None:
        for part in reversed(self._suspended):
            part.resume()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        if not self._ready_to_fork:
            self._file.abandon(None)  # a connection came along
        for part in (self._checkpointer, self._writer, self._reader):
            part.reset()
        self._ringing.leave_to_parent()

    def now(self) -> int:
        return self._now()

    def inspect(self) -> list[Finding]:
        return inspection.inspect(self._file, self._reader)

    def _now(self) -> int:
        """The time of day, by the one clock that all processes of this machine share."""
        self._check_open()
        with self._lock:
            self._latest = steady(self._clock(), self._latest)
            return self._latest

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the room is closed")


def _number(connection: sqlite3.Connection, statement: str, name: str, default: int) -> int:
    row = connection.execute(SQL[statement], (name,)).fetchone()
    return row[0] if row else default
