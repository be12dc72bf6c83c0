"""A process that is killed in the middle of a step has not made it; one killed after its commit has."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

import postroom
from postroom import Delivery, Policy
from postroom.errors import EngineBusy
from tests.chaos.outside import BLOW, PATIENCE, Child, check_sound, dump, eventually, url_of

POLICY = Policy(lease="1h", ack_timeout="1h")

STEPS = [
    'queue.put_many(["x" * 5_000] * 3)',
    'queue.put("x", delay="1h", unique_key="mine")',
    "queue.claim(timeout=0)",
    "held.ack()",
    'held.fail("x")',
    "held.release()",
    'held.bury("x")',
    'held.checkpoint("x" * 1_000)',
    'queue.pause("x")',
    "queue.purge()",
    "queue.drop(force=True)",
    "queue.cancel(ids[3])",
    'room.queue("other", Policy(lease="2h"))',
    'room.engine.publish("topic", [b"x"])',
    'room.engine.records.put("kind", "key", b"x")',
]


#: Does one step after the other, each in a process that does not survive it.
VICTIMS = """
while line := sys.stdin.readline():
    path, step = line.strip().split("\\t")
    if victim := os.fork():
        say(os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]))
        continue
    room = postroom.open(url_of(path))
    queue = room.queue("q")
    ids = [put.id for put in queue.put_many(range(5))]
    held = queue.claim(timeout=0)
    say("ready")
    input()
    before_commit(signal.SIGKILL)
    exec(step)
    os._exit(0)
"""


def test_a_step_that_is_killed_before_its_commit_was_never_made(tmp_path: Path) -> None:
    with Child(BLOW + VICTIMS, tmp_path) as child:
        for number, step in enumerate(STEPS):
            check_never_made(child, step, tmp_path / f"{number}.db")


def check_never_made(child: Child, step: str, path: Path) -> None:
    with postroom.open(url_of(path)) as room:
        queue = room.queue("q", POLICY)
        child.tell(f"{path}\t{step}")
        assert child.hear() == "ready"
        before = dump(path)
        child.tell("go")
        assert child.hear() == "inside", step
        assert child.hear() == str(-signal.SIGKILL)
        assert dump(path) == before, step
        queue.put("more")
        assert len(queue.claim_many(10, timeout=0)) == 5
    check_sound(path)


def test_a_put_that_is_killed_after_its_commit_is_found_by_who_waits(tmp_path: Path) -> None:
    """Its producer had no time to ring, and whoever waits would do so for hours."""
    path = tmp_path / "store.db"
    code = """
queue = postroom.open(url_of(path)).queue("q")
after_commit(signal.SIGKILL)
queue.put("x")
"""
    got: list[Delivery | None] = []
    with postroom.open(url_of(path), poll_timeout="1h") as room:
        queue = room.queue("q", POLICY)
        waiting = threading.Thread(target=lambda: got.append(queue.claim(timeout=PATIENCE)))
        waiting.start()
        eventually(lambda: list(tmp_path.glob("store.db.bell/*.*")))
        with Child(BLOW + code, path) as child:
            assert child.process.wait(PATIENCE) == -signal.SIGKILL
        waiting.join()
        assert got[0] and got[0].body == "x"
        got[0].ack()
    check_sound(path)


def test_a_lock_is_free_as_soon_as_its_holder_is_killed(tmp_path: Path) -> None:
    """Somebody with a plain connection, who has changed half of the store."""
    path = tmp_path / "store.db"
    code = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE postroom_message SET state = 4, token = NULL")
connection.execute("DELETE FROM postroom_queue")
say("inside")
input()
"""
    with postroom.open(url_of(path, busy_timeout="300ms")) as room:
        queue = room.queue("q", POLICY)
        queue.put_many(["x" * 5_000] * 100)
        before = dump(path)
        with Child(code, path) as child:
            assert child.hear() == "inside"
            with pytest.raises(EngineBusy):
                queue.put("refused")
            child.process.kill()
            child.process.wait()
            began = time.monotonic()
            assert dump(path) == before
            assert queue.put("taken").created
            assert time.monotonic() - began < PATIENCE
        assert queue.stats().ready == 101
    check_sound(path)
