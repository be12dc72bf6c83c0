"""Figures of a Celery worker that a test must not insist on: `python -m tests.celery.figures [countdowns]`.

How much a worker grows while so many countdowns wait, how soon after its start it begins its first task,
and how often it asks an idle Redis.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from tests.celery.workers import Shop, WorkerProcess, pool
from tests.redis import servers

_PUBLISH = """
from postroom.celery import publish_group
for first in range(0, {count}, 1000):
    publish_group(note.s(str(n)).set(countdown=86_400) for n in range(first, min(first + 1000, {count})))
"""


def resident(worker: WorkerProcess) -> float:
    """MB of its main process."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def pending_countdowns(shop: Shop, count: int) -> str:
    worker = shop.worker(*pool("threads"))
    shop.send("note", "warm")
    shop.until(lambda: shop.lines("note", "warm"))
    before = resident(worker)
    shop.python(_PUBLISH.format(count=count), patience=600)
    shop.send("note", "done")
    shop.until(lambda: shop.lines("note", "done"))
    grown = resident(worker) - before
    worker.stop()
    return f"{count:,} pending countdowns: the worker grew by {grown:.1f} MB (from {before:.0f})"


def first_task(shop: Shop) -> str:
    shop.send("note", "first")
    began = time.time()
    worker = shop.worker(*pool("threads"))
    ready = time.time()
    shop.until(lambda: shop.lines("note", "first"))
    at = shop.lines("note", "first")[0]["at"]
    worker.stop()
    return f"first task {at - began:.2f} s after the process began, {at - ready:+.2f} s after it said ready"


def idle(shop: Shop, server: servers.Server, seconds: float = 20.0) -> str:
    worker = shop.worker(*pool("threads"))
    time.sleep(3)  # what a start costs is over; a figure, not a test
    server.ask("CONFIG", "RESETSTAT")
    time.sleep(seconds)
    told = server.ask("INFO", "commandstats").decode()
    calls = sum(int(n) for n in re.findall(r"cmdstat_(?:evalsha|fcall|eval):calls=(\d+)", told))
    worker.stop()
    return f"idle: {calls / seconds:.2f} scripts a second"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with servers.single() as server, tempfile.TemporaryDirectory() as name:
        broker = f"postroom+{server.url()}"
        with Shop(broker, Path(name), task_ignore_result=True) as shop:
            print(first_task(shop), flush=True)
            print(idle(shop, server), flush=True)
            print(pending_countdowns(shop, count), flush=True)


if __name__ == "__main__":
    main()
