"""The file a store lives in: what it must be, how it is opened, made and brought up to date.

The file is never opened by anything but SQLite: closing any other descriptor of it would drop all
the locks that this process holds on it, because POSIX locks belong to the process.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from postroom.engines.sqlite.faults import is_busy, translated
from postroom.engines.sqlite.sql import SCHEMAS
from postroom.engines.sqlite.wal import WAL_LIMIT
from postroom.errors import (
    ConfigError,
    EngineUnavailable,
    StoreForeign,
    StoreGone,
    StoreReadOnly,
    StoreTooNew,
)

T = TypeVar("T")

#: "POST": tells a store of ours from any other SQLite file.
APPLICATION_ID = int.from_bytes(b"POST", "big")

#: "off" is not offered: a power cut could then destroy the file.
_SYNCHRONOUS = {"normal", "full", "extra"}

#: Seconds between two tries while another process writes: a little at first, as most transactions
#: are short; random, so that those who wait do not come at the same moment.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.000_2, 0.005

#: Where several machines may see one file: a WAL file needs the shared memory of one machine.
_NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gfs2", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf",
    "fuse.ceph", "fuse.ceph-fuse", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs",
    "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
}  # fmt: skip


#: What a fork found open, by device and inode. SQLite counts this process's locks in its memory, and in a
#: forked child counts those of its parent: no connection to such a file can be trusted, old or new.
_inherited: dict[tuple[int, int], list[sqlite3.Connection | None]] = {}


class _Marks(NamedTuple):
    """What a database says about itself."""

    application: int
    version: int
    tables: int


_EMPTY = _Marks(0, 0, 0)


class File:
    """Where a store is. It opens connections, and notices when the file is no longer the same."""

    def __init__(
        self,
        path: str,
        *,
        synchronous: str = "full",
        busy_timeout: int = 5_000,
        outbox: bool = False,
        schemas: Mapping[int, str] = SCHEMAS,
        mounts: str | None = None,
    ) -> None:
        if "\0" in path or not path:
            raise ConfigError(f"{path!r} cannot be the path of a store")
        if synchronous not in _SYNCHRONOUS:
            raise ConfigError(f"synchronous is one of {sorted(_SYNCHRONOUS)}, not {synchronous!r}")
        # SQLite follows links too, and puts its -wal beside the real file.
        self.path: str = os.path.realpath(path)
        self.folder: str = os.path.dirname(self.path)  # noqa: PTH120 - as realpath above
        self.busy_timeout = busy_timeout
        self._synchronous = synchronous
        self._outbox = outbox
        self._schemas = schemas
        self._mounts = mounts
        #: Device and inode, from the first connection on.
        self._identity: tuple[int, int] | None = None

    @property
    def wal_path(self) -> str:
        return self.path + "-wal"

    @property
    def shm_path(self) -> str:
        return self.path + "-shm"

    @property
    def bell_path(self) -> str:
        return self.path + ".bell"

    def connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        """A new connection to a store that is up to date; the first one makes the file if need be."""
        if self._identity is None:
            self._check_place()
        if identity(self.path) in _inherited:
            raise EngineUnavailable(
                f"{self.path}: the store was in use while this process was forked, and cannot be used in it: "
                "fork when no call is running, or start processes with spawn"
            )
        with translated(self.path):
            return self.patiently(lambda: self._connect(readonly))

    def check(self) -> None:
        """StoreGone if the path no longer leads to the file that was first opened."""
        if self._identity is not None and self._identity != identity(self.path):
            raise StoreGone(
                f"{self.path}: the file was deleted or replaced while it was open: "
                "open the room again, on the right file"
            )

    def patiently(self, call: Callable[[], T]) -> T:
        """The call's result; while another process is in the way, try again for up to busy_timeout."""
        deadline = time.monotonic() + self.busy_timeout / 1_000
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def abandon(self, connection: sqlite3.Connection | None) -> None:
        """In a forked child: leave the parent's connection as it is, and open no other."""
        if key := self._identity or identity(self.path):
            _inherited.setdefault(key, []).append(connection)

    def _connect(self, readonly: bool) -> sqlite3.Connection:
        self.check()
        connection = self._open()
        try:
            self._bring_up_to_date(connection)
            self._set_up(connection, readonly)
            self._identity = self._identity or identity(self.path)
            self.check()
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> sqlite3.Connection:
        # What was open before must exist: a file that was deleted is not made again.
        mode = "rwc" if self._identity is None else "rw"
        return sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode={mode}",
            uri=True,
            timeout=0,  # patiently() waits instead: with jitter, and not in the dark
            isolation_level=None,
            check_same_thread=False,  # whoever uses it holds a lock
            cached_statements=256,
        )

    def _set_up(self, connection: sqlite3.Connection, readonly: bool) -> None:
        # Only now: what is not ours keeps its journal mode, and auto_vacuum has to come before it.
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise EngineUnavailable(f"{self.path}: SQLite cannot keep a WAL there, only {mode!r}")
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        # SQLite before 3.51.3 may damage a file when two processes checkpoint: one elected process does.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        # A log that grew longer is cut down to this when it is begun anew, and no further: to extend a file
        # makes every commit slower.
        connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA cache_size=-16000")
        if readonly:
            connection.execute("PRAGMA query_only=1")
        # The first read opens the -wal and recovers what a crash left: it is done when this returns.
        connection.execute("PRAGMA user_version").fetchone()

    # --- versions ---------------------------------------------------------------------------

    def _bring_up_to_date(self, connection: sqlite3.Connection) -> None:
        """Make what is missing in one transaction: a kill leaves all of it or nothing."""
        connection.execute("BEGIN")
        marks = _marks(connection)
        connection.execute("COMMIT")
        if not self._missing(marks):
            return
        if marks == _EMPTY:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("BEGIN IMMEDIATE")
        # Asked again: another process may just have done it.
        for version in self._missing(_marks(connection)):
            for statement in _statements(self._schemas[version]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={version}")
        connection.execute("COMMIT")

    def _missing(self, marks: _Marks) -> list[int]:
        """The versions that this file still has to go through; an error if it is not ours to touch."""
        if marks.application != APPLICATION_ID:
            self._check_free(marks)
            return sorted(self._schemas)
        oldest, newest = min(self._schemas), max(self._schemas)
        if marks.version // 1_000 > newest // 1_000:
            raise StoreTooNew(
                f"{self.path}: written by a newer release (the file has version {_dotted(marks.version)}, "
                f"this release knows {_dotted(newest)}); it was left as it is: update Postroom"
            )
        if marks.version < oldest:
            raise StoreForeign(
                f"{self.path}: something else set its user_version to {marks.version}; it was left as it is"
            )
        return sorted(version for version in self._schemas if version > marks.version)

    def _check_free(self, marks: _Marks) -> None:
        unnamed = marks.application == marks.version == 0
        if marks == _EMPTY or (unnamed and self._outbox):
            return
        whose = f"application_id {marks.application}, user_version {marks.version}, {marks.tables} tables"
        advice = "; add ?outbox=yes to keep messages beside your own tables" if unnamed else ""
        raise StoreForeign(
            f"{self.path}: this database belongs to something else ({whose}); it was left as it is{advice}"
        )

    # --- the place --------------------------------------------------------------------------

    def _check_place(self) -> None:
        kind = network_type(self.path, self.mounts())
        if kind:
            raise ConfigError(
                f"{self.path} is on a network filesystem ({kind}): processes share a store through the "
                "memory of one machine; use a local disk, or another engine"
            )
        try:
            self._check_kind()
        except PermissionError as error:
            raise StoreReadOnly(f"{self.path}: {error.strerror}: check the owner and permissions") from error
        except OSError as error:
            raise EngineUnavailable(f"{self.path}: {error.strerror}") from error

    def mounts(self) -> str:
        """The text of /proc/mounts."""
        return _proc_mounts() if self._mounts is None else self._mounts

    def _check_kind(self) -> None:
        path = Path(self.path)
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if not path.parent.is_dir():
                raise ConfigError(f"{path}: there is no directory {path.parent}: make it first") from None
        else:
            if not stat.S_ISREG(found.st_mode):
                raise StoreForeign(f"{path}: this is not a file, but a directory or device: check the path")
            # SQLite takes a single byte for an empty file, and would write over it.
            if found.st_size == 1:
                raise StoreForeign(f"{path}: this is not a SQLite database; it was left as it is")


def identity(path: str) -> tuple[int, int] | None:
    """Device and inode of the file, None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  # around transactions: a Path would cost more than the call
    except OSError:
        return None
    return found.st_dev, found.st_ino


def network_type(path: str, mounts: str) -> str | None:
    """The type of the network filesystem the path is on, by the text of /proc/mounts; None if local."""
    longest, kind = "", ""
    for line in mounts.splitlines():
        _, point, found, *_ = [*line.split(" "), "", "", ""]
        point = _unescaped(point)
        # Of two mounts on one point the later hides the earlier.
        if len(point) >= len(longest) and f"{path}/".startswith(f"{point.rstrip('/')}/"):
            longest, kind = point, found
    return kind if kind in _NETWORK else None


def _unescaped(field: str) -> str:
    """/proc/mounts writes a space as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _proc_mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # not a Linux, or no /proc: then nobody knows


def _marks(connection: sqlite3.Connection) -> _Marks:
    """All three of one moment: this must be inside a transaction."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return _Marks(application, version, tables)


def _statements(script: str) -> Iterator[str]:
    """One after the other: executescript() would commit what came before."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _dotted(version: int) -> str:
    return f"{version // 1_000}.{version % 1_000}"
