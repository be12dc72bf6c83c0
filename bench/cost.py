"""What a message costs the Redis server: its processor over the whole life, and its memory while it waits."""

from __future__ import annotations

from bench.claim import turns, two_calls
from bench.measure import Case
from bench.server import Books
from bench.stage import DATA, Stage, fill, queue_at
from postroom.model import NewMessage
from postroom.queue import Queue


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":
        return []
    return [*(_processor(stage, batch) for batch in (1, 10, 100)), _memory(stage)]


def _processor(stage: Stage, batch: int) -> Case:
    """Put, claim and ack as three calls, and with the ack and the next claim in one."""
    count = min(batch * stage.calls(20_000, 4_000), stage.size(50_000, 5_000))
    name = f"Redis CPU a message: put, claim, ack at batch {batch}"
    figures = stage.figure(name, "µs"), stage.figure(f"Redis CPU a message: put, turn at batch {batch}", "µs")

    def trial() -> list[float]:
        with stage.url() as url, queue_at(url) as queue, Books(url) as books:
            costs = []
            for drain in (two_calls, turns):
                before = books.spent()
                _put(queue, count, batch)
                drain(queue, batch)
                costs.append((books.spent() - before) / count * 1e6)
        return costs

    return Case(name, figures, trial)


def _put(queue: Queue, count: int, batch: int) -> None:
    for _ in range(0, count, batch):
        queue.room.engine.put(queue.name, [NewMessage(body=DATA) for _ in range(batch)])


def _memory(stage: Stage) -> Case:
    # Just above a power of two, where the tables of the server have doubled: the worst there is.
    count = stage.size(132_000, 17_000)

    def trial() -> list[float]:
        with stage.url() as url, queue_at(url) as queue, Books(url) as books:
            fill(queue, 1)  # the scripts and the books of a queue are there once, however many wait
            before = books.memory()
            fill(queue, count)
            return [(books.memory() - before) / count]

    return Case("memory", (stage.figure("Redis memory for a waiting message", "bytes"),), trial)
