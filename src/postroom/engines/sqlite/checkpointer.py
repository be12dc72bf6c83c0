"""Copies the write-ahead log back into the database: in one elected process, never while it may be reset.

SQLite before 3.51.3 can lose commits when a checkpoint without the writer lock begins on a log that is copied
already, and a writer starts the log anew at that moment (sqlite.org/wal.html#walresetbug). So no connection
checkpoints by itself (`wal_autocheckpoint=0`). One process does, with RESTART and TRUNCATE, which take the
writer lock. Where they do not get it in time SQLite goes on without it, unasked. Therefore we write one frame
before each: while a frame is not copied nobody can start the log anew, and nobody but us copies.

Elected is who holds a lock (flock) on `<db>.checkpoint`: a file of its own, because to open and close the
database would drop SQLite's locks on it, and not in the doorbell's folder, which comes and goes.

If the elected process is stopped (SIGSTOP) the log grows to four times the limit; then others stand in.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from postroom.engines.sqlite.wal import WAL_LIMIT, Wal, read_wal

_log = logging.getLogger("postroom.sqlite")

#: From here on the log is copied, and written again from its start: extending a file makes fsync slower.
LIMIT = WAL_LIMIT
#: From here on any candidate may do it, if the elected process has not shown life for so many seconds.
EMERGENCY = 4 * LIMIT
SILENCE = 5.0
#: A store that is quiet for so long (seconds) gets its log cut off and free pages given back.
IDLE = 5.0
#: So few frames are no more than sweeps and heartbeats of a store that nobody uses.
QUIET_FRAMES = 64
#: Between two looks, in seconds: while somebody writes, and at most. Also how often a candidate tries.
BUSY_LOOK = 0.05
QUIET_LOOK = 1.0
#: How long a checkpoint waits for readers, and writers for it, in seconds.
PATIENCE = 0.25
#: How long it tries to get the writers' lock before it comes back later, in seconds.
TURN = 1.0
#: Shortest and longest pause after readers did not let it finish: it held up the writers for nothing.
MIN_PAUSE = 0.1
MAX_PAUSE = 4.0
#: Free pages are given back when they are more than this part of the file, and this many bytes …
MAX_FREE = 0.25
MIN_FREE = 1024 * 1024
#: … until they are this part of it: the next messages need pages too.
KEPT_FREE = 0.1
#: How many bytes of pages one short write transaction gives back, and how many of them one checkpoint.
PORTION = 1024 * 1024
PORTIONS = 8

#: Connections that came with a fork: to close one here could harm the parent's.
_inherited: list[sqlite3.Connection] = []


class Checkpointer:
    """Keeps the log of one file short, from a thread of its own. Candidate in each process, elected in one.

    `connect` opens a connection to the file; it is called and used in that thread only.
    """

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = str(Path(path).absolute())
        self._wal_path = f"{self._path}-wal"
        self._election = Election(f"{self._path}.checkpoint")
        self._connect = connect
        self._warned: set[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: Held by the thread while it works, and by whoever forks.
        self._working = threading.Lock()
        self._yielding = False
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._next_nudge = 0.0
        #: The log right after it was last copied completely.
        self._copied: Wal | None = None
        self._seen = Wal()
        self._changed_at = 0.0
        self._look = BUSY_LOOK
        self._pause = 0.0
        self._paused_until = 0.0
        self._settled = False

    @property
    def is_elected(self) -> bool:
        return self._election.is_won

    # ---- what the engine calls --------------------------------------------------------------------

    def start(self) -> None:
        """Be a candidate from now on; costs nothing the second time."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(
                        target=self._run, name="postroom-checkpointer", daemon=True
                    )
                    self._thread.start()

    def nudge(self) -> None:
        """After a commit: start the thread if need be, and wake it if the log is long; looks every 20 ms."""
        now = time.monotonic()
        if now < self._next_nudge:
            return
        self._next_nudge = now + 0.02
        self.start()
        # Twice too long: the elected process may just have ended, so do not wait for the next vote.
        limit = LIMIT if self._election.is_won else 2 * LIMIT
        with contextlib.suppress(OSError):
            if os.stat(self._wal_path).st_size >= limit:  # noqa: PTH116 - on the way of every commit
                self._wake.set()

    def close(self) -> None:
        """End the thread, and make place for another process."""
        if os.getpid() != self._pid:
            self.reset()
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread and thread is not threading.current_thread():
            thread.join(10)
        self._election.leave()

    def suspend(self, timeout: float) -> bool:
        """Before a fork: nothing is open until `resume`. False if a checkpoint would not end in time."""
        deadline = time.monotonic() + timeout
        self._yielding = True
        while not self._working.acquire(timeout=0.01):
            if time.monotonic() >= deadline:
                self._yielding = False
                return False
            if connection := self._connection:
                with contextlib.suppress(sqlite3.Error):  # closed just now
                    connection.interrupt()
        self._disconnect()
        return True

    def resume(self) -> None:
        """After a fork, in the parent; only if `suspend` said True."""
        self._yielding = False
        self._working.release()

    def reset(self) -> None:
        """After a fork, in the child: let go of what is the parent's; `nudge` or `start` begins anew."""
        if self._connection is not None:
            _inherited.append(self._connection)
        self._election.abandon()
        self._reset()

    # ---- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            born = _identity(self._path)
            while not self._closed and born is not None and _identity(self._path) == born:
                with self._working:
                    self._guarded(self._round)
                self._wake.wait(self._look)
                self._wake.clear()
        finally:
            self._disconnect()
            self._election.resign()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Errors are told once a kind, and tried again later: nobody waits for us."""
        try:
            step()
        except Exception as error:
            self._disconnect()
            if self._yielding:
                return  # interrupted for a fork
            self._hold_back()
            if str(error) not in self._warned and len(self._warned) < 10:
                self._warned.add(str(error))
                extra = {"event": "sqlite.checkpoint_failed", "error": str(error)}
                _log.warning("no checkpoint of %s for now: %s", self._path, error, extra=extra)

    def _round(self) -> None:
        if not self._election.run():
            self._look = QUIET_LOOK
            self._stand_in()
            return
        now, wal = time.monotonic(), read_wal(self._wal_path)
        self._observe(now, wal)
        long = wal.filled >= LIMIT and wal != self._copied
        if long:
            self._election.show_life()
        if now < self._paused_until:
            return
        if long:
            # The first commit into a log begun anew cuts the file down to the limit (journal_size_limit).
            self._checkpoint("RESTART")
        elif not self._settled and now - self._changed_at >= IDLE:
            self._settle(wal)

    def _observe(self, now: float, wal: Wal) -> None:
        """Look often while somebody writes, ever less often when nobody does more than look after things."""
        grown = wal.frames - (self._seen.frames if wal.round == self._seen.round else 0)
        if grown > QUIET_FRAMES or not self._changed_at:
            self._seen, self._changed_at, self._look, self._settled = wal, now, BUSY_LOOK, False
        else:
            self._look = min(self._look * 2, QUIET_LOOK)

    def _stand_in(self) -> None:
        """Copy in place of an elected process that is stopped; SQLite's own lock lets only one do it."""
        if (
            self._election.silence() >= SILENCE
            and time.monotonic() >= self._paused_until
            and read_wal(self._wal_path).filled >= EMERGENCY
        ):
            self._checkpoint("RESTART")

    # ---- copying ----------------------------------------------------------------------------------

    def _checkpoint(self, mode: str) -> bool:
        """Copy the log; whether all of it was copied and nobody reads it any more."""
        connection = self._connected()
        if not _write_a_frame(connection, self._must_stop):
            return False
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        if busy:
            self._hold_back()
            return False
        self._copied = read_wal(self._wal_path)
        self._pause = 0.0
        return True

    def _must_stop(self) -> bool:
        return self._closed or self._yielding

    def _hold_back(self) -> None:
        self._pause = min(max(self._pause * 2, MIN_PAUSE), MAX_PAUSE)
        self._paused_until = time.monotonic() + self._pause

    def _settle(self, wal: Wal) -> None:
        """Nobody writes: cut off the log, and give back what is free."""
        if not wal.size or self._checkpoint("TRUNCATE"):
            self._shrink()
            self._settled = not read_wal(self._wal_path).size

    def _shrink(self) -> None:
        """Give back free pages, in portions, until enough are gone or somebody writes."""
        connection = self._connected()
        surplus, portion = _surplus(connection), PORTION // _pragma(connection, "page_size")
        before = _pragma(connection, "data_version")
        for nth in itertools.count(1):
            if surplus <= 0 or self._must_stop() or _pragma(connection, "data_version") != before:
                return
            # As a script, because execute() would stop after the first page.
            connection.executescript(f"PRAGMA incremental_vacuum({min(portion, surplus)})")
            surplus -= portion
            if (nth % PORTIONS == 0 or surplus <= 0) and not self._checkpoint("TRUNCATE"):
                return

    # ---- the connection ---------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connection = self._connect()
            connection.isolation_level = None
            connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
            # Enough for a checkpoint, which syncs in any case; our own frames need not survive a power cut.
            connection.execute("PRAGMA synchronous=NORMAL").fetchall()
            _set_patience(connection, PATIENCE)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


