"""The one connection of a reader or a writer: opened when it is needed, closed when it is not to be trusted.

SQLite keeps account of a process's POSIX locks in the memory of that process. A forked child would
inherit the account without the locks, so every connection is closed before a fork, and both sides
open a new one when they need it. Where that was not possible the child does not use the store at all.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from postroom.engines.sqlite.faults import SQLITE_ERRORS, ours
from postroom.engines.sqlite.file import File, identity
from postroom.engines.sqlite.folder import Stamp, stamp_of
from postroom.errors import Closed, EngineBusy, StoreFull, StoreGone


class Link:
    """Whoever uses it holds a lock of their own."""

    def __init__(self, file: File, *, readonly: bool = False) -> None:
        self._file = file
        self._readonly = readonly
        self._connection: sqlite3.Connection | None = None
        self._wal: tuple[int, int] | None = None
        #: The stamp of the folder when the files were last found to be there; None if nobody can say.
        self.stamp: Stamp | None = None
        self._closed = False

    def open(self, *, checked: bool = True) -> sqlite3.Connection:
        """The connection, to the file that was first opened and no other.

        Who checks afterwards need not check an open one before.
        """
        if self._closed:
            raise Closed("the room is closed")
        if checked or self._connection is None:
            self.check()
        if self._connection is None:
            self._connection = self._file.connect(readonly=self._readonly)
            self._wal = identity(self._file.wal_path)
            self.stamp = None
        return self._connection

    def check(self) -> None:
        """StoreGone if the file, or the -wal that holds what is newest, was deleted or replaced."""
        stamp = stamp_of(self._file.folder)
        if stamp is None or stamp != self.stamp:
            self._check_files()
            self.stamp = stamp

    def _check_files(self) -> None:
        try:
            self._file.check()
        except StoreGone:
            self._set_log_aside()
            raise
        # While anybody is connected SQLite itself never removes it.
        if self._connection is not None and identity(self._file.wal_path) != self._wal:
            raise StoreGone(
                f"{self._file.wal_path}: the file was deleted or replaced while it was open: "
                "stop every process that uses the store, then start again"
            )

    def _set_log_aside(self) -> None:
        """The log of a file that was replaced must not be taken for the new one's, which it would destroy."""
        self.drop()
        if self._wal and identity(self._file.path) and identity(self._file.wal_path) == self._wal:
            with contextlib.suppress(OSError):
                Path(f"{self._file.path}-shm").unlink(missing_ok=True)
                Path(self._file.wal_path).rename(f"{self._file.wal_path}.replaced")

    def in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def roll_back(self) -> None:
        """End the transaction, if there is one, without a trace."""
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self.drop()  # which rolls back too

    def failed(self, error: Exception) -> Exception:
        """What to raise for this error; after most errors of SQLite the next call gets a new connection."""
        instead = ours(error, self._file.path)
        if isinstance(error, SQLITE_ERRORS) and not isinstance(instead, EngineBusy | StoreFull):
            self.drop()
        return instead

    def drop(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        self.stamp = None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close it for good: later calls get Closed."""
        self._closed = True
        self.drop()

    def leave(self, *, in_use: bool) -> None:
        """In a forked child: what could not be closed before the fork makes the store unusable."""
        connection, self._connection = self._connection, None
        if in_use or connection is not None:
            self._file.abandon(connection)
