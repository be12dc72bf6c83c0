"""A Celery worker of the demo: `python -m postroom.cli.demo.celery_staff`, with a part on stdin.

It is `celery worker`, as people start it; what its task does is reported like the work of everybody else.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import Any

from postroom.cli.demo import wire
from postroom.cli.demo.celery_app import make_app, with_task

_runs = itertools.count()
#: So long an order takes; and one that gets stuck, unless its worker ends before (seconds).
_USUAL, _STUCK = 0.02, 60.0


def main() -> None:
    part = wire.part()
    if part is None:
        return
    wire.keep_to_reports()  # Celery says a word or two, too
    app = with_task(make_app(part.url), order)
    _import_the_rest()
    if not wire.cue():
        return
    from celery.signals import worker_ready

    worker_ready.connect(_ready, weak=False)
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    name = f"{part.name.replace(' ', '-')}@demo"
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    app.worker_main(["--quiet", "worker", "--pool", "solo", "--hostname", name, *quiet])


def order(task: Any, number: int, gets_stuck: bool) -> None:
    """One order; one that gets stuck does so with the first worker only."""
    redelivered = bool(task.request.delivery_info["redelivered"])
    run = next(_runs)
    wire.send(wire.Began(run, number, int(redelivered), time.time()))
    if gets_stuck and not redelivered:
        _get_stuck()
    time.sleep(_USUAL)
    wire.send(wire.Ended(run, time.time()))


def _get_stuck() -> None:
    """Until the worker is killed; asked to stop, it hands the order back."""
    from celery.exceptions import Reject
    from celery.worker import state

    end = time.monotonic() + _STUCK
    while state.should_stop is None and time.monotonic() < end:
        time.sleep(0.05)
    raise Reject("stuck", requeue=True)


def _ready(**_: Any) -> None:
    wire.send(wire.Ready())


def _import_the_rest() -> None:
    """While nobody waits for it."""
    import celery.bin.celery
    import celery.concurrency.solo
    import celery.worker.consumer  # noqa: F401


def _end_with_the_demo() -> None:
    """Nobody works on without it, however it went."""
    # Not through sys.stdin: a thread that holds its lock would keep Python from ending.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
