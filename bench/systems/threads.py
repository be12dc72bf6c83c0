"""Others whose jobs run on threads, or in processes of their own."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from bench.systems.system import Body, System


class Dramatiq(System):
    """8 threads; fetched in batches, acked one by one. Urgency belongs to an actor, not to a message."""

    def _open(self) -> None:
        dramatiq = importlib.import_module("dramatiq")
        redis_broker = importlib.import_module("dramatiq.brokers.redis")
        beat = {"heartbeat_timeout": int(self._terms.lease * 1_000)} if self._terms.lease else {}
        self._broker = redis_broker.RedisBroker(url=self._url, **beat)
        self._kept.callback(self._broker.close)

        def job(body: Body) -> None:
            self._run(body)

        self._job = dramatiq.actor(job, broker=self._broker, actor_name="job", priority=10)
        self._urgent = dramatiq.actor(job, broker=self._broker, actor_name="urgent", priority=0)

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        actor = self._urgent if urgent else self._job
        options = {"delay": int(delay * 1_000)} if delay else {}
        for body in bodies:
            actor.send_with_options(args=(body,), **options)

    def work(self) -> None:
        threads = {"worker_threads": self._terms.hands} if self._terms.hands else {}
        importlib.import_module("dramatiq").Worker(self._broker, **threads).start()
        while True:
            time.sleep(60)


class Huey(System):
    """One thread; BRPOP takes a job away before its work begins. In a file: polled, and one commit each."""

    def _open(self) -> None:
        huey = importlib.import_module("huey")
        if self._url.startswith("sqlite:///"):
            self._huey = huey.SqliteHuey("bench", filename=self._url.removeprefix("sqlite:///"), fsync=True)
        elif self._terms.priorities:
            self._huey = huey.PriorityRedisHuey("bench", url=self._url)
        else:
            self._huey = huey.RedisHuey("bench", url=self._url)

        def job(body: Body) -> None:
            self._run(body)

        self._job = self._huey.task(name="job")(job)

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        if not delay and not urgent:
            for body in bodies:
                self._job(body)
            return
        options: dict[str, Any] = {"delay": delay} if delay else {}
        for body in bodies:
            self._huey.enqueue(
                self._job.s(body, priority=9, **options) if urgent else self._job.s(body, **options)
            )

    def work(self) -> None:
        workers = {"workers": self._terms.hands} if self._terms.hands else {}
        importlib.import_module("huey.consumer").Consumer(self._huey, **workers).run()


#: RQ's jobs are found by their import path, so this is where they find whom to tell.
_rq: list[System] = []


def rq_job(body: Body) -> None:
    _rq[0]._run(body)


class RQ(System):
    """One job at a time, each in a process that is forked for it. Urgent is what is in another queue."""

    _worker: ClassVar[str] = "Worker"

    def _open(self) -> None:
        rq = importlib.import_module("rq")
        client = importlib.import_module("redis").Redis.from_url(self._url)
        self._kept.callback(client.close)
        self._rq, self._client = rq, client
        self._queues = [rq.Queue(name, connection=client) for name in ("urgent", "bench")]
        # Without a retry, the job of a worker that died counts as failed.
        self._options = {"retry": rq.Retry(max=3), "result_ttl": 0}
        _rq[:] = [self]

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        queue = self._queues[0 if urgent else 1]
        for body in bodies:
            if delay:
                queue.enqueue_in(timedelta(seconds=delay), rq_job, body, **self._options)
            else:
                queue.enqueue(rq_job, body, **self._options)

    def send_many(self, bodies: Sequence[Body]) -> None:
        queue = self._queues[1]
        queue.enqueue_many([queue.prepare_data(rq_job, (body,), **self._options) for body in bodies])

    def work(self) -> None:
        often: dict[str, Any] = {}
        if self._terms.lease:
            lease = int(self._terms.lease)
            often = {"maintenance_interval": lease, "job_monitoring_interval": lease}
        kind = getattr(importlib.import_module("rq.worker"), self._worker)
        kind(self._queues, connection=self._client, **often).work(with_scheduler=True, logging_level="ERROR")


class SimpleRQ(RQ):
    """The same without a fork."""

    _worker = "SimpleWorker"
