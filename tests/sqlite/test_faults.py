"""Whatever sqlite3 raises becomes an error of ours, by its code."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from postroom.engines.sqlite.faults import fault, is_busy, translated
from postroom.errors import (
    EngineBusy,
    EngineUnavailable,
    PostroomError,
    StoreCorrupt,
    StoreForeign,
    StoreFull,
    StoreGone,
    StoreReadOnly,
)

PATH = "/srv/queue.db"


def error_with(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it says so")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, EngineBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, EngineBusy),
        (sqlite3.SQLITE_BUSY_RECOVERY, EngineBusy),
        (sqlite3.SQLITE_LOCKED, EngineBusy),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, EngineBusy),
        (sqlite3.SQLITE_PROTOCOL, EngineBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
        (sqlite3.SQLITE_READONLY, StoreReadOnly),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreReadOnly),
        (sqlite3.SQLITE_READONLY_CANTINIT, StoreReadOnly),
        (sqlite3.SQLITE_PERM, StoreReadOnly),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreGone),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorrupt),
        (sqlite3.SQLITE_IOERR_CORRUPTFS, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, StoreForeign),
        (sqlite3.SQLITE_IOERR, EngineUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, EngineUnavailable),
        (sqlite3.SQLITE_NOMEM, EngineUnavailable),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, EngineUnavailable),
    ],
)
def test_the_code_decides(code: int, kind: type[PostroomError]) -> None:
    error = error_with(code)
    ours = fault(error, PATH)
    assert type(ours) is kind
    assert ours.__cause__ is error
    assert PATH in str(ours)
    assert "it says so" in str(ours)


def test_an_error_without_a_code_is_ours_too() -> None:
    connection = sqlite3.connect(":memory:")
    connection.close()
    with pytest.raises(EngineUnavailable) as caught, translated(PATH):
        connection.execute("SELECT 1")
    assert type(caught.value) is EngineUnavailable
    assert PATH in str(caught.value)


def test_a_damaged_file_comes_with_advice() -> None:
    text = str(fault(error_with(sqlite3.SQLITE_CORRUPT), PATH))
    assert "copy it" in text
    assert "PRAGMA integrity_check" in text
    assert ".recover" in text


def test_what_cannot_be_opened_for_another_reason_is_not_read_only(tmp_path: Path) -> None:
    ours = fault(error_with(sqlite3.SQLITE_CANTOPEN), str(tmp_path / "queue.db"))
    assert type(ours) is EngineUnavailable


def test_other_errors_pass_untouched() -> None:
    with pytest.raises(KeyError), translated(PATH):
        raise KeyError("mine")


@pytest.mark.parametrize(
    ("code", "busy"),
    [(sqlite3.SQLITE_BUSY_RECOVERY, True), (sqlite3.SQLITE_PROTOCOL, True), (sqlite3.SQLITE_FULL, False)],
)
def test_only_what_ends_by_itself_is_waited_for(code: int, busy: bool) -> None:
    assert is_busy(error_with(code)) is busy
