"""The checkpointer: one process keeps the log short, whoever dies, reads or writes meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.engines.sqlite import checkpointer
from postroom.engines.sqlite.checkpointer import Checkpointer
from postroom.engines.sqlite.wal import Wal, read_wal
from tests.processes import has_stopped

#: Far more than anything here takes, also on a machine that is busy with something else.
PATIENCE = 60.0
MB = 1024 * 1024

#: Another process: a candidate that says "elected" when it is, and writes if it is told how much.
NEIGHBOUR = """
import os, sqlite3, sys, time
from postroom.engines.sqlite import checkpointer

def connect():
    connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection

for setting in sys.argv[2].split():
    name, _, value = setting.partition("=")
    setattr(checkpointer, name, float(value))
candidate = checkpointer.Checkpointer(sys.argv[1], connect)
candidate.start()
connection = connect()
for _ in range(int(sys.argv[3])):
    connection.execute("INSERT INTO mail (body) VALUES (?)", (os.urandom(8_000),))
    candidate.nudge()
connection.close()
"""
STAYS = """
while not candidate.is_elected:
    time.sleep(0.01)
print("elected", flush=True)
sys.stdin.read()
"""
FORKS = """
while not candidate.is_elected or candidate._connection is None:
    time.sleep(0.01)
if os.fork():
    sys.stdin.read()
candidate.reset()
print("elected", flush=True)
sys.stdin.read()
os._exit(0)
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a new file with a table; in the end the file must be sound."""
    connection = connect(path)
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE mail (key INTEGER PRIMARY KEY, body BLOB)")
    yield connection
    if path.exists():
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.fixture
def candidate(path: Path, store: sqlite3.Connection) -> Iterator[Callable[[], Checkpointer]]:
    made: list[Checkpointer] = []

    def start() -> Checkpointer:
        made.append(Checkpointer(str(path), lambda: connect(path)))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def neighbour(path: Path, store: sqlite3.Connection) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def start(then: str = STAYS, *, writes: int = 0, settings: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", NEIGHBOUR + then, str(path), settings, str(writes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        made.append(process)
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store counts as idle sooner, and its log as long."""
    monkeypatch.setattr(checkpointer, "IDLE", 0.3)
    monkeypatch.setattr(checkpointer, "LIMIT", MB)


