"""`python -m bench`: measure, and print a table for each engine."""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import (
    celery,
    claim,
    cost,
    dashboard,
    delay,
    depth,
    disk,
    events,
    guards,
    http,
    imports,
    peers,
    pressure,
    purge,
    put,
    reclaim,
    report,
    rivals,
    sleep,
    telemetry,
    wake,
    work,
)
from bench.command import say, some_of
from bench.measure import Case, Result, run
from bench.stage import ENGINES, Stage

GROUPS: dict[str, Callable[[Stage], list[Case]]] = {
    "put": put.cases,
    "claim": claim.cases,
    "worker": work.cases,
    "sleep": sleep.cases,
    "telemetry": telemetry.cases,
    "wake": wake.cases,
    "delay": delay.cases,
    "depth": depth.cases,
    "disk": disk.cases,
    "guards": guards.cases,
    "http": http.cases,
    "dashboard": dashboard.cases,
    "peers": peers.cases,
    "cost": cost.cases,
    "rivals": rivals.cases,
    "celery": celery.cases,
    "events": events.cases,
    "pressure": pressure.cases,
    "reclaim": reclaim.cases,
    "purge": purge.cases,
    "import": imports.cases,
}

#: Seconds for an engine: no new round begins that would not end within this.
_SECONDS = {"memory": 120, "sqlite": 330, "redis": 720}
_QUICK_SECONDS = {"memory": 25, "sqlite": 35, "redis": 60}
#: A run that hangs is interrupted so long after its time, and ended when that does not help.
_HANG, _LAST_RESORT = 90, 120