class Election:
    """Who holds the lock on this file is elected. It is freed by the end of the process, however it ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._shown = 0.0

    @property
    def is_won(self) -> bool:
        return self._descriptor is not None

    def run(self) -> bool:
        """Whether this one is elected, now or since earlier."""
        if self._descriptor is not None and _identity(self._path) != _identity(self._descriptor):
            self.resign()  # the file was removed under us: others vote on a new one
        if self._descriptor is None:
            self._descriptor = self._lock()
        return self._descriptor is not None

    def _lock(self) -> int | None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            return None
        if _identity(self._path) != _identity(descriptor):  # it was removed by one who left
            os.close(descriptor)
            return None
        return descriptor

    def show_life(self) -> None:
        """Tell the candidates, at most once a second, that the elected process is at work."""
        if self._descriptor is not None and time.monotonic() - self._shown >= 1:
            self._shown = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)

    def silence(self) -> float:
        """For how many seconds the elected process has not shown life."""
        try:
            return time.time() - Path(self._path).stat().st_mtime
        except OSError:
            return 0.0  # nobody is elected: the next vote decides

    def resign(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Said aloud, because a forked child may have the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def leave(self) -> None:
        """Remove the file unless another is elected. Who has it open sees that it is gone, and votes anew."""
        with contextlib.suppress(OSError):
            if self.run():
                Path(self._path).unlink()
        self.resign()

    def abandon(self) -> None:
        """In a forked child: the parent stays elected."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _identity(file: str | int) -> tuple[int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - of a path or a descriptor
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _write_a_frame(connection: sqlite3.Connection, must_stop: Callable[[], bool]) -> bool:
    """Commit a change of nothing; False if the writers did not let us in."""
    try:
        if not _begin(connection, must_stop):
            return False
        version = _pragma(connection, "user_version")
        connection.execute(f"PRAGMA user_version={version}").fetchall()
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        # On a full disk nobody else can write either, and to copy the log is the way out.
        if not _is(error, sqlite3.SQLITE_FULL):
            raise
    return True


def _begin(connection: sqlite3.Connection, must_stop: Callable[[], bool]) -> bool:
    """Take the writer lock. SQLite itself would sleep ever longer, and starve while others write in a row."""
    _set_patience(connection, 0)
    deadline = time.monotonic() + TURN
    try:
        while time.monotonic() < deadline and not must_stop():
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is(error, sqlite3.SQLITE_BUSY):
                    raise
                time.sleep(0.0002)
            else:
                return True
        return False
    finally:
        _set_patience(connection, PATIENCE)


def _set_patience(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout={seconds * 1_000:.0f}").fetchall()


def _is(error: sqlite3.Error, primary: int) -> bool:
    return error.sqlite_errorcode & 0xFF == primary


def _surplus(connection: sqlite3.Connection) -> int:
    """How many free pages to give back; none in a file that cannot (auto_vacuum is not INCREMENTAL)."""
    if _pragma(connection, "auto_vacuum") != 2:
        return 0
    free, pages = _pragma(connection, "freelist_count"), _pragma(connection, "page_count")
    least = MIN_FREE // _pragma(connection, "page_size")
    if free <= max(least, pages * MAX_FREE):
        return 0
    return free - int((pages - free) * KEPT_FREE)
