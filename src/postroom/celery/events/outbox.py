"""Events as a part of the caller's own transaction: published if and only if it commits.

    with Session(engine) as session:
        session.add(Invoice(…))
        invoice_paid.within(session, 7, 9.5)        # a row of the table event_outbox
        session.commit()

    with outbox.Relay(app, engine):                 # a thread here, or `postroom events relay` elsewhere
        …

A relay publishes the rows in the order in which they were made, deletes them when the broker has confirmed,
and commits. A crash at any point loses nothing: before the commit of the caller there is no event, after it
there is a row. One between the confirm and the relay's own commit publishes some once more, with the same
`event_id`, as everything that is delivered at least once.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.resources
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from postroom.celery.events.publisher import WINDOW, Outgoing
from postroom.celery.events.topology import EXCHANGE
from postroom.errors import MissingExtra, NotFound, QueueFull

try:
    from sqlalchemy import Column, Engine, MetaData, String, Table, Text, delete, event, func, insert, select
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session
except ImportError as _error:
    raise MissingExtra(f"pip install 'postroom[sql]' ({_error})") from _error

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

log: logging.Logger = logging.getLogger(__name__)

#: The table; `event_outbox.to_metadata(Base.metadata)` makes it one of yours, for your migrations.
event_outbox: Table = Table(
    "event_outbox",
    MetaData(),
    Column("id", String(32), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", Text, nullable=False),
)
#: Rows that may wait, and how often they are counted (s).
MOST, _COUNT_EVERY = 100_000, 5.0
#: Between two looks of a relay that was not told of anything; after a failure twice as long each time (s).
_POLL, _LONGEST = 1.0, 30.0


def ddl() -> str:
    """The statement that makes the table, for psql or a migration of your own."""
    return (importlib.resources.files(__package__) / "event_outbox.sql").read_text(encoding="utf-8")


class Outbox:
    """The outbox of one app, as far as this process knows it."""

    def __init__(self) -> None:
        self.relays: weakref.WeakSet[Relay] = weakref.WeakSet()
        self._counted_at = -_COUNT_EVERY

    def add(self, caller: Session | Connection, message: Outgoing) -> None:
        """Keep an event in the caller's transaction. Raises QueueFull when too many wait already."""
        self._check(caller)
        caller.execute(
            insert(event_outbox).values(
                id=message.headers["id"],
                name=message.routing_key,
                headers=msgspec.json.encode(message.headers).decode(),
                body=message.body.decode(),
            )
        )
        if isinstance(caller, Session) and not event.contains(caller, "after_commit", self._wake):
            event.listen(caller, "after_commit", self._wake)

    def _check(self, caller: Session | Connection) -> None:
        now = time.monotonic()
        if now - self._counted_at < _COUNT_EVERY:
            return
        some = select(event_outbox.c.id).limit(MOST).subquery()
        waiting = caller.execute(select(func.count()).select_from(some)).scalar_one()
        if waiting >= MOST:
            raise QueueFull(f"{waiting:,} events wait in the outbox: does a relay run?")
        self._counted_at = now

    def _wake(self, session: Session) -> None:
        for relay in list(self.relays):
            relay.wake()


class Relay:
    """Publishes what is in the outbox, in a thread of its own while its `with` lasts. Several may run.

    Where a database can lock rows they share the work; on SQLite, which cannot, they take turns.
    """

    def __init__(self, app: EventsApp, engine: Engine) -> None:
        self._app, self._engine = app, engine
        self._rung = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def pass_on(self) -> int:
        """Publish all that waits, some at a time, and return how many. Raises what publishing raises.

        An event that nobody is bound to stays, if the app takes that for an error, and is told of. Those that
        another relay has at present are left to it.
        """
        with _turn(self._engine) as is_ours:
            return self._pass_on() if is_ours else 0

    def _pass_on(self) -> int:
        done, after = 0, ""
        while True:
            with self._engine.begin() as connection:
                # Rows that another relay has are left to it, where the database knows how; see also `_turn`.
                query = select(event_outbox).where(event_outbox.c.id > after)
                query = query.order_by(event_outbox.c.id).limit(WINDOW).with_for_update(skip_locked=True)
                rows = connection.execute(query).all()
                sent = self._publish(rows) if rows else []
                if sent:
                    connection.execute(delete(event_outbox).where(event_outbox.c.id.in_(sent)))
            done += len(sent)
            if len(rows) < WINDOW or self._ended:
                return done
            after = rows[-1].id

    def _publish(self, rows: Sequence[Any]) -> list[str]:
        """Publish these, and return the ids of those that may go."""
        try:
            with self._app.publisher.window():
                for row in rows:
                    self._app.publisher.publish(_outgoing(row))
        except NotFound:
            return [row.id for row in rows if self._is_bound(row)]
        return [row.id for row in rows]

    def _is_bound(self, row: Any) -> bool:
        """One by one, when some of them went nowhere; the others arrive once more."""
        try:
            self._app.publisher.publish(_outgoing(row))
        except NotFound as error:
            log.error("an event stays in the outbox: %s", error,
                      extra={"event": "events.outbox_stuck", "event_id": row.id})  # fmt: skip
            return False
        return True

    # --- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Pass on until `stop`, whatever happens to the broker or the database meanwhile."""
        pause = _POLL
        self._app.outbox.relays.add(self)
        while not self._ended:
            self._rung.clear()
            try:
                self.pass_on()
                pause = _POLL
            except Exception as error:  # whatever a broker, a database or a disk raises, the relay goes on
                pause = min(_LONGEST, pause * 2)
                log.warning("the outbox waits %g s: %s", pause, error, extra={"event": "events.outbox_waits"})
            self._rung.wait(pause)

    def wake(self) -> None:
        """Look now: something has committed."""
        self._rung.set()

    def stop(self) -> None:
        """End `run` after what it is at; what is left stays in the outbox."""
        self._ended = True
        self.wake()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.run, name="events-outbox", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()


@contextlib.contextmanager
def _turn(engine: Engine) -> Iterator[bool]:
    """Whether it is this relay's turn. SQLite cannot lock rows: there relays take turns, by a file beside it.

    The database itself stays free for others while the broker is slow.
    """
    path = ""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            path = connection.exec_driver_sql("PRAGMA database_list").all()[0][2]
    if not path:  # rows are locked, or it is in the memory of this process
        yield True
        return
    with open(f"{path}-relay", "ab") as file:  # noqa: PTH123  # a path of SQLite's own making
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _outgoing(row: Any) -> Outgoing:
    return Outgoing(EXCHANGE, row.name, msgspec.json.decode(row.headers), row.body.encode())
