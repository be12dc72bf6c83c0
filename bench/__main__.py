"""`python -m bench`: measure, and print one table."""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import claim, delay, depth, imports, put, report, wake, work
from bench.measure import Case, Result, run
from bench.stage import ENGINES, Stage

GROUPS: dict[str, Callable[[Stage], list[Case]]] = {
    "put": put.cases,
    "claim": claim.cases,
    "worker": work.cases,
    "wake": wake.cases,
    "delay": delay.cases,
    "depth": depth.cases,
    "import": imports.cases,
}

#: No new round begins that would not end within this (seconds); a run that hangs is ended a while later.
_FULL, _QUICK = 210, 25
_HANG = 90

_EPILOG = """
groups:
  put      put one by one and put_many, through the Python door
  claim    claim+ack at batch 1, 10 and 100 through the engine contract, as two calls and by turn
  worker   a Worker that drains no-ops, at concurrency 1 and 4, and handlers that wait 1 ms
  wake     an idle worker: from put to the first line of the handler
  delay    delayed messages: how long after their due time the handler begins, and whether any is early
  depth    claim+ack of 100 with 1 k, 100 k and 1 M messages waiting
  import   import postroom in a fresh interpreter, whose own start is not counted, and what it loads

examples:
  make bench                                     everything, within four minutes
  make bench ARGS="--quick"                      a rough idea, within half a minute
  make bench ARGS="--only put,claim --repeats 9"
  python -m bench --json before.json             keep the values of every round

Every round measures each case once, and a figure is the median over the rounds: compare within
one run, because another run meets another load. The figures are information: the exit code is 0
whether targets are met or not, and 1 only if a case crashed. Bodies have 200 bytes.
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    seconds = _QUICK if options.quick else _FULL
    faulthandler.dump_traceback_later(seconds + _HANG, exit=True)
    stage = Stage(ENGINES[options.engine], options.quick)
    cases = [case for name in options.only for case in GROUPS[name](stage)]
    machine, began = report.machine(), time.monotonic()
    results = run(cases, options.repeats, seconds, _say)
    notes = _notes(results)
    faulthandler.cancel_dump_traceback_later()
    spent = time.monotonic() - began
    _print(options, report.machine_line(machine), results, notes, spent)
    if options.json:
        found = report.as_json(results, engine=options.engine, machine=machine, seconds=spent, notes=notes)
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(result.crash for result in results) else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Postroom on this machine and print one table.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=ENGINES, default="memory", help="the engine (default: memory)")
    parser.add_argument(
        "--only", type=_groups, default=list(GROUPS), metavar="GROUP,…", help="only these groups, see below"
    )
    parser.add_argument("--repeats", type=_positive, metavar="N", help="rounds (default: 5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="fewer messages: a rough idea in half a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value to this file")
    options = parser.parse_args(argv)
    options.repeats = options.repeats or (2 if options.quick else 5)
    return options


def _groups(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not set(names) <= set(GROUPS):
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(GROUPS)}")
    return names


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _notes(results: Sequence[Result]) -> list[str]:
    crashes = [f"{result.case.name} crashed: {result.crash}" for result in results if result.crash]
    return [note for result in results if result.values for note in result.case.notes()] + crashes


def _print(
    options: argparse.Namespace, machine: str, results: Sequence[Result], notes: Sequence[str], spent: float
) -> None:
    rounds = max(len(result.values) for result in results)
    how = "quick, " if options.quick else ""
    print(f"Postroom on the {options.engine} engine: {how}{rounds} rounds in {spent:.0f} s; {machine}\n")
    print(report.table(results))
    for note in notes:
        print(f"\n{note}")


if __name__ == "__main__":
    sys.exit(main())