_EPILOG = """
groups:
  put      put one by one and put_many, through the Python door; where a put waits for the disk,
           also by 8 threads at once, and how many times one thread that is
  claim    claim+ack at batch 1, 10 and 100 through the engine contract, as two calls and by turn
  worker   a Worker that drains no-ops, at concurrency 1 and 4, and handlers that wait 1 ms
  sleep    how late a bare time.sleep is: a loaded machine makes everybody late, so look here first
  telemetry
           a Worker that drains no-ops with telemetry and without, turn about, and the ratio
  wake     an idle worker: from put to the first line of the handler; and a consumer in another
           process: until its waiter rings, and until it has claimed (not with memory)
  delay    delayed messages: how long after their due time the handler begins, and whether any is early
  depth    claim+ack beside 1 k and up to 1 M waiting messages
  guards   a call through a closed breaker (memory), a function that runs once and a duplicate of it,
           and what a put with a rate_key takes in puts without one
  http     a server on the file: puts, batches, waking who waits, 1,000 listeners, the numbers of a deep
           queue (sqlite)
  dashboard
           a real Chromium at that server: what it loads and when it can be used, what 50,000 countdowns
           cost it, and what its heap gains by 200 events a second (sqlite; --soak 600 for ten minutes)
  disk     what a waiting message takes in the file of a closed room (sqlite)
  peers    one by one beside huey, litequeue and plain SQLite, with the same durability (sqlite)
  cost     what a message costs the server: processor time over its life, memory while it waits (redis)
  rivals   a drain of no-ops and puts one by one beside dramatiq, huey, taskiq and streaq (redis)
  celery   Celery on Postroom beside Celery on kombu's Redis transport and on none: drains in three
           pools, round trips, publishing, memory, countdowns, the first task (redis)
  events   events on RabbitMQ beside kombu's confirms and plain Celery there (with redis)
  pressure delayed messages while a worker drains a backlog at full speed (redis)
  reclaim  how soon the messages of a dead consumer are taken back, idle and beside 1 M others (redis)
  purge    how long the server is held up by a purge of 1 M (redis)
  import   import postroom in a fresh interpreter, whose own start is not counted, and what it loads
           (memory)

examples:
  make bench                                     everything, within 22 minutes, of which Redis has 13
  make bench ARGS="--quick"                      a rough idea, within two minutes
  make bench ARGS="--engine redis --repeats 3"
  make bench ARGS="--engine sqlite --only put,claim --repeats 9"
  make bench ARGS="--engine sqlite --dir /mnt/ssd"
  python -m bench --json before.json             keep the values of every round

Every round measures each case once, and a figure is the median over the rounds, with the least
and the most beside it: compare within one run, because another run meets another load. The figures
are information: the exit code is 0 whether targets are met or not, and 1 only if a case crashed.
Bodies have 200 bytes. Files are made in a folder of their own below --dir, about 1 GB for depth,
and are removed at the end, also after Ctrl-C.
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    # Whoever ends it lets it clean up, also where Ctrl-C was to be ignored, as in the background of a script.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.dir.mkdir(parents=True, exist_ok=True)
    machine, found = report.machine(), []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        for engine in options.engine:
            found += _measured(options, engine, Path(folder), report.machine_line(machine))
    if not found:
        parser.error(f"{', '.join(options.engine)}: there is nothing to measure in {', '.join(options.only)}")
    if options.json:
        kept = {"argv": sys.argv[1:], "machine": machine, "engines": found}
        options.json.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(figure["crash"] for one in found for figure in one["figures"]) else 0


def _measured(options: argparse.Namespace, engine: str, folder: Path, machine: str) -> list[dict[str, Any]]:
    """Measure one engine and print its table; nothing when no group has a case for it."""
    seconds = (_QUICK_SECONDS if options.quick else _SECONDS)[engine] + options.soak
    with ExitStack() as kept, _watched(seconds):
        stage = Stage(engine, folder, options.quick, options.soak, say, kept)
        cases = [case for name in options.only for case in GROUPS[name](stage)]
        if not cases:
            return []
        began = time.monotonic()
        results = run(cases, options.repeats or (2 if options.quick else 5), seconds, say)
        notes, spent = _notes(stage, results), time.monotonic() - began
    rounds = max(len(result.values) for result in results)
    how = "quick, " if options.quick else ""
    print(f"Postroom on the {engine} engine: {how}{rounds} rounds in {spent:.0f} s; {machine}\n")
    print("\n\n".join([report.table(results), *notes]), end="\n\n", flush=True)
    return [report.as_json(results, engine=engine, seconds=spent, notes=notes)]


@contextmanager
def _watched(seconds: float) -> Iterator[None]:
    """Interrupt what takes far longer than that, so that it cleans up; end it if that does not help."""
    main_thread = threading.get_ident()

    def interrupt() -> None:
        faulthandler.dump_traceback()
        signal.pthread_kill(main_thread, signal.SIGINT)

    timer = threading.Timer(seconds + _HANG, interrupt)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + _LAST_RESORT, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Postroom on this machine and print a table for each engine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    take = parser.add_argument
    every = f"only these of {', '.join(ENGINES)} (default: all)"
    take("--engine", type=some_of(ENGINES), default=list(ENGINES), metavar="NAME,…", help=every)
    groups = "only these groups, see below"
    take("--only", type=some_of(GROUPS), default=list(GROUPS), metavar="GROUP,…", help=groups)
    take("--repeats", type=_positive, metavar="N", help="rounds at most (default: 5; 2 with --quick)")
    take("--quick", action="store_true", help="fewer messages: a rough idea within two minutes")
    take("--dir", type=Path, default=Path("build"), help="make files below this folder (default: build)")
    take("--soak", type=_positive, default=0, metavar="S", help="watch for so long what may grow (seconds)")
    take("--json", type=Path, metavar="FILE", help="also write every value to this file")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _notes(stage: Stage, results: Sequence[Result]) -> list[str]:
    crashes = [f"{result.case.name} crashed: {result.crash}" for result in results if result.crash]
    notes = [note for result in results if result.values for note in result.case.notes()]
    return [*_ground(stage), *notes, *crashes]


def _ground(stage: Stage) -> list[str]:
    """What the figures of a file depend on besides the machine."""
    if "{file}" not in stage.kind.url:
        return []
    kind = report.file_system(stage.folder)
    doubt = ", where a commit waits for no disk: use --dir for figures that mean something"
    return [f"SQLite {sqlite3.sqlite_version}; files on {kind}{doubt if kind in ('tmpfs', 'ramfs') else ''}"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
