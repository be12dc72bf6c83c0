"""What was done, in the caller's own database: the work and its mark in one transaction.

    with engine.begin() as connection:                  # SQLAlchemy 2, on PostgreSQL or SQLite
        entry = enter(connection, "pay_invoice", "INV-7")
        if entry.done:
            return entry.result
        connection.execute(insert(payments).values(…))
        entry.finish({"receipt": 7})

The mark is a row of the table `processing_log`, unique by (task_name, business_id). It is there if and only
if the transaction has committed: a rollback, an exception or a kill -9 leaves neither the work nor the
mark. A second one who comes meanwhile waits inside `enter` until the first has committed (then it is done)
or not (then it is the second's turn). This holds for effects in that database. One elsewhere, such as a
call to a provider, is not undone by a rollback: give that a key of its own.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from postroom.errors import Conflict, InProgress, InvalidInput, MissingExtra
from postroom.limits import MAX_NAME

try:
    from sqlalchemy import (
        Column,
        DateTime,
        Index,
        MetaData,
        PrimaryKeyConstraint,
        String,
        Table,
        Text,
        func,
        select,
        update,
    )
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.engine import Connection
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.orm import Session
except ImportError as _error:
    raise MissingExtra(f"pip install 'postroom[sql]' ({_error})") from _error

#: The table; `processing_log.to_metadata(Base.metadata)` makes it one of yours, for your migrations.
processing_log: Table = Table(
    "processing_log",
    MetaData(),
    Column("task_name", String(MAX_NAME), nullable=False),
    Column("business_id", String(MAX_NAME), nullable=False),
    Column("processed_at", DateTime(timezone=True), nullable=False, server_default=func.current_timestamp()),
    Column("result", Text),
    PrimaryKeyConstraint("task_name", "business_id", name="processing_log_once"),
    Index("processing_log_by_age", "processed_at"),
)

_INSERT: dict[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
#: A row that was there and is gone when asked for was deleted in between; not for ever.
_TRIES = 5
#: Somebody else is at it, and the database would not wait longer or let us go on: lock_not_available,
#: serialization_failure, deadlock_detected; SQLITE_BUSY and SQLITE_LOCKED.
_BUSY_STATES = frozenset({"55P03", "40001", "40P01"})
_BUSY_CODES = frozenset({5, 6})
#: When to come again then (seconds).
_AGAIN = 2.0


def ddl() -> str:
    """The statements that make the table, for psql or a migration of your own."""
    return (importlib.resources.files(__package__) / "processing_log.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of work in the log: done before, or ours to do in this transaction."""

    done: bool
    result: Any
    _connection: Connection
    _task_name: str
    _business_id: str

    def finish(self, result: Any) -> None:
        """Keep a result (JSON) with the mark, for duplicates to find; the commit is still the caller's."""
        if self.done:
            raise Conflict(f"{self._task_name} {self._business_id} was done before")
        try:
            text = msgspec.json.encode(result).decode()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"result: it cannot be written as JSON ({error})") from error
        where = _is(self._task_name, self._business_id)
        self._connection.execute(update(processing_log).where(*where).values(result=text))


def enter(caller: Connection | Session, task_name: str, business_id: str | int) -> Entry:
    """Mark this work as done in the caller's transaction, unless it was; waits for who is at it.

    How long it waits is the database's matter: `lock_timeout` on PostgreSQL, `timeout` on SQLite. After
    that it raises InProgress, and the transaction must be rolled back (as `with engine.begin()` does).
    """
    connection = caller.connection() if isinstance(caller, Session) else caller
    name, business = _text("task_name", task_name), _text("business_id", business_id)
    _check(connection)
    try:
        for _ in range(_TRIES):
            if _insert(connection, name, business):
                return Entry(False, None, connection, name, business)
            query = select(processing_log.c.result).where(*_is(name, business)).with_for_update()
            if row := connection.execute(query).one_or_none():
                result = None if row.result is None else msgspec.json.decode(row.result)
                return Entry(True, result, connection, name, business)
    except DBAPIError as error:
        if _is_busy(error.orig):
            raise InProgress(f"{name} {business}: is being done elsewhere", retry_after=_AGAIN) from error
        raise
    raise Conflict(f"{name} {business}: its row comes and goes")


def _insert(connection: Connection, task_name: str, business_id: str) -> bool:
    """Whether the row is ours. PostgreSQL waits here for a row of a transaction that has not ended."""
    row = _INSERT[connection.dialect.name](processing_log).values(
        task_name=task_name, business_id=business_id
    )
    made = row.on_conflict_do_nothing().returning(processing_log.c.task_name)
    return connection.execute(made).one_or_none() is not None


def _is(task_name: str, business_id: str) -> tuple[Any, Any]:
    return processing_log.c.task_name == task_name, processing_log.c.business_id == business_id


def _check(connection: Connection) -> None:
    """Refuse where the mark would not be a part of the caller's transaction."""
    if connection.dialect.name not in _INSERT:
        raise InvalidInput(f"sqlguard knows {' and '.join(_INSERT)}, not {connection.dialect.name}")
    raw: Any = connection.connection.dbapi_connection
    outside = connection.dialect.name == "sqlite" and raw.isolation_level is None and not raw.in_transaction
    if outside or getattr(raw, "autocommit", None) is True:
        raise InvalidInput("sqlguard: this connection commits every statement; give it a transaction")


def _is_busy(error: Any) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary one
    return getattr(error, "sqlstate", None) in _BUSY_STATES or code in _BUSY_CODES


def _text(name: str, value: str | int) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_NAME:
        raise InvalidInput(f"{name}: {value!r:.80} must be 1 to {MAX_NAME} characters")
    return text
