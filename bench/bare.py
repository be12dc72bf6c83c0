"""The floor under a put and a turn: the writes that their promises need, by sqlite3 alone.

The schema and the statements are Postroom's, so that the same pages are written and the same indexes kept;
but nothing is checked, counted, timed or told to anybody. Whatever Postroom takes beyond this is its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.stage import DATA
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.many import about
from postroom.engines.sqlite.sql import SQL
from postroom.ids import new_id, new_token

_NOW = 1_800_000_000_000
_COUNTERS = '{"put":1000000,"claimed":1000000,"acked":1000000}'
#: PRAGMA wal_autocheckpoint: as large as Postroom lets its log grow, in pages of 4 KB.
_PAGES = 4_000


class Bare:
    """One queue: a row with its places by id and by order, and the books of the queue, in one commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        row = ("bare", "{}", _NOW, _NOW, 0, _NOW, 1, 0, _COUNTERS)
        self._queue = connection.execute(SQL["make_queue"], row).lastrowid
        self._seq = 0
        self._held = b"", ""

    def put(self, count: int) -> None:
        for _ in range(count):
            self._seq += 1
            id, body = bytearray.fromhex(new_id()), bytearray(DATA)
            self._db.execute("BEGIN IMMEDIATE")
            row = (self._queue, id, 1, 0, 5, self._seq, _NOW, _NOW, _NOW, "", body)
            self._db.execute(SQL["add_plain"], row)
            self._commit()

    def take(self, count: int) -> None:
        """A claim, and turns: each removes the message that was held, and leases the next."""
        for _ in range(count + 1):
            self._db.execute("BEGIN IMMEDIATE")
            id, token = self._held
            self._db.execute(about("ack", 1), (self._queue, token, id)).fetchall()
            if row := self._db.execute(f"{SQL['ready']} LIMIT 1", (self._queue, 0, 0)).fetchone():
                self._lease(row[0], row[1])
            self._commit()

    def _lease(self, key: int, id: bytes) -> None:
        self._held = id, new_token()
        leased = (self._held[1], "bare", None, _NOW, _NOW, _NOW, _NOW, key)
        self._db.execute(about("lease", 1), leased)

    def _commit(self) -> None:
        books = (self._seq, _NOW, 0, _NOW, self._seq, 0, 0, 0, 0, 0, _COUNTERS, self._queue)
        self._db.execute(SQL["save_books"], books)
        self._db.execute("COMMIT")


@contextmanager
def bare(file: Path) -> Iterator[Bare]:
    with closing(File(str(file)).connect()) as connection:
        connection.execute(f"PRAGMA wal_autocheckpoint={_PAGES}")
        yield Bare(connection)
