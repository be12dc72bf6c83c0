"""Three ways to grow: more messages that wait, more queues, more consumers. What is compared takes turns."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import postroom
from bench.measure import percentile, rate, wait_until
from bench.race.ledger import Ledger
from bench.race.track import kill_family
from bench.server import Books
from bench.stage import BODY, DATA, Stage, fill
from postroom import Delivery, Worker
from postroom.engine import ClaimRequest
from postroom.model import NewMessage, Settlement
from postroom.queue import Queue
from postroom.room import Room

Figures = dict[str, float]
REPO = Path(__file__).parents[2]
#: How many consumers share a process: as many threads as it can wake.
_A_PROCESS = 50


class Curve(ABC):
    """What is measured at each of these sizes."""

    def __init__(self, stage: Stage, sizes: list[int]) -> None:
        self._stage, self.sizes = stage, sizes

    @abstractmethod
    def round(self) -> dict[str, Figures]:
        """Each once, in an order that changes."""


class Sized(Curve):
    """One whose sizes are measured one after the other."""

    def round(self) -> dict[str, Figures]:
        return {str(size): self._measured(size) for size in random.sample(self.sizes, len(self.sizes))}

    @abstractmethod
    def _measured(self, size: int) -> Figures: ...


class Messages(Sized):
    """So many wait. A store for each size, filled once and kept that full."""

    def __init__(self, stage: Stage, sizes: list[int]) -> None:
        super().__init__(stage, sizes)
        self._queues: dict[int, Queue] = {}
        self._bytes: dict[int, float] = {}

    def round(self) -> dict[str, Figures]:
        """The sizes take turns many times."""
        if not self._queues:
            for size in self.sizes:
                self._fill(size)
        turns: dict[str, list[Figures]] = {str(size): [] for size in self.sizes}
        for _ in range(self._stage.size(40, 5)):
            for name, figures in super().round().items():
                turns[name].append(figures)
        return {name: quiet(every) for name, every in turns.items()}

    def _measured(self, size: int) -> Figures:
        spent = {what: seconds * 1e6 for what, seconds in calls(self._queues[size]).items()}
        return spent | {"bytes": self._bytes[size]}

    def _fill(self, size: int) -> None:
        stage = self._stage
        url = stage.kept.enter_context(stage.url())
        room = stage.kept.enter_context(postroom.open(url))
        queue = room.queue("deep")
        fill(queue, 1)
        before = _size(url)
        stage.say(f"putting {size:,} messages")
        fill(queue, size, stage.say)
        self._bytes[size] = (_size(url) - before) / size
        self._queues[size] = queue


def quiet(every: list[Figures]) -> Figures:
    """What a call takes when nobody else has the processor: a tenth of them took no longer."""
    return {what: percentile([one[what] for one in every], 10) for what in every[0]}


def _size(url: str) -> int:
    if url.startswith("redis"):
        with Books(url) as books:
            return books.memory()
    file = Path(url.removeprefix("sqlite:///"))
    return sum(one.stat().st_size for one in file.parent.iterdir() if one.is_file())


def calls(queue: Queue) -> dict[str, float]:
    """Seconds for each, a message if it is about many; as many wait afterwards as before."""
    engine, name = queue.room.engine, queue.name
    found: dict[str, float] = {}
    for many in (1, 100):
        messages = [NewMessage(body=DATA) for _ in range(many)]
        began = time.perf_counter()
        engine.put(name, messages)
        put = time.perf_counter()
        leased = engine.claim(name, ClaimRequest(n=many)).deliveries
        engine.settle(name, [Settlement(one.receipt) for one in leased])
        done = time.perf_counter()
        assert len(leased) == many
        found |= {f"put {many}": (put - began) / many, f"claim+ack {many}": (done - put) / many}
    began = time.perf_counter()
    queue.stats()
    return found | {"stats": time.perf_counter() - began}


class Queues(Sized):
    """So many queues in one room, and one worker for all of them."""

    def _measured(self, size: int) -> Figures:
        jobs = self._stage.size(4_000, 300)
        begun: list[int] = []

        def handler(delivery: Delivery) -> None:
            begun.append(time.monotonic_ns())

        with self._stage.url() as url, postroom.open(url) as room:
            queues = [room.queue(f"q{number}") for number in range(size)]
            for queue in queues:
                queue.put_many([BODY] * max(1, jobs // size))
            worker = Worker(room, {queue.name: handler for queue in queues}, keeper=False)
            total = max(1, jobs // size) * size
            drained = rate(total, lambda: worker.run(drain=True))
            assert len(begun) == total
            listed = _median(5, room.stats)
            with Worker(room, {queue.name: handler for queue in queues}, keeper=False):
                waits = self._waits(queues, begun)
        return {
            "drain": drained,
            "stats": listed * 1e6,
            "wake p50": percentile(waits, 50),
            "wake p99": percentile(waits, 99),
        }

    def _waits(self, queues: list[Queue], begun: list[int]) -> list[float]:
        waits = []
        for _ in range(self._stage.size(60, 5) + 1):
            time.sleep(random.uniform(0.01, 0.02))
            before, queue = len(begun), random.choice(queues)
            put = time.monotonic_ns()
            queue.put(BODY)
            _until_more(begun, before)
            waits.append((begun[before] - put) / 1e6)
        return waits[1:]  # the first also waited for the worker to start


def _until_more(begun: list[int], count: int) -> None:
    wait_until(lambda: len(begun) > count, 60)


def _median(times: int, work: Callable[[], object]) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


class Consumers(Sized):
    """So many consumers of one queue, threads that share a room, up to 50 in a process."""

    def _measured(self, size: int) -> Figures:
        jobs, looked = self._stage.size(3_000, 200), self._stage.size(3, 1)
        with self._stage.url() as url, postroom.open(url) as room, self._crowd(url, size) as crowd:
            queue = room.queue("crowd")
            before, began = crowd.spent(), time.perf_counter()
            time.sleep(looked)  # they idle: what they do about that is the figure
            idle = (crowd.spent() - before) / (time.perf_counter() - began)
            waits = self._waits(room, queue, crowd)
            noted = crowd.begun()
            began = time.perf_counter()
            for done in range(0, jobs, 100):
                queue.put_many([BODY] * min(100, jobs - done))
            wait_until(lambda: crowd.begun() >= noted + jobs, 120)
            drained = jobs / (time.perf_counter() - began)
            refused = crowd.refused()
        return {
            "drain": drained,
            "refused": refused,
            "wake p50": percentile(waits, 50),
            "wake p99": percentile(waits, 99),
            "idle": idle * 100,
        }

    def _waits(self, room: Room, queue: Queue, crowd: _Crowd) -> list[float]:
        waits = []
        for number in range(1, self._stage.size(60, 5) + 1):
            time.sleep(random.uniform(0.01, 0.02))
            put = time.monotonic_ns()
            queue.put(BODY | {"key": number})
            waits.append((crowd.until(number) - put) / 1e6)
        return waits

    @contextmanager
    def _crowd(self, url: str, size: int) -> Iterator[_Crowd]:
        with ExitStack() as stack, self._stage.new_folder() as folder:
            crowd = _Crowd(url, size, folder, self._stage.size(3_000, 200) + 1_000)
            stack.callback(crowd.end)
            crowd.wait_until_ready()
            yield crowd


class _Crowd:
    """The processes of some consumers; see `bench.scaling.crowd`."""

    def __init__(self, url: str, size: int, folder: Path, capacity: int) -> None:
        self._ledgers, self._refusals, self._processes = [], [], []
        self._url = url
        for number, first in enumerate(range(0, size, _A_PROCESS)):
            path = folder / f"ledger{number}"
            self._ledgers.append(Ledger(path, capacity))
            self._refusals.append(Ledger(path.with_suffix(".busy"), capacity))
            many = str(min(_A_PROCESS, size - first))
            command = [sys.executable, "-m", "bench.scaling.crowd", url, "crowd", many, str(path)]
            self._processes.append(subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True))

    def wait_until_ready(self) -> None:
        for process in self._processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"

    def begun(self) -> int:
        return sum(map(len, self._ledgers))

    def refused(self) -> int:
        """How many calls the store was too busy for."""
        return sum(map(len, self._refusals))

    def at(self, key: int) -> int | None:
        """When the job of this key began, of those that came last."""
        for ledger in self._ledgers:
            for entry in ledger.entries(max(0, len(ledger) - 3)):
                if entry.key == key:
                    return entry.at
        return None

    def until(self, key: int) -> int:
        """The same, as soon as it began."""
        wait_until(lambda: self.at(key) is not None, 60)
        return self.at(key) or 0

    def spent(self) -> float:
        """Processor time so far (seconds), of them and of the server."""
        ticks = os.sysconf("SC_CLK_TCK")
        own = 0.0
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            own += (int(fields[11]) + int(fields[12])) / ticks
        if self._url.startswith("redis"):
            with Books(self._url) as books:
                own += books.spent()
        return own

    def end(self) -> None:
        for process in self._processes:
            kill_family(process.pid)
            process.wait()
            assert process.stdout
            process.stdout.close()
