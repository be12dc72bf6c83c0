"""`python -m bench.scaling`: measure how costs grow, print the tables, and on request publish them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import report
from bench.race.__main__ import some_of
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
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.dir.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": report.machine(), "curves": {}}
    end = time.monotonic() + options.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="scaling-", dir=options.dir.resolve()) as folder,
        ExitStack() as kept,
    ):
        for name in options.only:
            found["curves"][name] = _curve(name, options, Path(folder), kept, end)
            _keep(found, options.json)
    print(page.tables(found))
    if options.publish:
        page.publish(found)
    return 0


def _keep(found: dict[str, Any], path: Path) -> None:
    """After every curve: who interrupts the next has these."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _curve(
    name: str, options: argparse.Namespace, folder: Path, kept: ExitStack, end: float
) -> dict[str, Any]:
    sizes = (_QUICK if options.quick else _SIZES).get(name, [])
    if name == "messages" and options.deep:
        sizes = [*sizes, 10_000_000]
    sizes = [size for size in sizes if size <= options.most]
    curves = {
        engine: CURVES[name](Stage(engine, folder, options.quick, say=_say, kept=kept), sizes)
        for engine in options.engine
        if name != "shapes" or engine == "redis"
    }
    found: dict[str, Any] = {"load": [], "engines": {engine: {} for engine in curves}}
    for number in range(1, options.rounds + 1):
        if time.monotonic() > end:
            _say(f"the time is up before round {number} of {name}")
            break
        found["load"].append(round(os.getloadavg()[0], 1))
        for engine, curve in curves.items():
            _say(f"round {number} of {options.rounds}: {name}, {engine}")
            for size, figures in curve.round().items():
                for what, value in figures.items():
                    at = found["engines"][engine].setdefault(size, {})
                    at.setdefault(what, []).append(round(value, 2))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling",
        description="What Postroom costs as it grows.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say = parser.add_argument
    say("--only", type=some_of(CURVES), default=list(CURVES), metavar="NAME,…", help="only these curves")
    say("--engine", type=some_of(ENGINES), default=list(ENGINES), metavar="NAME,…", help="only these engines")
    say("--most", type=int, default=10_000_000, metavar="N", help="no size above this")
    say("--deep", action="store_true", help="also 10 M messages")
    say("--rounds", type=int, default=3, metavar="N", help="rounds (default: 3)")
    say("--minutes", type=float, default=40, metavar="N", help="no round begins after so long (default: 40)")
    say("--quick", action="store_true", help="far less of everything")
    say("--dir", type=Path, default=Path("build"), help="make files below this folder (default: build)")
    say("--json", type=Path, default=Path("build/scaling.json"), help="keep every value here")
    say("--publish", action="store_true", help="write the tables and plots of the documentation")
    return parser


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
