"""Group commit: many steps, one transaction; each all or nothing, and nobody hangs whatever happens."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

import pytest

from postroom.engines.sqlite.link import Link
from postroom.engines.sqlite.writer import Writer
from postroom.errors import Closed, EngineBusy, EngineUnavailable, QueueFull, StoreCorrupt
from tests.sqlite.outside import (
    PATIENCE,
    Child,
    Notes,
    Sleepers,
    eventually,
    file_at,
    note,
    notes_in,
    writer_on,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


class Counting(Notes):
    """Writes down what happens to each transaction."""

    events: list[str]
    rest: sqlite3.Cursor | None = None

    def be_in_the_way(self) -> None:
        """SQLite does not commit while a statement still has rows to give."""
        self.rest = self.connection.execute("INSERT INTO note VALUES ('p'), ('q') RETURNING text")

    def committed(self) -> None:
        assert not self.connection.in_transaction
        self.events.append("committed")


class Crowd:
    """Threads that queue up behind a step which is inside its transaction."""

    #: Given to those who wait behind a step in an order that counts.
    sleepers: Sleepers

    def __init__(self, path: Path, busy_timeout: int = 5_000) -> None:
        self.events: list[str] = []
        self.context: Callable[[Counting], None] = lambda context: None
        self.writer = Writer(file_at(path, busy_timeout), self.counting)
        self.inside, self.leave = threading.Event(), threading.Event()

    def counting(self, connection: sqlite3.Connection) -> Counting:
        context = Counting(connection)
        context.events = self.events
        self.context(context)
        return context

    def submit(self, call: Callable[..., object], *args: object) -> Future[None]:
        """In a thread of its own, which does not keep the tests from ending if it hangs."""
        future: Future[None] = Future()

        def work() -> None:
            try:
                call(*args)
                future.set_result(None)
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def start(self, *steps: Callable[[Counting], object]) -> list[Future[None]]:
        """The first is alone inside its transaction; the others, in this order, wait for it."""
        first = self.submit(self.writer.run, self.block)
        assert self.inside.wait(PATIENCE)
        return [first, *(self.queue(step) for step in steps)]

    def queue(self, step: Callable[[Counting], object]) -> Future[None]:
        asleep = len(self.sleepers.asleep)
        future = self.submit(self.writer.run, step)
        self.sleepers.wait_for(asleep + 1)
        return future

    def block(self, context: Counting) -> None:
        note("first")(context)
        self.inside.set()
        assert self.leave.wait(PATIENCE)

    def go(self, *steps: Callable[[Counting], object]) -> list[BaseException | None]:
        futures = self.start(*steps)
        self.leave.set()
        return [future.exception(PATIENCE) for future in futures]


@pytest.fixture
def sleepers(monkeypatch: pytest.MonkeyPatch) -> Sleepers:
    return Sleepers(monkeypatch)


@pytest.fixture
def crowd(path: Path, sleepers: Sleepers) -> Iterator[Crowd]:
    crowd = Crowd(path)
    crowd.sleepers = sleepers
    yield crowd
    crowd.leave.set()
    crowd.writer.close()


def failing(error: Exception) -> Callable[[Notes], None]:
    def step(context: Notes) -> None:
        note("never")(context)
        raise error

    return step


# --- one step -------------------------------------------------------------------------------


def test_a_step_returns_and_is_there(path: Path) -> None:
    writer = writer_on(path)
    assert writer.run(lambda context: context.connection.execute("SELECT 7").fetchone()) == (7,)
    writer.run(note("x"))
    assert notes_in(path) == ["x"]
    writer.close()


def test_a_step_that_raises_leaves_nothing(path: Path) -> None:
    writer = writer_on(path)
    with pytest.raises(QueueFull) as caught:
        writer.run(failing(QueueFull(reason="memory")))
    assert caught.value.reason == "memory"
    writer.run(note("x"))
    assert notes_in(path) == ["x"]
    writer.close()


def test_an_error_of_sqlite_is_translated_and_the_writer_goes_on(path: Path) -> None:
    writer = writer_on(path)
    with pytest.raises(EngineUnavailable, match="no such table"):
        writer.run(lambda context: context.connection.execute("SELECT * FROM missing"))
    writer.run(note("x"))
    assert notes_in(path) == ["x"]
    writer.close()


def test_a_lone_step_that_is_interrupted_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_on(path)

    def interrupted(context: Notes) -> None:
        note("never")(context)
        raise KeyboardInterrupt

    # Even if another interrupt comes while it is undone.
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Link, "roll_back", lambda link: _interrupt() if link.in_transaction() else None)
        writer.run(interrupted)
    writer.run(note("next"))
    assert notes_in(path) == ["next"]
    writer.close()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_bells_ring_after_the_commit(crowd: Crowd) -> None:
    crowd.leave.set()
    crowd.writer.run(note("x"))
    assert crowd.events == ["committed"]


def test_a_failing_bell_does_not_undo_a_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def committed(_: Notes) -> None:
        raise OSError("no bell")

    monkeypatch.setattr(Notes, "committed", committed)
    writer = writer_on(path)
    with caplog.at_level(logging.ERROR):
        writer.run(note("x"))
    assert "no bell" in caplog.text
    assert notes_in(path) == ["x"]
    writer.close()


# --- many steps -----------------------------------------------------------------------------


def test_what_queued_up_is_one_commit(path: Path, crowd: Crowd) -> None:
    assert crowd.go(*(note(str(number)) for number in range(8))) == [None] * 9
    assert crowd.events.count("committed") == 2
    assert sorted(notes_in(path)) == [*map(str, range(8)), "first"]


def test_everybody_of_a_commit_is_woken(path: Path, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who was over before: not by looking for themselves."""
    monkeypatch.setattr("postroom.engines.sqlite.writer._NET", 10 * PATIENCE)
    wrong = ValueError("wrong")
    steps = [*map(note, "abcd"), failing(wrong), *map(note, "efg")]
    assert crowd.go(*steps) == [None] * 5 + [wrong] + [None] * 3
    assert notes_in(path) == ["first", *"abcdefg"]


