"""What SQLite reports, as errors of ours: each names the file and says what to do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.errors import (
    EngineBusy,
    EngineUnavailable,
    InvalidInput,
    StoreCorrupt,
    StoreForeign,
    StoreFull,
    StoreGone,
    StoreReadOnly,
)

_BUSY = "another process held the store for longer than the busy timeout; nothing was changed, try again"
_STALE = "this transaction has read an older state and cannot write: roll back, and begin with a write"
_FULL = "no space left on the device; nothing was changed: make space and try again"
_READ_ONLY = "this process may not write to the file or to its folder: check the owner, permissions and mount"
_CORRUPT = (
    "the file is damaged: stop, copy it with its -wal, then run `PRAGMA integrity_check` and `.recover`"
)
_FOREIGN = "this is not a SQLite database; it was left as it is: check the path"
_GONE = "the file was moved or deleted while it was open: open the room again, on the right file"

#: All that sqlite3 raises; a Warning is not an Error there.
SQLITE_ERRORS = (sqlite3.Error, sqlite3.Warning)

#: What Python cannot hand to SQLite: text that is no UTF-8, numbers of more than 64 bits.
_UNSTORABLE = (UnicodeEncodeError, OverflowError)

_Fault = tuple[type[EngineUnavailable], str]

#: By extended code where that says more, else by primary code.
_FAULTS: dict[int, _Fault] = {
    sqlite3.SQLITE_BUSY: (EngineBusy, _BUSY),
    sqlite3.SQLITE_BUSY_SNAPSHOT: (EngineBusy, _STALE),
    sqlite3.SQLITE_LOCKED: (EngineBusy, _BUSY),
    # Too many others opened or closed the store at the same moment.
    sqlite3.SQLITE_PROTOCOL: (EngineBusy, _BUSY),
    sqlite3.SQLITE_FULL: (StoreFull, _FULL),
    # The -shm file could not grow. SQLite reports a full disk in this way too, and knows no other reason.
    sqlite3.SQLITE_IOERR_SHMSIZE: (StoreFull, _FULL),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, _READ_ONLY),
    sqlite3.SQLITE_PERM: (StoreReadOnly, _READ_ONLY),
    sqlite3.SQLITE_READONLY_DBMOVED: (StoreGone, _GONE),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, _CORRUPT),
    sqlite3.SQLITE_IOERR_CORRUPTFS: (StoreCorrupt, _CORRUPT),
    sqlite3.SQLITE_NOTADB: (StoreForeign, _FOREIGN),
}

_WAIT_FOR = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def fault(error: sqlite3.Error | sqlite3.Warning, path: str) -> EngineUnavailable:
    """What to raise instead of SQLite's error, which becomes its cause."""
    code = _code(error)
    kind, advice = _FAULTS.get(code) or _FAULTS.get(code & 0xFF) or (EngineUnavailable, "")
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN and not _permitted(Path(path)):
        kind, advice = StoreReadOnly, _READ_ONLY
    ours = kind(f"{path}: {advice} (SQLite: {error})" if advice else f"{path}: SQLite says: {error}")
    ours.__cause__ = error
    return ours


def ours(error: Exception, path: str) -> Exception:
    """What to raise instead of this error; itself, if it is nothing of SQLite's."""
    if isinstance(error, _UNSTORABLE):
        return InvalidInput(f"{str(error)[:200]}: this cannot be stored; nothing was changed")
    return fault(error, path) if isinstance(error, SQLITE_ERRORS) else error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the same call may succeed as soon as somebody else is done."""
    return _code(error) & 0xFF in _WAIT_FOR


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Nothing of sqlite3 gets out of this block, only errors of ours."""
    try:
        yield
    except Exception as error:
        instead = ours(error, path)
        if instead is error:
            raise
        raise instead from error


def _code(error: sqlite3.Error | sqlite3.Warning) -> int:
    # An error that Python found by itself, like a closed connection, has no code.
    return getattr(error, "sqlite_errorcode", 0)


def _permitted(path: Path) -> bool:
    """Whether this process may write to the file, if there is one, and make files beside it."""
    beside = os.access(path.parent, os.W_OK | os.X_OK)
    return beside and (not path.exists() or os.access(path, os.R_OK | os.W_OK))
