"""Putting, through the Python door: every body is made JSON, checked and kept."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from bench.measure import Case, rate
from bench.stage import BODY, Stage
from postroom.queue import Queue

_THREADS = 8
#: One thread and many take turns so often in a trial, so that both meet the same load.
_SLICES = 4


def cases(stage: Stage) -> list[Case]:
    one, some, many = stage.calls(20_000, 5_000), stage.size(50_000, 5_000), stage.size(100_000, 20_000)

    def one_by_one() -> list[float]:
        with stage.queue() as queue:
            return [rate(one, lambda: _one_by_one(queue, one))]

    def by_hundreds() -> list[float]:
        with stage.queue() as queue:
            return [rate(some, lambda: _by_hundreds(queue, some))]

    def put_many() -> list[float]:
        with stage.queue() as queue:
            return [rate(many, lambda: queue.put_many([BODY] * many))]

    return [
        Case("put one by one", (stage.figure("put, one by one", "/s"),), one_by_one),
        *([_threads(stage)] if stage.kind.durable else []),
        Case("put_many, 100 a call", (stage.figure("put_many, 100 a call", "/s"),), by_hundreds),
        Case("put_many", (stage.figure("put_many", "/s"),), put_many),
    ]


def _threads(stage: Stage) -> Case:
    """Whether threads that put at the same time share the waits for the disk."""
    each = stage.size(250, 100)
    name = f"put, one by one: {_THREADS} threads"
    figures = stage.figure(name, "/s"), stage.figure(f"{name} ÷ 1", "×")

    def trial() -> list[float]:
        with stage.queue() as queue, ThreadPoolExecutor(_THREADS) as pool:
            alone = together = 0.0
            for _ in range(_SLICES):
                alone += _spent(queue, each, pool, 1)
                together += _spent(queue, each, pool, _THREADS)
        total = each * _SLICES
        return [total * _THREADS / together, (total * _THREADS / together) / (total / alone)]

    return Case(name, figures, trial)


def _spent(queue: Queue, each: int, pool: ThreadPoolExecutor, threads: int) -> float:
    began = time.perf_counter()
    for done in [pool.submit(_one_by_one, queue, each) for _ in range(threads)]:
        done.result()
    return time.perf_counter() - began


def _one_by_one(queue: Queue, count: int) -> None:
    put = queue.put
    for _ in range(count):
        put(BODY)


def _by_hundreds(queue: Queue, count: int) -> None:
    for _ in range(count // 100):
        queue.put_many([BODY] * 100)
