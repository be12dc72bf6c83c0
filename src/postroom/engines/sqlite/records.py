"""Small versioned values in a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from postroom.engines.sqlite.sql import SQL
from postroom.limits import check_limit, check_record, check_span
from postroom.logs import Record
from postroom.records import Records

if TYPE_CHECKING:
    from postroom.engines.sqlite.reader import Reader
    from postroom.engines.sqlite.transaction import Transaction
    from postroom.engines.sqlite.writer import Writer

_PRUNE = 100


class SqliteRecords(Records):
    def __init__(self, now: Callable[[], int], reader: Reader, writer: Writer[Transaction]) -> None:
        self._now = now
        self._reader = reader
        self._writer = writer

    def get(self, kind: str, key: str) -> Record | None:
        now = self._now()
        with self._reader.look() as connection:
            return _live(connection, kind, key, now)

    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        check_record(kind, key, value)
        check_span("ttl", ttl)

        def step(transaction: Transaction) -> int | None:
            connection, now = transaction.connection, transaction.now
            expires = None if ttl is None else now + ttl
            connection.execute(SQL["prune_records"], (now, _PRUNE))
            if not _fits(connection, kind, key, expect, now):
                return None
            # One count for all records: a version seen once never comes back.
            (version,) = connection.execute(SQL["next_version"]).fetchone()
            connection.execute(SQL["put_record"], (kind, key, value, version, expires))
            return int(version)

        return self._writer.run(step)

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        def step(transaction: Transaction) -> bool:
            connection, now = transaction.connection, transaction.now
            if _live(connection, kind, key, now) is None or not _fits(connection, kind, key, expect, now):
                return False
            connection.execute(SQL["delete_record"], (kind, key))
            return True

        return self._writer.run(step)

    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        check_limit(limit)
        now = self._now()
        with self._reader.look() as connection:
            rows = connection.execute(SQL["records"], (kind, after, now, limit)).fetchall()
        return [Record(*row) for row in rows]


def _live(connection: sqlite3.Connection, kind: str, key: str, now: int) -> Record | None:
    row = connection.execute(SQL["record"], (kind, key, now)).fetchone()
    return Record(*row) if row else None


def _fits(connection: sqlite3.Connection, kind: str, key: str, expect: int | None, now: int) -> bool:
    if expect is None:
        return True
    record = _live(connection, kind, key, now)
    return (record.version if record else 0) == expect
