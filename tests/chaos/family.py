"""Forks, in a process of its own: `python -m tests.chaos.family SCENE STORE` says what came of it.

Not inside of pytest, whose threads and files a child should not inherit.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable

import postroom
from postroom import Policy, Worker
from postroom.room import Room
from tests.chaos.outside import eventually, url_of

#: A fork beside threads is what is to be shown here; later Pythons warn about it.
warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")

CHILDREN, PUTS = 4, 100


def opened(path: str) -> Room:
    """Many write at once here: whoever is unlucky may have to wait for all others."""
    return postroom.open(url_of(path, busy_timeout="1m"))


def forked(work: Callable[[], None]) -> int:
    """A child that does this and ends, without anything that belongs to the parent's end."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def reap(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def put_together(path: str) -> None:
    """Parent and children put at once, through a room that was open before; the parent claims too."""
    with opened(path) as room:
        queue = room.queue("q", Policy(lease="1h", ack_timeout="1h"))
        queue.put("before")
        taken = [queue.claim(timeout=0)]

        def puts() -> None:
            for number in range(PUTS):
                queue.put(f"{os.getpid()}-{number}")

        children = [forked(puts) for _ in range(CHILDREN)]
        puts()
        while len(taken) < 1 + (CHILDREN + 1) * PUTS:
            taken += queue.claim_many(50, timeout=30)
        for delivery in taken:
            assert delivery
            delivery.ack()
        bodies = [delivery.body for delivery in taken if delivery]
        print(*reap(children), len(set(bodies)), queue.stats().counters["acked"], queue.stats().depth)


def fork_under_load(path: str) -> None:
    """Forks come while other threads of the parent are in the middle of their steps."""
    with opened(path) as room:
        queue = room.queue("q")
        stop = threading.Event()
        made: list[str] = []

        def put_until_stopped() -> None:
            while not stop.is_set():
                made.append(queue.put("parent").id)

        threads = [threading.Thread(target=put_until_stopped) for _ in range(3)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(10):
            children.append(forked(lambda: _put_some(room, 10)))
            time.sleep(0.02)
        codes = reap(children)
        stop.set()
        for thread in threads:
            thread.join()
        print(*codes, queue.stats().ready == len(made) + 100)


def _put_some(room: Room, count: int) -> None:
    for _ in range(count):
        room.queue("q").put("child")
    room.close()


def worker_in_child(path: str) -> None:
    """A multiprocessing child works with the room of its parent, which goes on waiting and putting."""
    with opened(path) as room:
        queue = room.queue("q")
        queue.put_many(range(50))
        before = Worker(room, {"other": lambda delivery: None}).start()  # threads of every kind
        child = multiprocessing.get_context("fork").Process(target=_work, args=(room,), daemon=True)
        child.start()
        queue.put_many(range(50))
        eventually(lambda: queue.stats().counters["acked"] == 100)
        child.terminate()
        child.join(60)
        room.queue("other").put("x")
        eventually(lambda: room.queue("other").stats().counters["acked"] == 1)
        before.stop()
        print(child.exitcode, queue.stats().counters["acked"], queue.stats().counters["claimed"])


def _work(room: Room) -> None:
    Worker(room, {"q": lambda delivery: None}, concurrency=2).run()
    room.close()


def child_outlives(path: str) -> None:
    """The parent closes its room and ends; what it opened is the child's to use no less."""
    with opened(path) as room:
        room.queue("q").put("x")
        gate, opener = os.pipe()

        def later() -> None:
            os.read(gate, 1)
            _put_some(room, 5)

        child = forked(later)
    os.write(opener, b"x")
    codes = reap([child])
    with opened(path) as again:
        print(*codes, again.queue("q").stats().ready)


def threads_import_nothing(path: str) -> None:
    """No thread of a worker imports: a child forked meanwhile would wait for that import for ever."""
    with opened(path) as room:
        queue = room.queue("q")
        worker = Worker(room, {"q": lambda delivery: None})
        loaded = set(sys.modules)
        with worker:
            queue.put("x")
            eventually(lambda: queue.stats().counters["acked"] == 1 and bool(room.workers()))
        print(*sorted(set(sys.modules) - loaded))


SCENES = {
    scene.__name__: scene
    for scene in (put_together, fork_under_load, worker_in_child, child_outlives, threads_import_nothing)
}

if __name__ == "__main__":
    SCENES[sys.argv[1]](sys.argv[2])
