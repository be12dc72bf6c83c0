"""`python -m bench.celery.floor`: what of a task's time is Celery's, and what is left for a transport.

Publishing: `apply_async` without a broker, the bare LPUSH that any broker on Redis needs at least, and both
transports, turn about in one process. Consuming: what one turn of the engine takes for each task of a batch,
in all and of our processor, beside what a solo worker takes without a broker, and with nothing but a PONG to
wait for before it takes what the prefetch allows. The least of many is shown with the median: on a busy
machine the least is what the work itself takes.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import postroom
from bench.celery.app import NULL, OURS, PINGED, STOCK, opened
from bench.celery.drain import POOLS
from bench.celery.publish import fill
from bench.celery.workers import celery_worker
from bench.server import redis_server
from bench.stage import BODY
from postroom.engine import ClaimRequest, Engine
from postroom.model import Settlement

_TRIALS = 400
_WORKERS = 3
#: The prefetch of two hands and of ten.
_BATCHES = (8, 40)
#: About what a task of the bench takes as stock sends it.
_SIZE = 900


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as port:
        url = f"redis://127.0.0.1:{port}/0"
        for name, spans in _publishing(url, port).items():
            _say(f"apply_async, {name}", spans)
        for batch in _BATCHES:
            wall, own = _turns(url, batch)
            _say(f"a turn of {batch}, for each task", wall)
            _say(f"a turn of {batch}, of our processor", own)
        workers = [(_task(NULL, url), _task(PINGED, url)) for _ in range(_WORKERS)]
        for whose, taken in zip((NULL, PINGED), zip(*workers, strict=True), strict=True):
            _say(f"a task of a solo worker, {whose}", taken)


def _task(whose: str, url: str) -> float:
    with celery_worker(whose, url, *POOLS["solo"], bench_count=8_000) as worker:
        worker.next()
        rate: float = worker.next()["rate"]
        return 1 / rate


def _say(what: str, spans: Sequence[float]) -> None:
    print(f"{what:58} {min(spans) * 1e6:7.1f} µs, median {statistics.median(spans) * 1e6:7.1f}", flush=True)


def _publishing(url: str, port: int) -> dict[str, list[float]]:
    with ExitStack() as stack:
        ways: dict[str, Callable[[], Any]] = {"a bare LPUSH": stack.enter_context(_lpush(port))}
        for whose in (NULL, STOCK, OURS):
            task = stack.enter_context(opened(whose, url)).tasks["bench.noop"]
            ways[whose] = partial(task.delay, BODY)
        spans: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_TRIALS):
            for name, publish in ways.items():
                publish()  # the one before was somebody else's, and so are the caches of the processor
                began = time.perf_counter()
                publish()
                spans[name].append(time.perf_counter() - began)
    return spans


@contextmanager
def _lpush(port: int) -> Iterator[Callable[[], bytes]]:
    command = b"*3\r\n$5\r\nLPUSH\r\n$4\r\nbare\r\n$%d\r\n%s\r\n" % (_SIZE, b"x" * _SIZE)
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def publish() -> bytes:
            line.sendall(command)
            return line.recv(100)

        yield publish


def _turns(url: str, batch: int) -> tuple[list[float], list[float]]:
    """Seconds a task: in all, and of our own processor."""
    fill(OURS, url, (_TRIALS // 4 + 1) * batch)
    with postroom.open(url) as room:
        return _taken(room.engine, batch)


def _taken(engine: Engine, batch: int) -> tuple[list[float], list[float]]:
    request = ClaimRequest(n=batch, start=0, lease=60_000, consumer="bench")
    done: list[Settlement] = []
    wall, own = [], []
    for _ in range(_TRIALS // 4):
        began, began_own = time.perf_counter(), time.thread_time()
        deliveries = engine.turn("celery", done, (), request).claimed.deliveries
        own.append((time.thread_time() - began_own) / batch)
        wall.append((time.perf_counter() - began) / batch)
        done = [Settlement(leased.receipt) for leased in deliveries]
    return wall, own


if __name__ == "__main__":
    main()