def write(store: sqlite3.Connection, size: int) -> None:
    for _ in range(size // 8_192):
        store.execute("INSERT INTO mail (body) VALUES (?)", (os.urandom(8_000),))


def wal_of(path: Path) -> Wal:
    return read_wal(f"{path}-wal")


def is_elected(process: subprocess.Popen[str]) -> bool:
    assert process.stdout
    return process.stdout.readline() == "elected\n"


# ---- The election ----------------------------------------------------------------------------------


def test_one_of_three_is_elected_and_another_when_it_is_killed(
    neighbour: Callable[..., subprocess.Popen[str]], candidate: Callable[[], Checkpointer]
) -> None:
    first = neighbour()
    assert is_elected(first)
    second, here = neighbour(), candidate()
    until(lambda: here._look == checkpointer.QUIET_LOOK)  # it has tried
    assert not here.is_elected
    first.kill()
    until(lambda: here.is_elected or has_line(second))
    winner_is_here = elected(here)
    here.close()
    assert not winner_is_here or is_elected(second)


def elected(candidate: Checkpointer) -> bool:
    return candidate.is_elected


def has_line(process: subprocess.Popen[str]) -> bool:
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    try:
        return bool(process.stdout.readline())
    finally:
        os.set_blocking(process.stdout.fileno(), True)


def test_two_in_one_process_are_two_candidates(candidate: Callable[[], Checkpointer]) -> None:
    first = candidate()
    until(lambda: first.is_elected)
    second = candidate()
    until(lambda: second._look == checkpointer.QUIET_LOOK)
    assert not second.is_elected
    first.close()
    until(lambda: second.is_elected)


def test_who_leaves_last_takes_the_lock_file_along(candidate: Callable[[], Checkpointer], path: Path) -> None:
    first, second = candidate(), candidate()
    until(lambda: first.is_elected or second.is_elected)
    lock = Path(f"{path}.checkpoint")
    follower, elected = sorted((first, second), key=lambda each: each.is_elected)
    follower.close()
    assert lock.exists()
    elected.close()
    assert not lock.exists()
    elected.close()


def test_a_lock_file_removed_by_hand_leaves_one_elected(
    candidate: Callable[[], Checkpointer], path: Path
) -> None:
    first = candidate()
    until(lambda: first.is_elected)
    Path(f"{path}.checkpoint").unlink()
    second = candidate()
    until(lambda: second._look == checkpointer.QUIET_LOOK)  # it has tried
    until(lambda: first.is_elected != second.is_elected)
    until(Path(f"{path}.checkpoint").exists)


def test_a_forked_child_does_not_hold_the_lock(
    neighbour: Callable[..., subprocess.Popen[str]],
    candidate: Callable[[], Checkpointer],
    store: sqlite3.Connection,
) -> None:
    write(store, MB // 8)
    family = neighbour(FORKS, settings="IDLE=0.1")
    assert is_elected(family)  # said by the child
    here = candidate()
    until(lambda: here._look == checkpointer.QUIET_LOOK)
    assert not here.is_elected  # the child has let go, the parent has not
    family.kill()
    family.wait()
    until(lambda: here.is_elected)


def test_nothing_is_open_while_the_process_forks(
    quick: None, candidate: Callable[[], Checkpointer], store: sqlite3.Connection, path: Path
) -> None:
    write(store, MB // 8)
    here = candidate()
    until(lambda: here._connection is not None and here._settled)
    assert here.suspend(PATIENCE)
    assert here._connection is None
    write(store, 2 * MB)
    here.nudge()
    assert here._connection is None
    assert wal_of(path).size > 2 * MB
    here.resume()
    until(lambda: wal_of(path).size == 0)


def test_a_fork_does_not_wait_for_writers(
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    candidate: Callable[[], Checkpointer],
    store: sqlite3.Connection,
    path: Path,
) -> None:
    monkeypatch.setattr(checkpointer, "TURN", PATIENCE * 2)
    write(store, MB)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")  # nobody else gets to write
    here = candidate()
    until(lambda: here._working.locked() and here._connection is not None)
    assert here.suspend(PATIENCE)
    here.resume()
    other.execute("COMMIT")
    other.close()
    until(lambda: wal_of(path).size == 0)


def test_a_forked_child_is_a_candidate_with_its_first_commit(
    candidate: Callable[[], Checkpointer],
) -> None:
    here = candidate()
    until(lambda: here.is_elected)
    assert here.suspend(PATIENCE)
    child = Checkpointer(here._path, here._connect)
    child.reset()
    assert child._thread is None
    child.nudge()
    here.resume()
    here.close()
    until(lambda: child.is_elected)
    child.close()


# ---- The log ---------------------------------------------------------------------------------------


def test_the_log_is_measured_by_its_frames(store: sqlite3.Connection, path: Path) -> None:
    assert read_wal(f"{path}-nothing") == Wal()
    for size in (MB // 8, MB // 2, MB // 4, MB // 16):
        write(store, size)
        measured = wal_of(path)
        _, frames, copied = store.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        assert measured.frames == frames == copied
        assert measured.filled <= measured.size == Path(f"{path}-wal").stat().st_size
        assert wal_of(path) == measured  # no frame of the next round yet
    assert measured.filled < measured.size / 2
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert wal_of(path) == Wal()


def test_an_idle_store_has_no_log(
    quick: None, candidate: Callable[[], Checkpointer], store: sqlite3.Connection, path: Path
) -> None:
    write(store, MB // 8)
    candidate()
    until(lambda: wal_of(path).size == 0)
    before = path.stat().st_size
    write(store, MB // 8)
    until(lambda: wal_of(path).size == 0)
    assert path.stat().st_size > before


def test_the_log_stays_short_while_two_processes_write(
    neighbour: Callable[..., subprocess.Popen[str]], store: sqlite3.Connection, path: Path
) -> None:
    two = [neighbour("", writes=6_000) for _ in range(2)]
    longest = 0
    while any(process.poll() is None for process in two):
        longest = max(longest, wal_of(path).size)
        time.sleep(0.002)
    assert [process.returncode for process in two] == [0, 0]
    assert store.execute("SELECT count(*) FROM mail").fetchone() == (12_000,)
    # They wrote half as much again. On an idle machine it is a quarter: one who is late finds more to copy.
    assert checkpointer.LIMIT <= longest < 8 * checkpointer.LIMIT


def test_a_log_of_the_limit_is_written_again_from_its_start(
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    candidate: Callable[[], Checkpointer],
    store: sqlite3.Connection,
    path: Path,
) -> None:
    monkeypatch.setattr(checkpointer, "IDLE", PATIENCE * 2)
    write(store, MB // 2)  # about a limit and a half, with the pages of the tree
    candidate()
    before = wal_of(path)

    def starts_anew() -> bool:
        write(store, 8_192)
        return wal_of(path).round != before.round

    until(starts_anew)
    assert wal_of(path).size >= before.size
    assert wal_of(path).filled < MB


def traced(path: Path, said: list[str]) -> Checkpointer:
    """A candidate whose statements are written down."""

    def listen() -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(said.append)
        return connection

    candidate = Checkpointer(str(path), listen)
    candidate.start()
    return candidate


def test_each_checkpoint_takes_the_writer_lock_and_follows_a_frame(
    quick: None, store: sqlite3.Connection, path: Path
) -> None:
    said: list[str] = []
    write(store, 2 * MB)
    here = traced(path, said)
    until(lambda: wal_of(path).size == 0)
    here.close()
    before = [first for first, second in itertools.pairwise(said) if "wal_checkpoint" in second]
    assert before
    assert set(before) == {"COMMIT"}
    assert not any("passive" in statement.lower() for statement in said)


def test_a_long_reader_hangs_nobody_and_the_log_shrinks_after_it(
    quick: None, candidate: Callable[[], Checkpointer], store: sqlite3.Connection, path: Path
) -> None:
    write(store, MB // 8)
    reader = connect(path)
    reader.execute("BEGIN")
    seen = reader.execute("SELECT count(*) FROM mail").fetchone()
    here = candidate()
    write(store, 2 * MB)
    until(lambda: here._pause > 0)  # it was refused, and holds back
    slowest = max(timed(lambda: write(store, 8_192)) for _ in range(100))
    assert slowest < PATIENCE / 2
    assert reader.execute("SELECT count(*) FROM mail").fetchone() == seen
    assert wal_of(path).size > 2 * MB
    reader.execute("COMMIT")
    reader.close()
    until(lambda: wal_of(path).size == 0)


def timed(work: Callable[[], None]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def test_others_stand_in_for_an_elected_process_that_is_stopped(
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    neighbour: Callable[..., subprocess.Popen[str]],
    candidate: Callable[[], Checkpointer],
    store: sqlite3.Connection,
    path: Path,
) -> None:
    monkeypatch.setattr(checkpointer, "EMERGENCY", 4 * MB)
    monkeypatch.setattr(checkpointer, "SILENCE", 0.2)
    elected = neighbour()
    assert is_elected(elected)
    os.kill(elected.pid, signal.SIGSTOP)
    until(lambda: has_stopped(elected.pid))
    write(store, 8_192)
    before = wal_of(path).round
    here = candidate()
    write(store, 5 * MB)  # it may be copied when only four are written: the rest begins the log anew
    here.nudge()
    until(lambda: here._copied is not None)
    assert not here.is_elected
    write(store, 8_192)
    assert wal_of(path).round != before


# ---- The file --------------------------------------------------------------------------------------


def test_the_file_shrinks_after_most_rows_are_deleted(
    quick: None, candidate: Callable[[], Checkpointer], store: sqlite3.Connection, path: Path
) -> None:
    write(store, 24 * MB)
    candidate()
    until(lambda: path.stat().st_size > 20 * MB)
    store.execute("DELETE FROM mail WHERE key % 10")
    until(lambda: path.stat().st_size < 4 * MB and wal_of(path).size == 0)
    assert store.execute("SELECT count(*) FROM mail").fetchone()[0] == 24 * MB // 8_192 // 10


def test_a_few_free_pages_are_kept(
    quick: None, candidate: Callable[[], Checkpointer], store: sqlite3.Connection, path: Path
) -> None:
    write(store, 8 * MB)
    store.execute("DELETE FROM mail WHERE key % 8 = 0")
    here = candidate()
    until(lambda: here._settled)
    assert path.stat().st_size >= 8 * MB
    assert store.execute("PRAGMA freelist_count").fetchone()[0] > 0


def test_a_file_that_cannot_shrink_is_left_alone(quick: None, store: sqlite3.Connection, path: Path) -> None:
    said: list[str] = []
    store.execute("PRAGMA journal_mode=DELETE")
    store.execute("PRAGMA auto_vacuum=NONE")
    store.execute("VACUUM")
    store.execute("PRAGMA journal_mode=WAL")
    write(store, 4 * MB)
    store.execute("DELETE FROM mail")
    here = traced(path, said)
    until(lambda: here._settled)
    here.close()
    assert not any("vacuum(" in statement for statement in said)
    assert wal_of(path).size == 0
    assert path.stat().st_size >= 4 * MB


# ---- Trouble ---------------------------------------------------------------------------------------


def test_it_ends_with_the_file(
    candidate: Callable[[], Checkpointer], path: Path, store: sqlite3.Connection
) -> None:
    here = candidate()
    until(lambda: here.is_elected)
    path.unlink()
    assert here._thread
    here._thread.join(PATIENCE)
    assert not here._thread.is_alive()
    assert not here.is_elected
    assert not path.exists()
    here.start()
    here.nudge()


def test_errors_are_told_once_and_it_goes_on(
    quick: None, store: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[float] = []

    def refuse_twice() -> sqlite3.Connection:
        if len(refused) < 2:
            refused.append(time.monotonic())
            raise sqlite3.OperationalError("made up")
        return connect(path)

    write(store, MB // 8)
    here = Checkpointer(str(path), refuse_twice)
    here.start()
    until(lambda: wal_of(path).size == 0)
    here.close()
    assert len(refused) == 2
    assert caplog.text.count("made up") == 1


def test_an_idle_candidate_costs_next_to_nothing(
    quick: None, monkeypatch: pytest.MonkeyPatch, candidate: Callable[[], Checkpointer]
) -> None:
    here = candidate()
    until(lambda: here._settled and here._look == checkpointer.QUIET_LOOK)
    rounds: list[float] = []
    monkeypatch.setattr(here, "_round", lambda: rounds.append(time.monotonic()))
    until(lambda: len(rounds) == 3)
    assert rounds[2] - rounds[0] > 1.5
