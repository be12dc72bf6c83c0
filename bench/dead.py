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

QUEUE = "bench"
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
    with _room(options) as room:
        yield from _letters(room, options.letters)
    if options.discard:
        with _room(options) as room:
            yield from _many(room, options.discard)


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


def _many(room: Room, count: int) -> Iterator[Figure]:
    """Discard and purge of so many, and the longest that somebody else had to wait meanwhile."""
    room.queue(QUEUE, Policy(dead_limit=None))
    bury(room, count, trace="")
    before = memory()
    result, seconds = timed(lambda: DeadLetters(room, QUEUE).discard(Filter()))
    assert result.done == count
    yield Figure(f"discard of {count:,}", [count / seconds], "/s")
    yield Figure(f"memory that the discard of {count:,} took", [memory() - before], "MB")
    queue = room.queue(QUEUE)
    for first in range(0, count, 1_000):
        room.engine.put(QUEUE, [NewMessage(body=DATA) for _ in range(min(1_000, count - first))])
    bury(room, 1, trace="")  # with something that stays, a purge cannot simply forget the whole queue
    purged, seconds = timed(queue.purge)
    assert purged == count
    yield Figure(f"purge of {count:,}", [seconds * 1_000], "ms")


def bury(room: Room, count: int, trace: str = _TRACE) -> None:
    failures = [
        Failure(type="ValueError", text=f"group {'x' * number}", traceback=trace) for number in range(_GROUPS)
    ]
    for first in range(0, count, 1_000):
        some = range(first, min(count, first + 1_000))
        room.engine.put(QUEUE, [NewMessage(body=DATA, failure=failures[n % _GROUPS]) for n in some])


def timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def memory() -> float:
    """The most that this process has had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


@contextmanager
def _room(options: argparse.Namespace) -> Iterator[Room]:
    if options.redis:
        mark = "&" if "?" in options.redis else "?"
        with postroom.open(f"{options.redis}{mark}prefix=bench-{new_id()}") as room:
            try:
                yield room
            finally:
                room.queue(QUEUE).drop(force=True)
        return
    options.dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=options.dir.resolve()) as folder,
        postroom.open(f"sqlite:///{folder}/room.db") as room,
    ):
        yield room


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
