"""`python -m bench.celery.worker WHOSE URL SETTINGS ARGUMENT…`: a Celery worker that says what it did.

SETTINGS are Celery's, as JSON; the arguments are those of `celery worker`. One more setting is ours:
"bench_count", how many tasks there will be; 0 for a worker that only says when it is ready and when its first
task began. Prints one JSON object a line: {"ready": time}, {"first": time}, and after all of them
{"rate": tasks a second, "cpu": seconds of the processor a task, in this process, "lateness": […]}. The first
tenth is not counted, in which a process warms up; the last one ends it when it begins.

Ends when it is killed, by whoever started it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from celery.signals import worker_ready
from celery.worker import state

from bench.celery import null
from bench.celery.app import NULL, PINGED, first, lateness, make_app
from bench.stage import DATA

#: How often the watcher looks (seconds): often enough for a drain of two seconds.
_LOOK = 0.005


def main(whose: str, url: str, settings: str, *arguments: str) -> None:
    chosen: dict[str, Any] = json.loads(settings)
    count = chosen.pop("bench_count", 0)
    app = make_app(whose, url, **chosen)
    if whose in (NULL, PINGED):
        null.fill("bench.noop", f"[{DATA.decode()}]", count)
    ready = threading.Event()
    ready_at: list[float] = []

    def on_ready(**_: Any) -> None:
        ready_at.append(time.time())
        ready.set()

    worker_ready.connect(on_ready, weak=False)
    state.all_total_count = counted = _Counted(count)
    threading.Thread(target=_watch, args=(ready, ready_at, count, counted), daemon=True).start()
    app.worker_main(["worker", "--loglevel", "ERROR", *arguments])


def _watch(ready: threading.Event, ready_at: list[float], count: int, counted: _Counted) -> None:
    ready.wait()
    _say(ready=ready_at[0])
    if not count:
        _until(lambda: bool(first))
        _say(first=first[0])
        return
    # Begun, and none is left under way: done, whichever pool it is.
    _until(lambda: counted.ended and not state.active_requests)
    spent, own = (end - start for start, end in zip(counted.began, counted.ended, strict=True))
    tasks = count - counted.warm
    _say(rate=tasks / spent, cpu=own / tasks, lateness=lateness)


class _Counted(list[int]):
    """Celery's own count of the tasks that began, which looks at the clocks in time.

    A thread that watches the count would come too late: a solo worker leaves it little of the processor.
    """

    def __init__(self, count: int) -> None:
        super().__init__([0])
        self.warm = count // 10
        self._last = count
        self.began: tuple[float, ...] = ()
        self.ended: tuple[float, ...] = ()

    def __setitem__(self, at: Any, number: Any) -> None:
        super().__setitem__(at, number)
        if number == self.warm:
            self.began = time.perf_counter(), time.process_time()
        elif number == self._last:
            self.ended = time.perf_counter(), time.process_time()


def _until(condition: Any) -> None:
    while not condition():
        time.sleep(_LOOK)


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
