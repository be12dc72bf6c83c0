"""How soon an idle consumer begins, from just before `put`: a worker beside it, and another process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Case, percentile, wait_until
from bench.stage import BODY, Stage, queue_at
from postroom import Delivery, Worker
from postroom.queue import Queue

#: Not measured: the first messages meet a consumer that is still starting.
_WARM_UP = 20
#: Between two puts, evenly (seconds): long enough for the consumer to fall asleep again.
_SPACING = 0.004, 0.006


def cases(stage: Stage) -> list[Case]:
    return [_worker(stage), *([_other_process(stage)] if stage.kind.shared else [])]


def _worker(stage: Stage) -> Case:
    """Until the first line of the handler."""
    samples = stage.size(500, 150)

    def trial() -> list[float]:
        with stage.queue() as queue:
            waits = _waits(queue, _WARM_UP + samples)[_WARM_UP:]
        return [percentile(waits, 50), percentile(waits, 99)]

    return Case("wake", (stage.figure("wake p50", "ms"), stage.figure("wake p99", "ms")), trial)


def _waits(queue: Queue, count: int) -> list[float]:
    """Milliseconds from each put to its handler."""
    began_at: dict[str, int] = {}

    def handler(delivery: Delivery) -> None:
        began_at[delivery.id] = time.perf_counter_ns()

    with Worker(queue.room, {queue.name: handler}):
        put_at = _put(queue, count)
        wait_until(lambda: len(began_at) == count, 10)
    return [(began_at[id] - now) / 1e6 for id, now in put_at.items()]


def _put(queue: Queue, count: int) -> dict[str, int]:
    """So many messages, one now and then: when each put began (nanoseconds)."""
    put_at: dict[str, int] = {}
    for _ in range(count):
        time.sleep(random.uniform(*_SPACING))
        now = time.perf_counter_ns()
        put_at[queue.put(BODY).id] = now
    return put_at


# ---- The other process ----------------------------------------------------------------------------


def _other_process(stage: Stage) -> Case:
    """Until its waiter rings, and until it has claimed. Both clocks are one: it runs on the same machine."""
    samples = stage.size(500, 150)
    figures = (
        stage.figure("other process: its waiter rings p50", "ms"),
        stage.figure("other process: its waiter rings p99", "ms"),
        stage.figure("other process: claimed p50", "ms"),
        stage.figure("other process: claimed p99", "ms"),
    )

    def trial() -> list[float]:
        with stage.url() as url, queue_at(url) as queue:
            rings, claims = _crossings(url, queue, _WARM_UP + samples)
        return [percentile(waits, percent) for waits in (rings, claims) for percent in (50, 99)]

    return Case("wake of another process", figures, trial)


def _crossings(url: str, queue: Queue, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds from each put to the ring that it caused, and to its claim; not of the warm-up."""
    with _consumer(url, queue.name) as child:
        put_at = _put(queue, count)
        wait_until(lambda: queue.stats().counters.get("acked") == count, 10)
        told, _ = child.communicate(timeout=10)
    seen: dict[str, tuple[int, int]] = json.loads(told)
    measured = list(put_at.items())[_WARM_UP:]
    # A consumer that was still awake claims without a ring.
    rings = [(seen[id][0] - now) / 1e6 for id, now in measured if seen[id][0] > now]
    return rings, [(seen[id][1] - now) / 1e6 for id, now in measured]


@contextmanager
def _consumer(url: str, queue: str) -> Iterator[subprocess.Popen[str]]:
    """A process that consumes until its standard input ends, as it also does when this one dies."""
    command = [sys.executable, "-m", "bench.consumer", url, queue]
    # A session of its own: Ctrl-C is for this process, which then closes the pipe.
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdin and child.stdout
            if not child.stdout.readline():
                raise RuntimeError("the consumer did not start")
            yield child
        finally:
            _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    assert child.stdin
    child.stdin.close()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
