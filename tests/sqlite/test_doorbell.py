"""The doorbell: who is rung in other processes, and what remains when they die."""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.engines.sqlite.bellfolder import BellFolder, encode, mark_of
from postroom.engines.sqlite.doorbell import Doorbell
from tests.processes import has_stopped

#: Far more than anything here takes, also on a machine that is busy with something else.
PATIENCE = 60.0

NEIGHBOUR = """
import json, os, sys
from postroom.engines.sqlite.doorbell import Doorbell

def say(*what):
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()

def listen():
    for line in sys.stdin:
        verb, *args = json.loads(line)
        say("done", getattr(bell, verb)(*args))

bell = Doorbell(sys.argv[1], lambda name: say("rung", name), lambda: None)
"""

FORKED = """
bell.arm("parent")
os.mkfifo(sys.argv[1] + ".fifo")
if os.fork():
    listen()
else:
    sys.stdin = open(sys.argv[1] + ".fifo")
    bell.abandon()
    bell._on_ring = lambda name: say("rung by child", name)
    bell.arm("child")
    say("forked", os.getpid())
    listen()
    os._exit(0)
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class Neighbour:
    """Another process with a doorbell of its own, told what to do line by line."""

    def __init__(self, folder: Path, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[list[object]] = []
        self.answers: queue.Queue[object] = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            what, value = json.loads(line)
            if what == "done":
                self.answers.put(value)
            else:
                self.said.append([what, value])

    def do(self, verb: str, *args: object) -> object:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([verb, *args]) + "\n")
        self.process.stdin.flush()
        return self.answers.get(timeout=PATIENCE)

    @property
    def rung(self) -> list[object]:
        return [value for what, value in self.said if what == "rung"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stdin
        assert self.process.stdout
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


Invite = Callable[..., Neighbour]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db.bell"


@pytest.fixture
def invite(folder: Path) -> Iterator[Invite]:
    """Start a neighbour that waits for these names."""
    neighbours: list[Neighbour] = []

    def start(*names: str, at: Path = folder, script: str = "listen()") -> Neighbour:
        neighbour = Neighbour(at, NEIGHBOUR + script)
        neighbours.append(neighbour)
        for name in names:
            neighbour.do("arm", name)
        return neighbour

    yield start
    for neighbour in neighbours:
        neighbour.end()


class Ears:
    """A doorbell in this process that keeps what it heard."""

    def __init__(self, folder: Path) -> None:
        self.rung: list[str] = []
        self.ticks = 0
        self.bell = Doorbell(str(folder), self.hear, self.tick)

    def hear(self, name: str) -> None:
        self.rung.append(name)

    def tick(self) -> None:
        self.ticks += 1


@pytest.fixture
def ears(folder: Path) -> Iterator[Callable[[], Ears]]:
    made: list[Ears] = []

    def make() -> Ears:
        made.append(Ears(folder))
        return made[-1]

    yield make
    for each in made:
        each.bell.close()


# ---- Who is rung -----------------------------------------------------------------------------------


def test_a_ring_reaches_another_process(ears: Callable[[], Ears], invite: Invite) -> None:
    neighbour, bell = invite("mail"), ears().bell
    assert bell.ring("mail", 1) == 1
    until(lambda: neighbour.rung == ["mail"])


def test_a_process_in_turn_rings_us(ears: Callable[[], Ears], invite: Invite) -> None:
    neighbour, here = invite(), ears()
    here.bell.arm("mail")
    assert neighbour.do("ring", "mail", 5) == 1
    until(lambda: here.rung == ["mail"])


def test_it_tells_as_many_as_asked_and_each_in_turn(ears: Callable[[], Ears], invite: Invite) -> None:
    three, bell = [invite("mail") for _ in range(3)], ears().bell
    assert bell.ring("mail", 2) == 2
    until(lambda: sum(len(each.rung) for each in three) == 2)
    assert sorted(len(each.rung) for each in three) == [0, 1, 1]
    assert bell.ring("mail", 1) == 1
    until(lambda: all(len(each.rung) == 1 for each in three))
    for turn in range(2, 12):
        assert bell.ring_all("mail") == 3
        until(lambda: all(len(each.rung) == turn for each in three))  # noqa: B023 - asked in this turn only


def test_nobody_is_rung_for_what_it_does_not_wait_for(ears: Callable[[], Ears], invite: Invite) -> None:
    neighbour, bell = invite("mail"), ears().bell
    assert bell.ring("news", 3) == 0
    assert bell.ring("mail", 0) == 0
    neighbour.do("disarm", "mail")
    assert bell.ring("mail", 1) == 0
    assert neighbour.rung == []


def test_a_doorbell_does_not_ring_itself(ears: Callable[[], Ears]) -> None:
    here = ears()
    here.bell.arm("mail")
    assert here.bell.ring_all("mail") == 0


def test_with_nobody_there_nothing_is_made(ears: Callable[[], Ears], folder: Path) -> None:
    assert ears().bell.ring("mail", 1) == 0
    assert not folder.exists()


def test_who_arms_is_seen_at_once(ears: Callable[[], Ears], folder: Path) -> None:
    """Also when the folder changes twice within one beat of the kernel's clock."""
    here, there = ears(), ears()
    there.bell.arm("something else")
    now = time.time_ns() + 3_600_000_000_001  # young for the whole test

    def change(verb: Callable[[str], None]) -> None:
        verb("mail")
        os.utime(folder, ns=(now, now))

    for _ in range(10):
        change(there.bell.disarm)
        assert here.bell.ring("mail", 1) == 0
        change(there.bell.arm)
        assert here.bell.ring("mail", 1) == 1


