"""The file: made whole or not at all, brought up to date, and never taken from anybody else."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from postroom.engines.sqlite.file import APPLICATION_ID, File, network_type
from postroom.engines.sqlite.folder import stamp_of
from postroom.engines.sqlite.reader import Reader
from postroom.engines.sqlite.sql import SCHEMAS
from postroom.engines.sqlite.writer import Writer
from postroom.errors import (
    ConfigError,
    EngineBusy,
    PostroomError,
    StoreCorrupt,
    StoreForeign,
    StoreGone,
    StoreTooNew,
)
from tests.sqlite.outside import (
    PATIENCE,
    SCHEMA,
    Child,
    Notes,
    eventually,
    file_at,
    note,
    notes_in,
    on_mount,
    writer_on,
)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def foreign(path: Path, *pragmas: str) -> bytes:
    """Somebody else's database; its bytes."""
    with closing(sqlite3.connect(path)) as other:
        other.executescript(f"CREATE TABLE mine (x); INSERT INTO mine VALUES (1); {';'.join(pragmas)}")
    return path.read_bytes()


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- making it ------------------------------------------------------------------------------


def test_a_new_file_is_a_store(tmp_path: Path) -> None:
    with closing(File(str(tmp_path / "s.db")).connect()) as connection:
        assert pragma(connection, "application_id") == APPLICATION_ID
        assert pragma(connection, "user_version") == max(SCHEMAS)
        assert pragma(connection, "auto_vacuum") == 2  # incremental
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2  # full
        assert pragma(connection, "wal_autocheckpoint") == 0
        assert pragma(connection, "query_only") == 0
        assert {"postroom_queue", "postroom_message", "postroom_body"} <= tables(connection)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch()
    with closing(file_at(path).connect()) as connection:
        assert tables(connection) == {"note"}


def test_synchronous_is_as_asked_and_never_off(tmp_path: Path) -> None:
    with closing(File(str(tmp_path / "s.db"), synchronous="normal").connect()) as connection:
        assert pragma(connection, "synchronous") == 1
    with pytest.raises(ConfigError, match="synchronous"):
        File(str(tmp_path / "s.db"), synchronous="off")


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    connection = file_at(tmp_path / "s.db").connect(readonly=True)
    with closing(connection), pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO note VALUES ('x')")


def test_any_name_is_a_path(tmp_path: Path) -> None:
    file = file_at(tmp_path / "a ?mode=memory#%41.db")
    file.connect().close()
    assert [path.name for path in tmp_path.iterdir()] == ["a ?mode=memory#%41.db"]


