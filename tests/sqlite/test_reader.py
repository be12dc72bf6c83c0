"""Looking: one moment at a time, beside a writer, and never in the way of a fork."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from postroom.engines.sqlite.reader import Reader
from postroom.errors import Closed, EngineBusy, EngineUnavailable
from tests.sqlite.outside import PATIENCE, Child, eventually, file_at, note, notes_in, writer_on


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def count(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM note").fetchone()
    assert isinstance(number, int)
    return number


def test_a_look_sees_one_moment(path: Path) -> None:
    reader, writer = Reader(file_at(path)), writer_on(path)
    with reader.look() as connection:
        # Nothing was read yet, and still the moment is that of the beginning.
        writer.run(note("later"))
        assert count(connection) == 0
    with reader.look() as connection:
        assert count(connection) == 1
    reader.close()
    writer.close()


def test_a_look_does_not_hold_up_a_writer_nor_a_writer_a_look(path: Path) -> None:
    reader, writer = Reader(file_at(path)), writer_on(path, busy_timeout=0)
    with reader.look():
        writer.run(note("beside a look"))

    def look(_: object) -> int:
        with reader.look() as connection:
            return count(connection)

    assert writer.run(look) == 1
    reader.close()
    writer.close()


def test_a_look_cannot_write(path: Path) -> None:
    reader = Reader(file_at(path))
    with pytest.raises(EngineUnavailable), reader.look() as connection:
        connection.execute("INSERT INTO note VALUES ('x')")
    with reader.look() as connection:
        assert count(connection) == 0
    reader.close()


def test_an_error_of_the_block_ends_the_look_and_passes(path: Path) -> None:
    reader = Reader(file_at(path))
    for error in (KeyError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)), reader.look() as connection:
            raise error
        assert not connection.in_transaction
    with reader.look() as connection:
        assert count(connection) == 0
    reader.close()


def test_a_look_that_an_interrupt_left_open_is_ended_by_the_next(path: Path) -> None:
    reader, writer = Reader(file_at(path)), writer_on(path)
    with reader.look() as connection:
        pass
    connection.execute("BEGIN")
    assert count(connection) == 0
    writer.run(note("x"))
    with reader.look() as connection:
        assert count(connection) == 1
    reader.close()
    writer.close()


def test_a_store_that_is_locked_is_waited_for_but_not_for_ever(path: Path) -> None:
    reader = Reader(file_at(path, busy_timeout=50))
    with reader.look():
        pass
    assert reader.suspend(0)
    reader.resume()
    code = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA locking_mode=EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("INSERT INTO note VALUES ('x')")
say("locked")
sys.stdin.readline()
"""
    with Child(code, path) as child:
        assert child.hear() == "locked"
        began = time.monotonic()
        with pytest.raises(EngineBusy), reader.look():
            pass
        assert 0.05 <= time.monotonic() - began < PATIENCE
    with reader.look() as connection:
        assert count(connection) == 0
    reader.close()


def test_a_closed_reader_says_so(path: Path) -> None:
    reader = Reader(file_at(path))
    reader.close()
    reader.close()
    with pytest.raises(Closed), reader.look():
        pass
    assert not path.exists()


def test_a_suspended_reader_has_nothing_open_and_looks_wait(path: Path) -> None:
    reader = Reader(file_at(path))
    with reader.look():
        assert not reader.suspend(0.01)
    assert reader.suspend(0)
    assert not any(str(path) in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())
    seen: list[int] = []

    def look() -> None:
        with reader.look() as connection:
            seen.append(count(connection))

    thread = threading.Thread(target=look)
    thread.start()
    eventually(thread.is_alive)
    assert not seen
    reader.resume()
    thread.join(PATIENCE)
    assert seen == [0]
    reader.close()


@pytest.mark.parametrize("suspended", [True, False])
def test_a_child_looks_unless_a_look_was_open_at_the_fork(path: Path, suspended: bool) -> None:
    code = """
writer, reader = writer_on(path), Reader(File(path, schemas=SCHEMA))
writer.run(note("before"))
writer.close()
def fork():
    if os.fork():
        return os.wait()
    reader.reset()
    try:
        with reader.look() as connection:
            say(connection.execute("SELECT count(*) FROM note").fetchone()[0])
    except EngineUnavailable as error:
        say(error.code)
    os._exit(0)
if sys.stdin.readline().strip() == "True":
    assert reader.suspend(0)
    fork()
    reader.resume()
else:
    with reader.look():
        assert not reader.suspend(0.01)
        fork()
with reader.look() as connection:
    say(connection.execute("SELECT count(*) FROM note").fetchone()[0])
"""
    with Child(code, path) as child:
        child.tell(str(suspended))
        assert child.hear() == ("1" if suspended else "engine_unavailable")
        assert child.hear() == "1"
    assert notes_in(path) == ["before"]