def test_an_old_listing_is_not_read_again(
    ears: Callable[[], Ears], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ears(), ears()
    there.bell.arm("mail")
    os.utime(folder, (1.5, 1.5))
    assert here.bell.ring("mail", 1) == 1
    monkeypatch.setattr(os, "listdir", lambda *_: pytest.fail("nothing has changed"))
    assert here.bell.ring("mail", 1) == 1


NAMES = ["\0topic", "a/b", "/", "..", ".", " ", "", "x\ny", "ü" * 100, "📮", "\ud800", "a.b-c*", "%s"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_will_do(name: str, ears: Callable[[], Ears]) -> None:
    here, there = ears(), ears()
    there.bell.arm(name)
    assert here.bell.ring(name, 1) == 1
    until(lambda: there.rung == [name])


def test_a_long_path_will_do(tmp_path: Path, invite: Invite) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    neighbour = invite("mail", at=deep / "jobs.db.bell")
    here = Ears(deep / "jobs.db.bell")
    here.bell.arm("post")
    assert here.bell.ring("mail", 1) == 1
    until(lambda: neighbour.rung == ["mail"])
    assert neighbour.do("ring", "post", 1) == 1
    until(lambda: here.rung == ["post"])
    neighbour.kill()
    assert here.bell.ring("mail", 1) == 0
    here.bell.close()
    assert not (deep / "jobs.db.bell").exists()


def test_the_order_is_the_same_for_all(ears: Callable[[], Ears], invite: Invite) -> None:
    two, here = [invite("mail"), invite("mail")], ears()
    assert here.bell.rank("mail") == 2  # who does not wait comes after those who do
    here.bell.arm("mail")
    places = [here.bell.rank("mail"), *(each.do("rank", "mail") for each in two)]
    assert sorted(map(str, places)) == ["0", "1", "2"]
    here.bell.ring_all("mail")
    assert [here.bell.rank("mail"), *(each.do("rank", "mail") for each in two)] == places
    for each in two:
        each.kill()
    assert here.bell.rank("mail") == 0


# ---- Those who are no longer there -----------------------------------------------------------------


def test_a_killed_listener_is_cleared_away_by_the_next_ring(
    ears: Callable[[], Ears], invite: Invite, folder: Path
) -> None:
    dead, alive, bell = invite("mail", "news"), invite("mail"), ears().bell
    dead.kill()
    assert len(list(folder.iterdir())) == 5
    assert bell.ring("mail", 5) == 1
    until(lambda: alive.rung == ["mail"])
    assert len(list(folder.iterdir())) == 2


def test_a_killed_listener_is_cleared_away_by_the_next_one(
    ears: Callable[[], Ears], invite: Invite, folder: Path
) -> None:
    invite("mail", "news").kill()
    assert len(list(folder.iterdir())) == 3
    ears().bell.arm("other")
    assert len(list(folder.iterdir())) == 2


def test_a_killed_listener_is_cleared_away_by_the_last_one(
    ears: Callable[[], Ears], invite: Invite, folder: Path
) -> None:
    here = ears()
    here.bell.arm("other")
    invite("mail").kill()
    here.bell.close()
    assert not folder.exists()


def test_a_stopped_listener_holds_up_nobody(ears: Callable[[], Ears], invite: Invite) -> None:
    stopped, bell = invite("mail"), ears().bell
    os.kill(stopped.process.pid, signal.SIGSTOP)
    until(lambda: has_stopped(stopped.process.pid))
    assert all(bell.ring("mail", 1) == 1 for _ in range(2_000))  # far more than its buffer holds
    other = invite("mail")
    for turn in range(1, 6):
        assert bell.ring("mail", 1) == 1
        until(lambda: len(other.rung) == turn)  # noqa: B023 - asked in this turn only
    os.kill(stopped.process.pid, signal.SIGCONT)
    until(lambda: len(stopped.rung) > 5)


def test_a_folder_removed_under_a_waiter_comes_back(
    ears: Callable[[], Ears], invite: Invite, folder: Path
) -> None:
    neighbour, bell = invite("mail"), ears().bell
    shutil.rmtree(folder)
    until(lambda: bell.ring("mail", 1) == 1)
    until(lambda: neighbour.rung == ["mail"])


def test_a_name_armed_after_the_folder_was_removed_is_rung(ears: Callable[[], Ears], folder: Path) -> None:
    here, there = ears(), ears()
    there.bell.arm("mail")
    shutil.rmtree(folder)
    there.bell.arm("news")
    until(lambda: here.bell.ring("news", 1) == 1 and here.bell.ring("mail", 1) == 1)


def test_a_folder_removed_while_it_is_made_is_made_again(
    ears: Callable[[], Ears], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, bind = ears(), BellFolder._bind
    removed: list[str] = []

    def remove_first(self: BellFolder, listener: str) -> socket.socket:
        if len(removed) < 3:
            removed.append(listener)
            folder.rmdir()  # by one who leaves
        return bind(self, listener)

    monkeypatch.setattr(BellFolder, "_bind", remove_first)
    here.bell.arm("mail")
    assert ears().bell.ring("mail", 1) == 1
    assert len(removed) == 3


def test_a_full_disk_is_no_error_and_room_on_it_is_used(
    ears: Callable[[], Ears], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = ears(), ears()
    there.bell.arm("news")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "made up")

    with monkeypatch.context() as disk:
        disk.setattr(BellFolder, "mark", full)
        there.bell.arm("mail")
        until(lambda: there.ticks >= 2)
        assert here.bell.ring("mail", 1) == 0
    until(lambda: here.bell.ring("mail", 1) == here.bell.ring("news", 1) == 1)
    assert len(caplog.records) == 1


def test_a_forked_child_has_a_bell_of_its_own(ears: Callable[[], Ears], invite: Invite, folder: Path) -> None:
    family, bell, fifo = invite(script=FORKED), ears().bell, Path(f"{folder}.fifo")
    until(fifo.exists)
    with fifo.open("w"):  # as long as this is open, the child lives
        until(lambda: any(what == "forked" for what, _ in family.said))
        for turn in range(1, 31):
            assert bell.ring("parent", 5) == bell.ring("child", 5) == 1
            until(lambda: heard(family) == {"rung": turn, "rung by child": turn})  # noqa: B023 - in this turn
        family.kill()
        assert bell.ring("parent", 5) == 0  # the child does not keep its parent's socket alive
        assert bell.ring("child", 5) == 1
    until(lambda: bell.ring("child", 5) == 0)


def heard(family: Neighbour) -> dict[str, int]:
    return Counter(str(what) for what, _ in family.said if what != "forked")


# ---- Arming, ticks, the end ------------------------------------------------------------------------


def test_arming_twice_is_arming_once(ears: Callable[[], Ears], folder: Path) -> None:
    here = ears()
    for _ in range(2):
        here.bell.arm("mail")
    assert len(list(folder.iterdir())) == 2
    for _ in range(2):
        here.bell.disarm("mail")
    here.bell.disarm("never armed")
    assert len(list(folder.iterdir())) == 1


def test_the_last_to_close_leaves_nothing(ears: Callable[[], Ears], folder: Path) -> None:
    here, there = ears(), ears()
    here.bell.arm("mail")
    there.bell.arm("mail")
    assert folder.stat().st_mode & 0o777 == 0o700
    here.bell.close()
    assert folder.exists()
    there.bell.close()
    there.bell.close()
    assert not folder.exists()
    there.bell.arm("mail")
    assert not folder.exists()


def test_it_ticks_only_while_something_is_armed(ears: Callable[[], Ears]) -> None:
    here, there = ears(), ears()
    here.bell.arm("mail")
    until(lambda: here.ticks >= 2)
    here.bell.disarm("mail")
    until(lambda: here.bell._dozing)
    ticks = here.ticks
    send(here, b"mail")  # rung a moment too late: still passed on, so that it can be handed on
    until(lambda: here.rung == ["mail"] and here.bell._dozing)
    assert here.ticks == ticks
    here.bell.arm("mail")
    until(lambda: here.ticks > ticks)
    assert there.ticks == 0


def send(ears: Ears, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(data, f"{ears.bell._folder.path}/{ears.bell._listener}")


def test_what_strangers_send_is_ignored(ears: Callable[[], Ears]) -> None:
    here = ears()
    here.bell.arm("mail")
    here.bell.arm("x" * 1_024)
    for data in (b"", b"news", b"\xff\xfe", b"x" * 1_025, b"x" * 5_000, b"mail"):
        send(here, data)
    until(lambda: here.rung == ["mail"])


def test_a_failing_callback_is_logged_and_the_next_ring_heard(
    ears: Callable[[], Ears], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def fail(name: str) -> None:
        calls.append(name)
        raise RuntimeError("made up")

    failing, bell = Doorbell(str(folder), fail, lambda: fail("tick")), ears().bell
    failing.arm("mail")
    for turn in range(1, 3):
        assert bell.ring("mail", 1) == 1
        until(lambda: calls.count("mail") == turn and "tick" in calls)  # noqa: B023 - in this turn only
    failing.close()
    assert "made up" in caplog.text


def test_without_a_folder_the_tick_remains(
    ears: Callable[[], Ears], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("not a folder")
    here = ears()
    here.bell.arm("mail")
    here.bell.arm("news")
    until(lambda: here.ticks >= 2)
    assert here.bell.ring("mail", 1) == here.bell.rank("mail") == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    folder.unlink()  # now it can be made
    other = ears().bell
    until(lambda: other.ring("mail", 1) == other.ring("news", 1) == 1)


def test_marks_tell_names_apart() -> None:
    assert len({mark_of(name) for name in NAMES}) == len(NAMES)
    assert all(len(mark_of(name)) == 16 for name in NAMES)
    assert encode("ü") == b"\xc3\xbc"
