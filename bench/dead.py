"""Dead letters in numbers: groups, replay and discard of many, purge; and whether memory stays flat.

Run by itself, because it needs a Redis of its own and sizes that others do not have:

    python -m bench.dead                          100 k letters on SQLite
    python -m bench.dead --redis redis://127.0.0.1:6379/0
    python -m bench.dead --redis URL --letters 100000 --discard 1000000

Figures are medians of --repeats runs. A Redis that is named must be one that may be written to; what is
put there has a prefix of its own and is removed at the end.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import postroom
from bench.stage import DATA
from postroom.deadletters import DeadLetters, Filter
from postroom.ids import new_id
from postroom.model import Failure, NewMessage
from postroom.policy import Policy
from postroom.room import Room

T = TypeVar("T")

QUEUE, OTHER = "bench", "others"
_GROUPS = 50
_TRACE = "Traceback (most recent call last):\n" + "  File 'shop.py', line 7, in send\n" * 20


class Figure(NamedTuple):
    name: str
    values: list[float]
    unit: str
    target: str = ""

    def line(self) -> str:
        middle = statistics.median(self.values)
        spread = f"[{min(self.values):,.1f}..{max(self.values):,.1f}]"
        return f"| {self.name:44} | {middle:>12,.1f} {self.unit:4} | {spread:>26} | {self.target:10} |"


def main() -> int:
    options = _options()
    figures: dict[str, Figure] = {}
    for number in range(options.repeats):
        _say(f"round {number + 1} of {options.repeats}")
        for figure in _round(options):
            known = figures.setdefault(figure.name, figure._replace(values=[]))
            known.values.extend(figure.values)
    for figure in figures.values():
        print(figure.line())
    return 0


def _round(options: argparse.Namespace) -> Iterator[Figure]:
    with _store(options) as url, postroom.open(url) as room:
        yield from _letters(room, options.letters)
    if options.discard:
        with _store(options) as url, postroom.open(url) as room:
            yield from _many(room, url, options.discard)


def _letters(room: Room, count: int) -> Iterator[Figure]:
    """Groups and replay over so many letters."""
    room.queue(QUEUE, Policy(dead_limit=None))
    bury(room, count)
    dead = DeadLetters(room, QUEUE)
    shown, seconds = timed(lambda: dead.groups().groups)
    assert sum(group.count for group in shown) == count
    assert len(shown) == _GROUPS
    yield Figure(f"groups over {count:,}", [seconds * 1_000], "ms", "≤ 2,000 ms")
    _, seconds = timed(lambda: dead.find(Filter(error="nothing has this"), max_seconds=600))
    yield Figure(f"find by error, {count:,} looked at", [count / seconds], "/s")
    before = memory()
    result, seconds = timed(lambda: dead.replay(Filter()))
    assert result.done == count
    assert room.queue(QUEUE).stats().ready == count
    yield Figure(f"replay of {count:,}", [count / seconds], "/s", "≥ 5,000/s")
    yield Figure(f"memory that the replay of {count:,} took", [memory() - before], "MB")
    again, seconds = timed(lambda: dead.replay(Filter()))
    assert (again.done, again.already) == (0, count)
    yield Figure("the same again: already replayed", [count / seconds], "/s")


def _many(room: Room, url: str, count: int) -> Iterator[Figure]:
    """Discard and purge of so many, and the longest that somebody else had to wait meanwhile."""
    room.queue(QUEUE, Policy(dead_limit=None))
    bury(room, count, trace="")
    before = memory()
    with others(url) as waits:
        result, seconds = timed(lambda: DeadLetters(room, QUEUE).discard(Filter()))
    assert result.done == count
    yield Figure(f"discard of {count:,}", [count / seconds], "/s")
    yield Figure(f"memory that the discard of {count:,} took", [memory() - before], "MB")
    yield Figure("longest put of somebody else during the discard", [max(waits)], "ms")
    queue = room.queue(QUEUE)
    for first in range(0, count, 1_000):
        room.engine.put(QUEUE, [NewMessage(body=DATA) for _ in range(min(1_000, count - first))])
    bury(room, 1, trace="")  # with something that stays, a purge cannot simply forget the whole queue
    with others(url) as waits:
        purged, seconds = timed(queue.purge)
    assert purged == count
    yield Figure(f"purge of {count:,}", [seconds * 1_000], "ms")
    yield Figure("longest put of somebody else during the purge", [max(waits)], "ms")


def bury(room: Room, count: int, trace: str = _TRACE) -> None:
    failures = [
        Failure(type="ValueError", text=f"group {'x' * number}", traceback=trace) for number in range(_GROUPS)
    ]
    for first in range(0, count, 1_000):
        some = range(first, min(count, first + 1_000))
        room.engine.put(QUEUE, [NewMessage(body=DATA, failure=failures[n % _GROUPS]) for n in some])


@contextmanager
def others(url: str) -> Iterator[list[float]]:
    """Somebody else puts into the same store all the while; how long each put took (ms)."""
    waits, over = list[float](), threading.Event()

    def put() -> None:
        with postroom.open(url) as other:
            queue = other.queue(OTHER)
            while not over.wait(0.001):
                waits.append(timed(lambda: queue.put(b"x"))[1] * 1_000)

    thread = threading.Thread(target=put)
    thread.start()
    try:
        while not waits:  # it has begun before there is something to wait for
            time.sleep(0.001)
        yield waits
    finally:
        over.set()
        thread.join()


def timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def memory() -> float:
    """The most that this process has had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


@contextmanager
def _store(options: argparse.Namespace) -> Iterator[str]:
    """The URL of a store that is empty, and gone afterwards."""
    if options.redis:
        mark = "&" if "?" in options.redis else "?"
        url = f"{options.redis}{mark}prefix=bench-{new_id()}"
        try:
            yield url
        finally:
            with postroom.open(url) as room:
                for info in room.queues():
                    room.queue(info.name).drop(force=True)
        return
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.dir.resolve()) as folder:
        yield f"sqlite:///{folder}/room.db"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.dead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", metavar="URL", help="measure on this Redis (default: a SQLite file)")
    parser.add_argument("--letters", type=int, default=100_000, help="dead letters to group and replay")
    parser.add_argument("--discard", type=int, default=0, help="dead letters to discard, messages to purge")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path("build"), help="where files are made")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
