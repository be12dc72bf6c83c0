"""Processes that are stopped: with a message in hand, or with the lock that everybody waits for."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import postroom
from postroom import Delivery, Policy, Worker
from postroom.errors import EngineBusy
from postroom.ids import new_id
from tests.chaos.battle import Fighter
from tests.chaos.load import POLICY, QUEUES, Work, body_with
from tests.chaos.outside import (
    BLOW,
    PATIENCE,
    Child,
    check_sound,
    dump,
    eventually,
    url_of,
    wait_until_stopped,
)

#: Somebody with a plain connection, who has the lock until told to let go of it.
HOLDING = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM postroom_message")
say("held")
input()
connection.execute("ROLLBACK")
say("free")
"""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A stopped process has the lock of the store; at the end it goes on, and lets go of it."""
    with Child(HOLDING, path) as child:
        assert child.hear() == "held"
        child.process.send_signal(signal.SIGSTOP)
        child.wait_until_stopped()
        yield
        child.process.send_signal(signal.SIGCONT)
        child.tell("go")
        assert child.hear() == "free"


# ---- A worker that is stopped ---------------------------------------------------------------------


@contextmanager
def two_workers(path: Path) -> Iterator[tuple[Fighter, Fighter]]:
    """The first has been stopped for so long that the second has begun on the only message there is.

    Both are done with it when `let_end` says so, and nobody is slow enough to lose it to the other again.
    """
    with postroom.open(url_of(path)) as room:
        id, work = new_id(), Work(0.0, until=str(gate_of(path)))
        room.queue(QUEUES[0], POLICY).put(body_with(id, work), id=id)
    fighters = [Fighter(path.parent, url_of(path), "worker", 1, 1)]
    try:
        eventually(lambda: "begin" in words(fighters[0]))
        stop_outside_of_a_step(fighters[0], path)
        with postroom.open(url_of(path)) as room:
            room.queue(QUEUES[0], Policy(lease="1h", ack_timeout="1h"))
        fighters.append(Fighter(path.parent, url_of(path), "worker", 2, 1))
        eventually(lambda: "begin" in words(fighters[1]))
        yield fighters[0], fighters[1]
    finally:
        for fighter in fighters:
            fighter.end()


def gate_of(path: Path) -> Path:
    return path.with_name("gate")


def let_end(path: Path) -> None:
    gate_of(path).touch()


def words(fighter: Fighter) -> list[str]:
    return [line.word for line in fighter.lines()]


def stop_outside_of_a_step(fighter: Fighter, path: Path) -> None:
    """Stopped in the middle of one it would hold up everybody; that is another test."""
    while True:
        fighter.stop()
        wait_until_stopped(fighter.process.pid)
        with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                fighter.go_on()


def check_worked_once(path: Path, *fighters: Fighter) -> None:
    """Everybody leaves in peace, and of two who worked on it one was heard."""
    with postroom.open(url_of(path)) as room:
        queue = room.queue(QUEUES[0])
        eventually(lambda: queue.stats().processing == 0)
        counted = queue.stats().counters
    for fighter in fighters:
        fighter.ask_to_end()
        assert fighter.process.wait(PATIENCE) == 0
        assert fighter.has_closed
    assert (counted["acked"], counted["reclaimed"], counted["claimed"], counted["dead"]) == (1, 1, 2, 0)
    assert "acked" in words(fighters[1])
    assert "acked" not in words(fighters[0])
    check_sound(path)


def test_who_was_stopped_while_another_finished_its_work_is_told_that_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with two_workers(path) as (stopped, other):
        let_end(path)
        eventually(lambda: "acked" in words(other))
        stopped.go_on()
        eventually(lambda: "late" in words(stopped))
        (late,) = [line for line in stopped.lines() if line.word == "late"]
        assert late.rest[1] == "gone"
        check_worked_once(path, stopped, other)


def test_who_was_stopped_while_another_still_works_is_told_that_it_lost_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with two_workers(path) as (stopped, other):
        stopped.go_on()
        eventually(lambda: "lost" in words(stopped))
        assert "end" not in words(other)
        let_end(path)
        eventually(lambda: "acked" in words(other))
        check_worked_once(path, stopped, other)


def test_a_consumer_that_was_stopped_too_long_can_change_nothing_any_more(tmp_path: Path) -> None:
    """It has no heartbeat that would find out: its ack is the first that the store hears of it."""
    path = tmp_path / "store.db"
    code = """
delivery = postroom.open(url_of(path)).queue("q").claim(timeout=60)
say(delivery.id)
os.kill(os.getpid(), signal.SIGSTOP)
for late in (delivery.ack, delivery.bury, delivery.fail, delivery.extend, lambda: delivery.checkpoint("x")):
    try:
        late()
    except LeaseLost as error:
        say(error.outcome)
input()
try:
    delivery.release()
except LeaseLost as error:
    say(error.outcome)