def test_a_link_leads_to_one_store_with_one_bell(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "s.db", tmp_path / "link.db"
    link.symlink_to(real)
    file = file_at(link)
    with closing(file.connect()):
        assert Path(file.wal_path).exists()
    assert file.wal_path == f"{real}-wal"
    assert file.bell_path == f"{real}.bell"


def test_processes_that_make_it_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    code = """
for line in sys.stdin:
    try:
        connection = File(line.strip()).connect()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        say(version, connection.execute("PRAGMA journal_mode").fetchone()[0])
        connection.close()
    except BaseException as error:
        say(repr(error))
"""
    children = [Child(code, tmp_path) for _ in range(4)]
    try:
        for turn in range(20):
            for child in children:
                child.tell(str(tmp_path / f"{turn}.db"))
            assert [child.hear() for child in children] == [f"{max(SCHEMAS)} wal"] * len(children)
    finally:
        for child in children:
            child.__exit__(None, None, None)


def test_who_comes_just_too_late_finds_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, missing = tmp_path / "s.db", File._missing

    def overtaken(file: File, marks: Any) -> list[int]:
        found = missing(file, marks)
        monkeypatch.setattr(File, "_missing", missing)
        file_at(path).connect().close()
        return found

    monkeypatch.setattr(File, "_missing", overtaken)
    with closing(file_at(path).connect()) as connection:
        assert tables(connection) == {"note"}


def test_a_kill_in_the_middle_leaves_nothing_half_made(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    code = """
from postroom.engines.sqlite import file
whole = file._statements
def half(script):
    yield next(whole(script))
    say("half")
    os.kill(os.getpid(), signal.SIGKILL)
file._statements = half
File(path).connect()
"""
    with Child(code, path) as child:
        assert child.hear() == "half"
        assert child.process.wait() == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as other:
        assert (tables(other), pragma(other, "application_id")) == (set(), 0)
    with closing(File(str(path)).connect()) as connection:
        assert "postroom_record" in tables(connection)
        assert pragma(connection, "auto_vacuum") == 2


# --- versions -------------------------------------------------------------------------------

LATER = {
    **SCHEMA,
    1_001: "ALTER TABLE note ADD COLUMN author TEXT; -- a; comment\nUPDATE note SET author = 'a;b';",
    2_000: "CREATE TABLE shelf (x); INSERT INTO shelf VALUES (1);",
}


def test_an_older_file_is_brought_up_to_date_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writer = writer_on(path)
    writer.run(note("kept"))
    writer.close()
    with closing(File(str(path), schemas=LATER).connect()) as connection:
        assert connection.execute("SELECT * FROM note").fetchall() == [("kept", "a;b")]
        assert connection.execute("SELECT * FROM shelf").fetchall() == [(1,)]
        assert pragma(connection, "user_version") == 2_000
    File(str(path), schemas=LATER).connect().close()  # and only once


def test_a_step_between_versions_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file_at(path).connect().close()
    broken = {**LATER, 2_000: "CREATE TABLE shelf (x); CREATE TABLE shelf (x);"}
    with pytest.raises(PostroomError, match="already exists"):
        File(str(path), schemas=broken).connect()
    with closing(file_at(path).connect()) as connection:
        assert tables(connection) == {"note"}
        assert pragma(connection, "user_version") == 1_000
        assert len(connection.execute("PRAGMA table_info(note)").fetchall()) == 1


def test_a_newer_minor_version_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    File(str(path), schemas={1_000: LATER[1_000], 1_001: LATER[1_001]}).connect().close()
    with closing(file_at(path).connect()) as connection:
        assert pragma(connection, "user_version") == 1_001
        connection.execute("INSERT INTO note (text) VALUES ('x')")


def test_a_newer_major_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    File(str(path), schemas=LATER).connect().close()
    before = listing(tmp_path)
    with pytest.raises(StoreTooNew, match=r"2\.0.*1\.0.*update"):
        file_at(path).connect()
    assert listing(tmp_path) == before


# --- what is not ours -----------------------------------------------------------------------


def test_a_foreign_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    before = foreign(path)
    with pytest.raises(StoreForeign, match=r"outbox=yes"):
        File(str(path)).connect()
    assert listing(tmp_path) == {"s.db": before}


@pytest.mark.parametrize("mark", ["PRAGMA application_id=7", "PRAGMA user_version=3"])
@pytest.mark.parametrize("outbox", [False, True])
def test_a_database_with_marks_of_its_own_is_refused_even_as_outbox(
    tmp_path: Path, mark: str, outbox: bool
) -> None:
    path = tmp_path / "s.db"
    before = foreign(path, mark)
    with pytest.raises(StoreForeign) as caught:
        File(str(path), outbox=outbox).connect()
    assert "outbox" not in str(caught.value)
    assert listing(tmp_path) == {"s.db": before}


def test_an_outbox_lies_beside_the_tables_of_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    foreign(path, "PRAGMA auto_vacuum=FULL", "VACUUM")
    with closing(File(str(path), outbox=True).connect()) as connection:
        assert {"mine", "postroom_message"} <= tables(connection)
        assert connection.execute("SELECT * FROM mine").fetchall() == [(1,)]
        assert pragma(connection, "auto_vacuum") == 1
        assert pragma(connection, "user_version") == max(SCHEMAS)
    File(str(path), outbox=True).connect().close()


def test_an_outbox_waits_for_the_owner_of_the_tables_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    before = foreign(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(EngineBusy):
            File(str(path), outbox=True, busy_timeout=50).connect()
        assert 0.05 <= time.monotonic() - began < PATIENCE
    assert path.read_bytes() == before


def test_a_version_that_somebody_else_wrote_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file_at(path).connect().close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version=3")
    with pytest.raises(StoreForeign, match="user_version"):
        file_at(path).connect()


@pytest.mark.parametrize(
    "content", [b"x", b"to whom it may concern\n" * 500, b"SQLite format 3\0" + b"\1" * 20]
)
def test_what_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(content)
    with pytest.raises(StoreForeign):
        File(str(path)).connect()
    assert listing(tmp_path) == {"s.db": content}


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreForeign, match="directory"):
        File(str(tmp_path)).connect()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreForeign, match="device"):
        File(str(tmp_path / "pipe")).connect()


@pytest.mark.parametrize("missing", ["none/s.db", "file/s.db"])
def test_a_missing_directory_is_named_and_not_made(tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / missing
    with pytest.raises(ConfigError, match=str(path.parent)):
        File(str(path)).connect()
    assert not path.parent.is_dir()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_cannot_be_a_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        File(path)


# --- the place ------------------------------------------------------------------------------

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
//server/a /mnt/my\\040share cifs rw 0 0
/dev/vdb /srv ext4 rw 0 0
host /srv fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/s.db", None),
        ("/home/ada/s.db", "nfs4"),
        ("/home/local/s.db", None),
        ("/homes/s.db", None),
        ("/mnt/my share/s.db", "cifs"),
        ("/srv/s.db", "fuse.sshfs"),
    ],
)
def test_the_mount_that_a_path_is_on_is_found(path: str, kind: str | None) -> None:
    assert network_type(path, MOUNTS) == kind


