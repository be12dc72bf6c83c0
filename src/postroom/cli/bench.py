"""`postroom bench`: how fast this store is, from here, with what you are going to put."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from postroom.cli import output
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.queue import Queue
    from postroom.room import Room

#: Of a single call so many are measured, or as many messages as were asked for.
_SINGLE = 200
#: Messages of one claim.
_BATCH = 100

Count = Annotated[
    int, typer.Option("--messages", "-n", metavar="NUMBER", help="How many.", min=1, max=1_000_000)
]
Size = Annotated[
    int, typer.Option("--size", metavar="BYTES", help="The size of a body.", min=2, max=1_000_000)
]
Hands = Annotated[
    int, typer.Option("--concurrency", metavar="NUMBER", help="Of the worker.", min=1, max=1_000)
]


class Figure(NamedTuple):
    """What was measured: so many a second, or so many milliseconds."""

    name: str
    value: float
    unit: str


def register(root: typer.Typer) -> None:
    root.command()(bench)


def bench(
    url: Url = None, messages: Count = 2_000, size: Size = 200, concurrency: Hands = 1, json: Json = False
) -> None:
    """Measure a store from here: put, claim and ack, a worker that drains, and how soon it wakes.

    In a queue of its own, which is removed at the end; other queues are left alone, but the store has to do
    the work. One process, one run: for whether a store is fit for what you want, not for comparisons.

    \b
    Examples:
      postroom bench
      postroom bench --url redis://host/0 --messages 20000 --size 1000
      postroom bench --concurrency 8 --json
    """
    from postroom.cli.progress import counted
    from postroom.cli.store import opened
    from postroom.ids import new_id

    with opened(url) as room:
        queue = room.queue(f"bench.{new_id()}")
        try:
            figures = list(
                counted(_figures(room, queue, messages, "x" * (size - 2), concurrency), "measured")
            )
        finally:
            queue.drop(force=True)
    if json:
        output.as_json([figure._asdict() for figure in figures])
    else:
        output.table(("what", "", ""), [(f.name, f"{f.value:,.1f}", f.unit) for f in figures])


def _figures(room: Room, queue: Queue, count: int, body: str, hands: int) -> Iterator[Figure]:
    queue.put(body)  # opens what is opened late
    _take_all(queue, 1)
    single = min(count, _SINGLE)
    yield _rate("put, one by one", single, lambda: [queue.put(body) for _ in range(single)])
    yield _rate(f"claim {_BATCH} at a time, ack each", single, lambda: _take_all(queue, single))
    yield _rate("put_many", count, lambda: queue.put_many(itertools.repeat(body, count)))
    yield _rate(f"a worker of {hands} drains", count, lambda: _drain(room, queue, hands))
    yield Figure("an idle worker wakes, median", _wake(room, queue, body), "ms")


def _rate(name: str, count: int, call: Callable[[], object]) -> Figure:
    began = time.perf_counter()
    call()
    return Figure(name, count / (time.perf_counter() - began), "/s")


def _take_all(queue: Queue, count: int) -> None:
    taken = 0
    while taken < count and (deliveries := queue.claim_many(_BATCH, timeout=0)):
        for delivery in deliveries:
            delivery.ack()
        taken += len(deliveries)


def _drain(room: Room, queue: Queue, hands: int) -> None:
    from postroom.worker import Worker

    Worker(room, {queue.name: lambda delivery: None}, concurrency=hands, keeper=False).run(drain=True)


def _wake(room: Room, queue: Queue, body: str, rounds: int = 20) -> float:
    """From put to the first line of the handler (ms)."""
    import queue as queues

    from postroom.worker import Worker

    began: queues.SimpleQueue[float] = queues.SimpleQueue()
    spans: list[float] = []
    with Worker(room, {queue.name: lambda delivery: began.put(time.perf_counter())}, keeper=False):
        for _ in range(rounds):
            time.sleep(0.02)  # so that it sleeps again
            put = time.perf_counter()
            queue.put(body)
            spans.append(began.get(timeout=60) - put)
    return statistics.median(spans) * 1_000
