"""Looking at the store: one consistent moment at a time, beside whoever writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.link import Link


class Reader:
    """The one reading connection of this process; it cannot write."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._link = Link(file, readonly=True)
        self._lock = threading.Lock()
        self._suspended = False

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one moment for as long as the block lasts.

        Keep it short and fetch all rows inside: an open look keeps the -wal file from being emptied.
        """
        with self._lock:
            try:
                connection = self._link.open()
                self._file.patiently(lambda: _begin(connection))
                yield connection
                connection.execute("COMMIT")
            except Exception as error:
                ours = self._link.failed(error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                self._link.roll_back()

    def close(self) -> None:
        """Later looks get Closed."""
        with self._lock:
            self._link.close()

    def suspend(self, timeout: float) -> bool:
        """Before a fork: nobody looks until `resume`, and nothing is open. False if a look took too long."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._link.drop()
        self._suspended = True
        return True

    def resume(self) -> None:
        """After a fork, in the parent; only if `suspend` said True."""
        self._suspended = False
        self._lock.release()

    def reset(self) -> None:
        """After a fork, in the child: whoever held the lock does not exist here."""
        self._link.leave(in_use=self._lock.locked() and not self._suspended)
        self._lock = threading.Lock()
        self._suspended = False


def _begin(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # an interrupt came between a look and its end
        connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    try:
        # The moment is fixed by the first read. If somebody is in the way, better here than in the block.
        connection.execute("SELECT count(*) FROM (SELECT 1 FROM sqlite_master LIMIT 1)").fetchone()
    except BaseException:
        connection.execute("ROLLBACK")
        raise