def test_a_network_filesystem_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs rw 0 0\n"
    with pytest.raises(ConfigError, match=r"nfs.*one machine"):
        File(str(tmp_path / "s.db"), mounts=mounts).connect()
    assert not list(tmp_path.iterdir())
    File(str(tmp_path / "s.db"), mounts="").connect().close()


def test_a_read_only_place_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writer = writer_on(path)
    writer.run(note("kept"))
    writer.close()
    code = """
for name in (path, path + ".new"):
    try:
        writer_on(name).run(note("x"))
    except PostroomError as error:
        say(error.code, name in str(error))
"""
    mount = 'mount --bind "$folder" "$folder"; mount -o remount,bind,ro "$folder"'
    assert on_mount(mount, code, path) == ["store_read_only True"] * 2
    assert notes_in(path) == ["kept"]


def test_a_file_that_is_read_only_says_so_and_recovers(tmp_path: Path) -> None:
    code = """
writer_on(path).run(note("first"))
os.mkdir(path + ".d")
os.system(f"mount --bind {path} {path} && mount -o remount,bind,ro {path}")
writer = writer_on(path)
try:
    writer.run(note("x"))
except PostroomError as error:
    say(error.code)
os.system(f"mount -o remount,bind,rw {path}")
writer.run(note("second"))
say(notes_in(path))
"""
    assert on_mount("true", code, tmp_path / "s.db") == ["store_read_only", "['first', 'second']"]


def test_a_full_disk_changes_nothing_and_the_store_goes_on_with_space(tmp_path: Path) -> None:
    code = """
writer, count = writer_on(path), 0
try:
    while True:
        writer.run(note("x" * 10_000))
        count += 1
except PostroomError as error:
    say(error.code, count > 10)
try:
    writer.run(note("x" * 100_000))
except PostroomError as error:
    say(error.code)
say(len(notes_in(path)) == count)
os.system("mount -o remount,size=8m " + os.path.dirname(path))
writer.run(note("x" * 100_000))
say(len(notes_in(path)) == count + 1)
"""
    mount = 'mount -t tmpfs -o size=1m tmpfs "$folder"'
    assert on_mount(mount, code, tmp_path / "s.db") == ["store_full True", "store_full", "True", "True"]


def test_a_disk_too_full_for_a_new_store_leaves_none(tmp_path: Path) -> None:
    code = """
folder = os.path.dirname(path)
for size in range(4, 200, 12):
    os.system(f"mount -t tmpfs -o size={size}k tmpfs {folder}")
    try:
        File(path).connect().close()
        say("enough")
    except PostroomError as error:
        say(error.code)
    os.system(f"mount -o remount,size=8m {folder}")
    connection = File(path).connect()
    (ok,) = connection.execute("PRAGMA integrity_check").fetchone()
    say(ok, connection.execute("PRAGMA auto_vacuum").fetchone()[0])
    connection.close()
"""
    lines = on_mount("true", code, tmp_path / "s.db")
    assert set(lines[0::2]) == {"store_full", "enough"}
    assert set(lines[1::2]) == {"ok 2"}