"""
    with postroom.open(url_of(path)) as room:
        queue = room.queue("q", Policy(lease="1s", ack_timeout="1s"))
        queue.put("x")
        with Child(code, path) as child:
            id = child.hear()
            child.wait_until_stopped()
            queue.room.queue("q", Policy(lease="1h", ack_timeout="1h"))
            delivery = queue.claim(timeout=PATIENCE)
            assert delivery and (delivery.id, delivery.attempt) == (id, 1)
            before = dump(path)
            child.process.send_signal(signal.SIGCONT)
            assert [child.hear() for _ in range(5)] == ["lost"] * 5
            assert dump(path) == before
            delivery.ack()
            child.tell("go")
            assert child.hear() == "gone"
        assert queue.stats().counters["acked"] == 1
    check_sound(path)


# ---- A process that is stopped with the lock ------------------------------------------------------


def test_who_cannot_write_is_told_in_time_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with postroom.open(url_of(path, busy_timeout="300ms")) as room:
        queue = room.queue("q", Policy(lease="1h", ack_timeout="1h"))
        queue.put_many(range(10))
        delivery = queue.claim()
        assert delivery
        before = dump(path)
        with held(path):
            for call in (lambda: queue.put("x"), lambda: queue.claim(timeout=0), delivery.ack, queue.purge):
                began = time.monotonic()
                with pytest.raises(EngineBusy, match="nothing was changed"):
                    call()
                assert time.monotonic() - began >= 0.3
            assert queue.stats().ready == 9, "to look one needs no lock"
            assert dump(path) == before
        assert dump(path) == before
        delivery.ack()
        assert queue.put("x").created
    check_sound(path)


def test_a_step_that_was_stopped_before_its_commit_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = """
queue = postroom.open(url_of(path)).queue("q")
before_commit(signal.SIGSTOP)
say(queue.put_many(range(3))[0].created)
queue.put("after")
say("done")
"""
    with postroom.open(url_of(path, busy_timeout="300ms")) as room:
        queue = room.queue("q", Policy())
        with Child(BLOW + code, path) as child:
            assert child.hear() == "inside"
            child.wait_until_stopped()
            with pytest.raises(EngineBusy):
                queue.put("x")
            assert queue.stats().ready == 0
            child.process.send_signal(signal.SIGCONT)
            assert child.hear() == "True"
            assert child.hear() == "done"
        queue.put("y")  # when the other is gone: a commit may take longer than we wait here
        assert sorted(map(str, (delivery.body for delivery in queue.claim_many(10)))) == [
            "0",
            "1",
            "2",
            "after",
            "y",
        ]
    check_sound(path)


@pytest.mark.parametrize("busy_timeout", ["100ms", "1m"])
def test_workers_keep_what_they_have_and_go_on_when_the_lock_is_free(
    tmp_path: Path, busy_timeout: str
) -> None:
    """Held for longer than their leases: whoever cannot call is not dead, so nothing is given to another."""
    path, lease = tmp_path / "store.db", 6.0
    begun: Counter[str] = Counter()

    def handle(delivery: Delivery) -> None:
        begun[delivery.id] += 1
        time.sleep(delivery.body)

    rooms = [postroom.open(url_of(path, busy_timeout=busy_timeout)) for _ in range(2)]
    queue = rooms[0].queue("q", Policy(lease=lease, ack_timeout="1h"))
    queue.put_many([1.5 * lease] * 2, priority="high")  # still in hand when the lock is free again
    queue.put_many([0.05] * 100)
    workers = [Worker(room, {"q": handle}, concurrency=3).start() for room in rooms]
    try:
        eventually(lambda: queue.stats().counters["acked"] >= 10)
        with held(path):
            threading.Event().wait(1.2 * lease)  # nothing else shows that time has passed
        eventually(lambda: queue.stats().counters["acked"] == 102)
        counted = queue.stats().counters
    finally:
        for worker, room in zip(workers, rooms, strict=True):
            worker.stop()
            room.close()
    assert set(begun.values()) == {1}
    assert (len(begun), counted["reclaimed"], counted["dead"]) == (102, 0, 0)
    check_sound(path)


def test_a_claim_that_had_to_wait_for_the_lock_has_its_whole_lease(tmp_path: Path) -> None:
    """The time of a step is the time at which it is made, not that at which somebody began to wait for it."""
    path = tmp_path / "store.db"
    claimed: list[Delivery | None] = []
    with postroom.open(url_of(path, busy_timeout="1m")) as room:
        queue = room.queue("q", Policy(lease="2s", ack_timeout="2s"))
        id = queue.put("x").id
        with held(path):
            waiting = threading.Thread(target=lambda: claimed.append(queue.claim(timeout=0)))
            waiting.start()
            waiting.join(2.5)  # longer than the lease
            assert waiting.is_alive()
            released = int(time.time() * 1_000)
        waiting.join()
        deadline = queue.get(id).deadline
        # Counted from when it began to wait it would be half a second less; clocks may differ by a few ms.
        assert deadline and deadline > released + 2_000 - 100
        assert claimed[0]
        claimed[0].ack()