def test_a_commit_has_a_limit(path: Path, crowd: Crowd) -> None:
    assert crowd.go(*(note(str(number)) for number in range(70))) == [None] * 71
    assert crowd.events.count("committed") == 3
    assert len(notes_in(path)) == 71


def test_a_step_that_fails_among_others_is_undone_alone(path: Path, crowd: Crowd) -> None:
    error = QueueFull()
    outcomes = crowd.go(note("a"), failing(error), note("b"))
    assert outcomes == [None, None, error, None]
    assert sorted(notes_in(path)) == ["a", "b", "first"]
    assert crowd.events == ["committed", "committed"]


def test_an_error_of_sqlite_among_others_is_translated_and_undone_alone(path: Path, crowd: Crowd) -> None:
    outcomes = crowd.go(note("a"), failing(sqlite3.IntegrityError("odd")), note("b"))
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), EngineUnavailable, type(None)]
    assert sorted(notes_in(path)) == ["a", "b", "first"]


class Alike:
    """A step that can be run together with others of its kind; "!" cannot, and "never" fails in any case."""

    ran: ClassVar[list[str]]

    def __init__(self, text: str, kind: str = "alike") -> None:
        self.alike, self._text = kind, text

    def __call__(self, context: Notes) -> str:
        self.ran.append(self._text)
        if self._text == "never":
            failing(QueueFull())(context)
        note(self._text)(context)
        return self._text

    @classmethod
    def together(cls, steps: Sequence[Alike], context: Notes) -> list[str] | None:
        texts = [step._text for step in steps]
        cls.ran.append("+".join(texts))
        if "!" in texts:
            return None
        for text in texts:
            (failing(QueueFull()) if text == "never" else note(text))(context)
        return texts


@pytest.fixture(name="alike")
def _alike() -> type[Alike]:
    Alike.ran = []
    return Alike


def test_neighbours_that_are_alike_run_as_one(path: Path, crowd: Crowd, alike: type[Alike]) -> None:
    steps: list[Callable[[Counting], object]] = [
        alike("a"),
        alike("b"),
        note("x"),
        alike("c"),
        alike("d", "other"),
        alike("e", "other"),
    ]
    futures = crowd.start(*steps)
    crowd.leave.set()
    assert [future.exception(PATIENCE) for future in futures] == [None] * 7
    assert alike.ran == ["a+b", "c", "d+e"]
    assert notes_in(path) == ["first", "a", "b", "x", "c", "d", "e"]


def test_of_steps_run_together_each_gets_its_own_result(
    crowd: Crowd, alike: type[Alike], sleepers: Sleepers
) -> None:
    found: dict[str, str] = {}

    def run(text: str) -> None:
        found[text] = crowd.writer.run(alike(text))

    blocking = crowd.start()
    waiting = []
    for number, text in enumerate("abc", 1):
        waiting.append(crowd.submit(run, text))
        sleepers.wait_for(number)
    crowd.leave.set()
    assert [future.exception(PATIENCE) for future in (*blocking, *waiting)] == [None] * 4
    assert found == {"a": "a", "b": "b", "c": "c"}
    assert alike.ran == ["a+b+c"]


