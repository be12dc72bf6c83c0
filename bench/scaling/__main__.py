"""`python -m bench.scaling`: measure how costs grow, print the tables, and on request publish them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import report
from bench.command import add_options, say, some_of
from bench.rounds import Book
from bench.scaling import page
from bench.scaling.curves import Consumers, Curve, Messages, Queues
from bench.scaling.shapes import Shapes
from bench.stage import Stage

ENGINES = {"sqlite": "", "redis": ""}
CURVES: dict[str, type[Curve]] = {
    "messages": Messages,
    "queues": Queues,
    "consumers": Consumers,
    "shapes": Shapes,
}
_SIZES = {
    "messages": [1_000, 10_000, 100_000, 1_000_000],
    "queues": [1, 10, 100, 1_000],
    "consumers": [1, 10, 50, 200],
}
_QUICK = {"messages": [100, 1_000], "queues": [1, 5], "consumers": [1, 3]}

_EPILOG = """
curves:
  messages   put, claim+ack and stats while 1 k … 1 M messages wait, and the bytes of each
  queues     1 … 1,000 queues in one room: a drain over all, stats, and how soon a worker for all begins
  consumers  1 … 200 consumers of one queue: a drain, how soon one of them begins, what they take while idle
  shapes     one Redis, Sentinel, Sentinel with durability="replicated", and a Cluster, on this machine

examples:
  make scaling                                         everything, about a quarter of an hour
  make scaling ARGS="--only messages --deep"           with 10 M messages, about 5 GB for each engine
  make scaling ARGS="--publish"                        and write docs/explanation/scaling.md
  make scaling ARGS="--deep --minutes 90 --publish"    all of it; --resume goes on where it was interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.dir.mkdir(parents=True, exist_ok=True)
    book = Book(options.json, "curves", {"machine": report.machine()}, options.resume)
    plan = [(number, name) for name in options.only for number in range(1, options.rounds + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="scaling-", dir=options.dir.resolve()) as folder,
        _Stores() as stores,
    ):
        for _, name in book.turns(plan, options.minutes, say):
            stores.of(name, partial(_curves, name, options, Path(folder)))
            _round(stores.curves, book.parts.setdefault(name, {"load": [], "engines": {}}))
    print(page.tables(book.found))
    if options.publish:
        page.publish(book.found, options.publish)
    return 0


class _Stores(ExitStack):
    """The curves of one name, whose stores are kept for all of its rounds and not beyond them."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.curves: dict[str, Curve] = {}

    def of(self, name: str, make: Callable[[ExitStack], dict[str, Curve]]) -> None:
        if name != self.name:
            self.close()
            self.name, self.curves = name, make(self)


def _curves(name: str, options: argparse.Namespace, folder: Path, kept: ExitStack) -> dict[str, Curve]:
    sizes = (_QUICK if options.quick else _SIZES).get(name, [])
    if name == "messages" and options.deep:
        sizes = [*sizes, 10_000_000]
    sizes = [size for size in sizes if size <= options.most]
    return {
        engine: CURVES[name](Stage(engine, folder, options.quick, say=say, kept=kept), sizes)
        for engine in options.engine
        if name != "shapes" or engine == "redis"
    }


def _round(curves: dict[str, Curve], found: dict[str, Any]) -> None:
    load = round(os.getloadavg()[0], 1)
    for engine, curve in curves.items():
        for size, figures in curve.round().items():
            for what, value in figures.items():
                at = found["engines"].setdefault(engine, {}).setdefault(size, {})
                at.setdefault(what, []).append(round(value, 2))
    found["load"].append(load)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling",
        description="What Postroom costs as it grows.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    take = parser.add_argument
    take("--only", type=some_of(CURVES), default=list(CURVES), metavar="NAME,…", help="only these curves")
    take(
        "--engine", type=some_of(ENGINES), default=list(ENGINES), metavar="NAME,…", help="only these engines"
    )
    take("--most", type=int, default=10_000_000, metavar="N", help="no size above this")
    take("--deep", action="store_true", help="also 10 M messages")
    add_options(parser, minutes=40, json="build/scaling.json")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
