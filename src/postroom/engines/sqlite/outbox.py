"""Joining a transaction of the caller's own: messages and business rows are kept together or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from postroom.engines.sqlite.faults import translated
from postroom.engines.sqlite.sql import SQL
from postroom.errors import InvalidInput


@contextmanager
def joined(connection: object, path: str) -> Iterator[sqlite3.Connection]:
    """The sqlite3 connection behind what the caller gave, in its transaction, which writes from now on.

    If the block raises, all it did is undone, and the caller's transaction goes on without it.
    """
    db = _driver_connection(connection)
    with translated(path), _plain_rows(db):
        _check_file(db, path)
        # One process checkpoints (see checkpointer), and no connection does by the way.
        db.execute("PRAGMA wal_autocheckpoint=0")
        began = _begin(db)
        db.execute("SAVEPOINT postroom")
        try:
            db.execute(SQL["write_lock"])
            yield db
        except BaseException:
            # What was not begun here goes on; but if SQLite itself has rolled back, there is no savepoint.
            if began:
                db.rollback()
            elif db.in_transaction:
                db.execute("ROLLBACK TO postroom")
                db.execute("RELEASE postroom")
            raise
        db.execute("RELEASE postroom")


def _driver_connection(connection: Any) -> sqlite3.Connection:
    """Of sqlite3 itself, or under a SQLAlchemy connection or session."""
    if hasattr(connection, "get_bind") and callable(getattr(connection, "connection", None)):
        connection = connection.connection()  # a session's connection of this transaction
    pooled = getattr(connection, "connection", connection)
    driver = getattr(pooled, "driver_connection", pooled)
    if not isinstance(driver, sqlite3.Connection):
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise InvalidInput(f"connection: expected one of sqlite3 or SQLAlchemy, not {kind}")
    return driver


def _check_file(db: sqlite3.Connection, path: str) -> None:
    files = {name: file for _, name, file in db.execute("PRAGMA database_list")}
    if os.path.realpath(files["main"] or os.devnull) != path:
        raise InvalidInput(
            "connection: it leads to another file than the room; one transaction needs both in one file"
        )


def _begin(db: sqlite3.Connection) -> bool:
    """Begin as sqlite3 would before the first change; False if the caller had begun.

    Who commits by hand must also begin by hand.
    """
    if db.in_transaction:
        return False
    if db.isolation_level is None or getattr(db, "autocommit", False) is True:
        raise InvalidInput(
            "connection: it is not in a transaction; begin one, whose commit keeps the messages"
        )
    db.execute("BEGIN IMMEDIATE")
    return True


@contextmanager
def _plain_rows(db: sqlite3.Connection) -> Iterator[None]:
    """Rows are tuples and text is str, whatever the caller's connection makes of them."""
    factories = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str
    try:
        yield
    finally:
        db.row_factory, db.text_factory = factories