def test_one_that_fails_among_its_like_fails_alone(path: Path, crowd: Crowd, alike: type[Alike]) -> None:
    outcomes = crowd.go(alike("a"), alike("never"), alike("b"))
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), QueueFull, type(None)]
    assert alike.ran == ["a+never+b", "a", "never", "b"]
    assert notes_in(path) == ["first", "a", "b"]


def test_what_cannot_be_run_together_runs_one_by_one(path: Path, crowd: Crowd, alike: type[Alike]) -> None:
    assert crowd.go(alike("a"), alike("!")) == [None] * 3
    assert alike.ran == ["a+!", "a", "!"]
    assert notes_in(path) == ["first", "a", "!"]


def test_damage_found_by_one_step_stops_all(path: Path, crowd: Crowd) -> None:
    damage = sqlite3.DatabaseError("malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    outcomes = crowd.go(note("a"), failing(damage), note("b"))
    assert [type(outcome) for outcome in outcomes] == [type(None), *[StoreCorrupt] * 3]
    crowd.writer.run(note("after"))
    assert notes_in(path) == ["first", "after"]


def test_if_the_commit_fails_the_step_fails_and_the_writer_goes_on(path: Path, crowd: Crowd) -> None:
    with pytest.raises(EngineBusy):
        crowd.writer.run(Counting.be_in_the_way)
    crowd.writer.run(note("after"))
    assert notes_in(path) == ["after"]


def test_if_sqlite_undoes_everything_all_steps_fail(path: Path, crowd: Crowd) -> None:
    def undo(context: Counting) -> None:
        context.connection.execute("ROLLBACK")  # as SQLite does by itself, after some errors
        raise sqlite3.OperationalError("disk I/O error")

    outcomes = crowd.go(note("a"), undo, note("b"))
    assert [type(outcome) for outcome in outcomes] == [type(None), *[EngineUnavailable] * 3]
    assert "disk I/O error" in str(outcomes[1])
    crowd.writer.run(note("after"))
    assert notes_in(path) == ["first", "after"]


def test_a_context_that_cannot_be_made_fails_the_steps_and_not_the_writer(path: Path, crowd: Crowd) -> None:
    def refuse(_: Counting) -> None:
        raise KeyError("no context")

    crowd.context = refuse
    with pytest.raises(KeyError):
        crowd.writer.run(note("never"))
    crowd.context = lambda context: None
    crowd.writer.run(note("after"))
    assert notes_in(path) == ["after"]


# --- other processes ------------------------------------------------------------------------

HOLD = """
writer = writer_on(path)
def hold(context):
    note("held")(context)
    say("inside")
    sys.stdin.readline()
writer.run(hold)
say("out")
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_store_held_by_another_process_is_waited_for_but_not_for_ever(path: Path, stopped: bool) -> None:
    writer = writer_on(path, busy_timeout=200)
    with Child(HOLD, path) as child:
        assert child.hear() == "inside"
        if stopped:
            os.kill(child.process.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(EngineBusy, match="nothing was changed"):
            writer.run(note("never"))
        assert 0.2 <= time.monotonic() - began < PATIENCE
        os.kill(child.process.pid, signal.SIGCONT)
        child.tell("go")
        assert child.hear() == "out"
    writer.run(note("x"))
    assert notes_in(path) == ["held", "x"]
    writer.close()


def test_who_waits_behind_a_busy_store_does_not_wait_for_each_other_too(path: Path) -> None:
    crowd = Crowd(path, busy_timeout=300)
    with Child(HOLD, path) as child:
        assert child.hear() == "inside"
        began = time.monotonic()
        futures = [crowd.submit(crowd.writer.run, note("never")) for _ in range(250)]
        outcomes = [future.exception(PATIENCE) for future in futures]
        # One by one it would be 75 s. A few may come when the others have just given up.
        assert time.monotonic() - began < 30
    assert {type(outcome) for outcome in outcomes} == {EngineBusy}
    crowd.writer.run(note("x"))
    assert notes_in(path) == ["x"]
    crowd.writer.close()


def test_a_store_that_comes_free_in_time_is_used(path: Path) -> None:
    crowd = Crowd(path, busy_timeout=60_000)
    with Child(HOLD, path) as child:
        assert child.hear() == "inside"
        futures = [crowd.submit(crowd.writer.run, note("x")) for _ in range(8)]
        eventually(lambda: len(crowd.writer._queue) == 8)
        child.tell("go")
        assert [future.exception(PATIENCE) for future in futures] == [None] * 8
    # Who came while the store was held is in one transaction with the one who waited for it.
    assert crowd.events == ["committed"]
    assert notes_in(path) == ["held", *["x"] * 8]
    crowd.writer.close()


def test_a_writer_killed_inside_its_transaction_leaves_nothing_and_holds_up_nobody(path: Path) -> None:
    writer = writer_on(path)
    writer.run(note("before"))
    with Child(HOLD, path) as child:
        assert child.hear() == "inside"
        child.process.kill()
        child.process.wait()
        writer.run(note("after"))
    assert notes_in(path) == ["before", "after"]
    writer.close()


def test_processes_and_threads_together_lose_and_double_nothing(path: Path) -> None:
    code = """
writer = writer_on(path, 60_000)
def go(thread):
    for number in range(25):
        writer.run(note(f"{os.getpid()} {thread} {number}"))
threads = [threading.Thread(target=go, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say("done")
"""
    children = [Child(code, path) for _ in range(3)]
    try:
        assert [child.hear() for child in children] == ["done"] * 3
    finally:
        for child in children:
            child.__exit__(None, None, None)
    notes = notes_in(path)
    assert len(notes) == len(set(notes)) == 300


# --- closing and forking --------------------------------------------------------------------


def test_a_closed_writer_says_so_to_those_who_wait_too(path: Path, crowd: Crowd) -> None:
    futures = crowd.start(note("a"), note("b"))
    closing = threading.Thread(target=crowd.writer.close)
    closing.start()
    crowd.leave.set()
    closing.join(PATIENCE)
    assert futures[0].exception(PATIENCE) is None
    assert {type(future.exception(PATIENCE)) for future in futures[1:]} <= {Closed, type(None)}
    with pytest.raises(Closed):
        crowd.writer.run(note("late"))
    assert notes_in(path)[0] == "first"


def test_a_suspended_writer_has_nothing_open_and_steps_wait(path: Path, crowd: Crowd) -> None:
    first = crowd.start()[0]
    assert not crowd.writer.suspend(0.01)
    crowd.leave.set()
    first.result(PATIENCE)
    assert crowd.writer.suspend(PATIENCE)
    try:
        assert not any(str(path) in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())
        waiting = [crowd.queue(note("waited")) for _ in range(3)]
        assert not any(future.done() for future in waiting)
    finally:
        crowd.writer.resume()
    assert [future.exception(PATIENCE) for future in waiting] == [None] * 3
    assert notes_in(path) == ["first", *["waited"] * 3]


def test_both_sides_of_a_fork_write(path: Path) -> None:
    code = """
writer = writer_on(path, 60_000)
writer.run(note("before"))
assert writer.suspend(60)
# What waits in the parent is the parent's.
threading.Thread(target=writer.run, args=(note("waited"),)).start()
while not writer._queue: time.sleep(0.001)
if os.fork() == 0:
    writer.reset()
    for _ in range(20): writer.run(note("child"))
    os._exit(0)
writer.resume()
for _ in range(20): writer.run(note("parent"))
say(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    with Child(code, path) as child:
        assert child.hear() == "0"
        child.process.wait()
    assert sorted(notes_in(path)) == ["before", *["child"] * 20, *["parent"] * 20, "waited"]


def test_a_child_forked_inside_a_transaction_does_not_touch_the_store(path: Path) -> None:
    code = """
writer = writer_on(path)
inside, leave = threading.Event(), threading.Event()
def hold(context):
    note("parent")(context)
    inside.set()
    leave.wait()
threads = [threading.Thread(target=writer.run, args=(step,)) for step in (hold, note("queued"))]
threads[0].start()
inside.wait()
threads[1].start()
while not writer._queue: time.sleep(0.001)
assert not writer.suspend(0.01)
if os.fork() == 0:
    writer.reset()
    # SQLite believes that this process holds the parent's locks: a new room would not help either.
    for each in (writer, writer_on(path)):
        try:
            each.run(note("child"))
        except EngineUnavailable as error:
            say(error.code, "fork" in str(error))
    os._exit(0)
say(os.waitstatus_to_exitcode(os.wait()[1]))
leave.set()
"""
    with Child(code, path) as child:
        assert [child.hear() for _ in range(3)] == ["engine_unavailable True"] * 2 + ["0"]
        child.process.wait()
    assert notes_in(path) == ["parent", "queued"]


# --- interrupts -----------------------------------------------------------------------------


def interrupt_main() -> None:
    main = threading.main_thread().ident
    assert main
    signal.pthread_kill(main, signal.SIGINT)


def test_an_interrupt_while_waiting_withdraws_the_step_and_harms_nobody(path: Path, crowd: Crowd) -> None:
    futures = crowd.start(note("a"))

    def when_queued() -> None:
        eventually(lambda: len(crowd.writer._queue) == 2)
        interrupt_main()

    interrupting = crowd.submit(when_queued)
    with pytest.raises(KeyboardInterrupt):
        crowd.writer.run(note("withdrawn"))
    interrupting.result(PATIENCE)
    futures.append(crowd.queue(note("b")))
    crowd.leave.set()
    assert [future.exception(PATIENCE) for future in futures] == [None] * 3
    assert notes_in(path) == ["first", "a", "b"]


def test_an_interrupt_inside_a_transaction_undoes_it_and_the_others_run_again(
    path: Path, crowd: Crowd, sleepers: Sleepers
) -> None:
    main = threading.main_thread()
    futures = crowd.start()

    def interrupted(context: Counting) -> None:
        note("a")(context)
        if threading.current_thread() is main:
            sleepers.may_look.set()
            raise KeyboardInterrupt

    def others() -> None:
        sleepers.wait_for(1)
        futures.extend(crowd.queue(step) for step in (interrupted, note("b")))
        crowd.leave.set()

    queued = crowd.submit(others)
    # First in the queue, so it is the main thread that commits for the other two.
    with pytest.raises(KeyboardInterrupt):
        crowd.writer.run(note("own"))
    queued.result(PATIENCE)
    assert [future.exception(PATIENCE) for future in futures] == [None] * 3
    assert sorted(notes_in(path)) == ["a", "b", "first"]


def test_an_interrupt_after_a_failed_commit_is_not_taken_for_success(
    path: Path, crowd: Crowd, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    futures = crowd.start()

    def interrupted(_: Link, error: Exception) -> Exception:
        crowd.context = lambda context: None
        sleepers.may_look.set()
        raise KeyboardInterrupt

    def others() -> None:
        sleepers.wait_for(1)
        futures.append(crowd.queue(note("a")))
        crowd.context = Counting.be_in_the_way
        crowd.leave.set()

    monkeypatch.setattr(Link, "failed", interrupted)
    queued = crowd.submit(others)
    with pytest.raises(KeyboardInterrupt):
        crowd.writer.run(note("own"))
    queued.result(PATIENCE)
    assert [future.exception(PATIENCE) for future in futures] == [None] * 2
    assert notes_in(path) == ["first", "a"]


def test_nobody_hangs_even_if_an_interrupt_leaves_nobody_to_wake_them(
    path: Path, crowd: Crowd, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleepers.may_look.set()
    monkeypatch.setattr("postroom.engines.sqlite.writer._Job.wake", lambda job: None)
    assert crowd.go(*(note(str(number)) for number in range(8))) == [None] * 9
    assert len(notes_in(path)) == 9


def test_a_thousand_interrupts_lose_and_double_nothing_of_others(path: Path) -> None:
    code = """
import random
random.seed(1)
writer = Writer(File(path, schemas=SCHEMA, synchronous="normal"), Notes)  # no commit waits for a disk
armed, running, done = False, True, []
def interrupt(*_):
    if armed: raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
def others(name):
    number = 0
    while running:
        writer.run(note(f"{name} {number}"))
        done.append(f"{name} {number}")
        number += 1
        time.sleep(random.uniform(0, 0.002))  # so that it is the main thread that commits for them
def storm():
    while running:
        time.sleep(random.uniform(0, 0.002))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
threads = [threading.Thread(target=others, args=(name,)) for name in "abc"] + [threading.Thread(target=storm)]
for thread in threads: thread.start()
own, sure, interrupts = 0, [], 0
while interrupts < 1000:
    try:
        armed = True
        while True:
            own += 1
            writer.run(note(f"main {own}"))
            sure.append(f"main {own}")
    except KeyboardInterrupt:
        armed = False
        interrupts += 1
running = False
for thread in threads: thread.join()
writer.run(note("end"))
found = notes_in(path)
say("doubled", len(found) - len(set(found)))
say("lost", len(set(done) - set(found)), len(set(sure) - set(found)))
say("invented", len({text for text in found if not text.startswith(("main", "end"))} - set(done)))
"""
    with Child(code, path) as child:
        assert [child.hear() for _ in range(3)] == ["doubled 0", "lost 0 0", "invented 0"]