# --- what happens to it while it is open ----------------------------------------------------


def test_a_damaged_file_is_reported_and_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writer = writer_on(path)
    writer.run(lambda context: context.connection.execute("CREATE INDEX by_text ON note (text)").fetchall())
    for number in range(200):
        writer.run(note(f"{number}" * 100))
    writer.close()  # which moves all of it from the -wal to the file
    content = path.read_bytes()
    path.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    damaged = path.read_bytes()
    reader, writer = Reader(file_at(path)), writer_on(path)
    with pytest.raises(StoreCorrupt, match="copy"), reader.look() as connection:
        connection.execute("SELECT * FROM note").fetchall()
    with pytest.raises(StoreCorrupt, match="copy"):
        writer.run(note("x"))
    reader.close()
    writer.close()
    assert path.read_bytes() == damaged


def check_gone(path: Path, writer: Writer[Notes], reader: Reader) -> None:
    before = {path.name for path in path.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreGone, match=str(path)):
            writer.run(note("lost"))
        with pytest.raises(StoreGone, match=str(path)), reader.look():
            pass
    # Not even a new connection brings it back.
    writer.suspend(0)
    writer.resume()
    assert {path.name for path in path.parent.iterdir()} <= before | {"s.db-wal.replaced"}


def test_a_deleted_file_is_noticed_and_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = file_at(path)
    writer, reader = Writer(file, Notes), Reader(file)
    writer.run(note("x"))
    path.unlink()
    check_gone(path, writer, reader)
    with pytest.raises(StoreGone):
        writer.run(note("lost"))
    assert not path.exists()
    writer.close()
    reader.close()


def settled(file: File) -> Writer[Notes]:
    """A writer that was last checked when nothing had changed beside its file for a while."""
    writer = Writer(file, Notes)
    eventually(lambda: writer.run(note("x")) is None and writer.stamp is not None)
    return writer


@pytest.mark.parametrize("which", ["", "-wal"])
def test_what_is_deleted_in_a_quiet_folder_is_noticed(tmp_path: Path, which: str) -> None:
    path = tmp_path / "s.db"
    writer = settled(file_at(path))
    Path(f"{path}{which}").unlink()
    eventually(lambda: stamp_of(str(tmp_path)))
    with pytest.raises(StoreGone):
        writer.run(note("lost"))
    writer.close()


def test_a_folder_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    writer = settled(file_at(folder / "s.db"))
    folder.rename(tmp_path / "elsewhere")
    other.rename(folder)
    eventually(lambda: stamp_of(str(folder)))
    with pytest.raises(StoreGone):
        writer.run(note("lost"))
    writer.close()


def test_in_a_quiet_folder_one_look_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, looks = settled(file_at(tmp_path / "s.db")), list[str]()
    stat = os.stat

    def look(path: str) -> os.stat_result:
        looks.append(path)
        return stat(path)

    monkeypatch.setattr(os, "stat", look)
    writer.run(note("y"))
    monkeypatch.undo()
    assert looks == [str(tmp_path)]
    writer.close()


def test_a_file_deleted_after_the_check_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    file = file_at(path)
    file.connect().close()
    path.unlink()
    monkeypatch.setattr(File, "check", lambda _: None)
    with pytest.raises(PostroomError):
        file.connect()
    assert not list(tmp_path.iterdir())


def test_a_replaced_file_is_noticed_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = file_at(path)
    writer, reader = Writer(file, Notes), Reader(file)
    writer.run(note("x"))
    other = tmp_path / "other.db"
    file_at(other).connect().close()
    content = other.read_bytes()
    other.rename(path)
    check_gone(path, writer, reader)
    assert path.read_bytes() == content
    writer.close()
    reader.close()


def test_a_file_deleted_inside_a_transaction_is_not_reported_as_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writer = writer_on(path)

    def step(context: Notes) -> None:
        note("lost")(context)
        path.unlink()

    with pytest.raises(StoreGone):
        writer.run(step)
    writer.close()


def test_a_deleted_wal_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = file_at(path)
    writer, reader = Writer(file, Notes), Reader(file)
    writer.run(note("x"))
    with reader.look():
        pass
    Path(file.wal_path).unlink()
    check_gone(Path(file.wal_path), writer, reader)
    writer.close()
    reader.close()
