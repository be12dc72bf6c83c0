"""Those who work through jobs in Redis, Postroom and others, as far as they are measured.

Everybody has one process, the settings its authors chose, and jobs that do nothing with a body of 200 bytes.
A system is opened where it puts and, in a process of its own, where it works.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack

import postroom
from bench.stage import BODY
from postroom import Delivery, Worker

Note = Callable[[], None]


class System(ABC):
    """One of them, with the job that calls `note` and does nothing else."""

    def __init__(self, url: str, note: Note) -> None:
        self._url = url
        self._note = note
        #: What must be closed again.
        self._kept = ExitStack()
        self._open()

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def put(self, count: int) -> None:
        """So many jobs, one by one, each known to be kept when the next is put."""

    def fill(self, count: int) -> None:
        """So many jobs for a drain, however they get there."""
        self.put(count)

    @abstractmethod
    def work(self) -> None:
        """Work on them until the process ends."""

    def close(self) -> None:
        self._kept.close()


class Postroom(System):
    """A lease and a fencing token for each; settles and claims in batches."""

    def _open(self) -> None:
        self._room = self._kept.enter_context(postroom.open(self._url))
        self._queue = self._room.queue("bench")

    def put(self, count: int) -> None:
        for _ in range(count):
            self._queue.put(BODY)

    def fill(self, count: int) -> None:
        self._queue.put_many([BODY] * count)

    def work(self) -> None:
        def handler(delivery: Delivery) -> None:
            self._note()

        Worker(self._room, {"bench": handler}).run()


class Dramatiq(System):
    """8 threads; fetched in batches of 16, acked one by one."""

    def _open(self) -> None:
        dramatiq = importlib.import_module("dramatiq")
        redis_broker = importlib.import_module("dramatiq.brokers.redis")
        self._broker = redis_broker.RedisBroker(url=self._url)
        self._kept.callback(self._broker.close)

        def job(body: object) -> None:
            self._note()

        self._job = dramatiq.actor(job, broker=self._broker, actor_name="job")

    def put(self, count: int) -> None:
        for _ in range(count):
            self._job.send(BODY)

    def work(self) -> None:
        importlib.import_module("dramatiq").Worker(self._broker).start()
        while True:
            time.sleep(60)


class Huey(System):
    """One thread; BRPOP takes a job away before its work begins."""

    def _open(self) -> None:
        huey = importlib.import_module("huey")
        self._huey = huey.RedisHuey("bench", url=self._url)

        def job(body: object) -> None:
            self._note()

        self._job = self._huey.task(name="job")(job)

    def put(self, count: int) -> None:
        for _ in range(count):
            self._job(BODY)

    def work(self) -> None:
        importlib.import_module("huey.consumer").Consumer(self._huey).run()


class _Asynchronous(System):
    """Lives in an event loop; a new client, because none may outlive its loop, has a loop of its own."""

    def __init__(self, url: str, note: Note) -> None:
        self._runner = asyncio.Runner()
        super().__init__(url, note)

    def close(self) -> None:
        super().close()
        self._runner.close()

    def put(self, count: int) -> None:
        self._runner.run(self._put(count))

    @abstractmethod
    async def _put(self, count: int) -> None: ...


class Taskiq(_Asynchronous):
    """RedisStreamBroker: a consumer group, up to 100 tasks at once, each acked by itself."""

    def _open(self) -> None:
        self._broker = importlib.import_module("taskiq_redis").RedisStreamBroker(self._url)

        async def job(body: object) -> None:
            self._note()

        self._job = self._broker.task("job")(job)
        self._runner.run(self._broker.startup())  # makes the group: what is put earlier, it never sees
        self._kept.callback(lambda: self._runner.run(self._broker.shutdown()))

    async def _put(self, count: int) -> None:
        for _ in range(count):
            await self._job.kiq(BODY)

    def work(self) -> None:
        receiver = importlib.import_module("taskiq.api").run_receiver_task
        self._runner.run(receiver(self._broker))


class Streaq(_Asynchronous):
    """16 tasks at once; a stream with a consumer group, a task acked and its result kept by a script."""

    def _open(self) -> None:
        self._worker = importlib.import_module("streaq").Worker(self._url)

        async def job(body: object) -> None:
            self._note()

        self._job = self._worker.task(name="job")(job)

    async def _put(self, count: int) -> None:
        async with self._worker:
            for _ in range(count):
                await self._job.enqueue(BODY)

    def work(self) -> None:
        self._worker.run_sync()


#: By name: what it is, and the module that must be there for it.
SYSTEMS: dict[str, tuple[type[System], str]] = {
    "Postroom": (Postroom, "postroom"),
    "dramatiq": (Dramatiq, "dramatiq"),
    "huey": (Huey, "huey"),
    "taskiq": (Taskiq, "taskiq_redis"),
    "streaq": (Streaq, "streaq"),
}
