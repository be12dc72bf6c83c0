"""`python -m bench.race`: run the race, print its tables, and on request publish them."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from bench.command import add_options, say, some_of
from bench.race import page
from bench.race.disciplines import DISCIPLINES, QUICK, Size, Trial
from bench.race.field import FIELD, HANDS, OURS, SLUGS, Runner
from bench.race.track import REPO, Track, missing, version
from bench.rounds import Book

_EPILOG = f"""
disciplines:
{chr(10).join(f"  {name:<10}{one.title}" for name, one in DISCIPLINES.items())}

runners, of whom ours always take part:
  {", ".join(SLUGS)}

examples:
  make race                                            everything, 3 rounds: about half an hour
  make race ARGS="--quick"                             a rough idea, of everything, in some minutes
  make race ARGS="--only drain --peers huey,rq --rounds 3"
  make race ARGS="--publish"                           and write the tables and plots of docs/explanation
  make race ARGS="--resume --publish"                  go on where it was interrupted, or the time was up

Every round takes all runners through all disciplines, and who begins changes; a figure is the median over
the rounds, with the least and the most beside it. Compare within one run: another meets another load.
What is published of a discipline replaces what was, and keeps the others.
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.dir.mkdir(parents=True, exist_ok=True)
    size = replace(QUICK if options.quick else Size(), hands=options.hands)
    found = _measured(options, size, _present(options.peers))
    print(page.tables(found))
    if options.publish:
        page.publish(found, options.publish)
    return 1 if any(one["crashes"] for one in found["disciplines"].values()) else 0


def _present(peers: list[str]) -> list[Runner]:
    chosen = [runner for runner in FIELD if runner.slug in peers or runner.slug in OURS]
    for runner in chosen:
        if missing(runner):
            say(f"{runner.slug} is not installed and does not run: `make race` installs it")
    return [runner for runner in chosen if not missing(runner)]


def _measured(options: argparse.Namespace, size: Size, runners: list[Runner]) -> dict[str, Any]:
    versions = {runner.slug: version(runner) for runner in runners}
    about = {"machine": report.machine(), "versions": versions}
    book = Book(options.json, "disciplines", about, options.resume)
    plan = [(number, name) for number in range(1, options.rounds + 1) for name in options.only]
    with ExitStack() as kept:
        folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="race-", dir=options.dir.resolve()))
        trial = Trial(Track(Path(folder), kept), size, say)
        for _, name in book.turns(plan, options.minutes, say):
            _round(trial, name, runners, book.parts)
    return book.found


def _round(trial: Trial, name: str, runners: list[Runner], found: dict[str, Any]) -> None:
    kept = found.setdefault(name, {"load": [], "runners": {}, "crashes": {}})
    able = [one for one in runners if name not in one.unable and one.slug not in kept["crashes"]]
    random.shuffle(able)
    kept["load"].append(round(os.getloadavg()[0], 1))
    trial.crashes = kept["crashes"]
    for slug, figures in DISCIPLINES[name].run(trial, able).items():
        for figure, value in figures.items():
            kept["runners"].setdefault(slug, {}).setdefault(figure, []).append(round(value, 3))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.race",
        description="Postroom beside the field, on equal terms.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    take = parser.add_argument
    only, peers = "only these disciplines", "only these beside ours"
    take("--only", type=some_of(DISCIPLINES), default=list(DISCIPLINES), metavar="NAME,…", help=only)
    take("--peers", type=some_of(SLUGS), default=list(SLUGS), metavar="NAME,…", help=peers)
    take(
        "--hands", type=int, default=HANDS, metavar="N", help=f"jobs at once in a process (default: {HANDS})"
    )
    add_options(parser, minutes=60, json="build/race.json")
    return parser


if __name__ == "__main__":
    os.chdir(REPO)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
