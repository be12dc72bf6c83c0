"""Others whose jobs are coroutines in an event loop."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.systems.system import Asynchronous, Body


class Taskiq(Asynchronous):
    """RedisStreamBroker: a consumer group, up to 100 tasks at once, each acked by itself.

    Delays are for a second program, `taskiq scheduler`; here it shares the worker's event loop.
    """

    def _open(self) -> None:
        taskiq_redis = importlib.import_module("taskiq_redis")
        idle = {"idle_timeout": int(self._terms.lease * 1_000)} if self._terms.lease else {}
        self._broker = taskiq_redis.RedisStreamBroker(self._url, **idle)
        self._source = taskiq_redis.ListRedisScheduleSource(self._url)

        async def job(body: Any) -> None:
            await self._job(body)

        self._task = self._broker.task("job")(job)
        self._runner.run(self._broker.startup())  # makes the group: what is put earlier, it never sees
        self._kept.callback(lambda: self._runner.run(self._broker.shutdown()))

    async def _send(self, bodies: Iterable[Body], delay: float, urgent: bool) -> None:
        for body in bodies:
            if delay:
                due = datetime.now(UTC) + timedelta(seconds=delay)
                await self._task.schedule_by_time(self._source, due, body)
            else:
                await self._task.kiq(body)

    def work(self) -> None:
        self._runner.run(self._work())

    async def _work(self) -> None:
        api = importlib.import_module("taskiq.api")
        hands = {"max_async_tasks": self._terms.hands} if self._terms.hands else {}
        scheduler = importlib.import_module("taskiq").TaskiqScheduler(self._broker, [self._source])
        second = timedelta(seconds=1)
        await asyncio.gather(
            api.run_receiver_task(self._broker, **hands),
            api.run_scheduler_task(scheduler, interval=second, loop_interval=second),
        )


class Streaq(Asynchronous):
    """16 tasks at once; a stream with a consumer group, a task acked and its result kept by a script."""

    def _open(self) -> None:
        options: dict[str, Any] = {}
        if self._terms.hands:
            options["concurrency"] = self._terms.hands
        if self._terms.lease:
            options["idle_timeout"] = self._terms.lease
        if self._terms.priorities:
            options["priorities"] = ["normal", "urgent"]  # from the lowest
        self._worker = importlib.import_module("streaq").Worker(self._url, **options)

        async def job(body: Any) -> None:
            await self._job(body)

        self._task = self._worker.task(name="job")(job)

    async def _send(self, bodies: Iterable[Body], delay: float, urgent: bool) -> None:
        options: dict[str, Any] = {"delay": timedelta(seconds=delay)} if delay else {}
        if self._terms.priorities:
            options["priority"] = "urgent" if urgent else "normal"
        async with self._worker:
            for body in bodies:
                task = self._task.enqueue(body)
                await (task.start(**options) if options else task)

    def send_many(self, bodies: Sequence[Body]) -> None:
        self._runner.run(self._many(bodies))

    async def _many(self, bodies: Sequence[Body]) -> None:
        async with self._worker:
            await self._worker.enqueue_many([self._task.enqueue(body) for body in bodies])

    def work(self) -> None:
        self._worker.run_sync()


class Arq(Asynchronous):
    """10 jobs at once; an idle worker looks twice a second."""

    def _open(self) -> None:
        connections = importlib.import_module("arq.connections")
        self._settings = connections.RedisSettings.from_dsn(self._url)
        self._pool = self._runner.run(connections.create_pool(self._settings))
        self._kept.callback(lambda: self._runner.run(self._pool.aclose()))

    async def _send(self, bodies: Iterable[Body], delay: float, urgent: bool) -> None:
        options: dict[str, Any] = {"_defer_by": timedelta(seconds=delay)} if delay else {}
        for body in bodies:
            await self._pool.enqueue_job("job", body, **options)

    def work(self) -> None:
        async def job(context: Any, body: Body) -> None:
            await self._job(body)

        options: dict[str, Any] = {}
        if self._terms.hands:
            options["max_jobs"] = self._terms.hands
        if self._terms.lease:
            options["job_timeout"] = self._terms.lease
        worker = importlib.import_module("arq.worker")
        made = worker.func(job, name="job", keep_result=0)
        asyncio.set_event_loop(asyncio.new_event_loop())  # where its worker looks for one
        worker.Worker([made], redis_settings=self._settings, **options).run()


class Procrastinate(Asynchronous):
    """One job at once; rows of PostgreSQL, and LISTEN for who waits."""

    def _open(self) -> None:
        procrastinate = importlib.import_module("procrastinate")
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self._url))

        async def job(body: Any) -> None:
            await self._job(body)

        self._task = self._app.task(name="job", pass_context=False)(job)
        if self._terms.lease:
            self._look_for_stalled(self._terms.lease)
        self._runner.run(self._opened())
        self._kept.callback(lambda: self._runner.run(self._app.close_async()))

    async def _opened(self) -> None:
        await self._app.open_async()
        there = await self._app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS made"
        )
        if not there["made"]:
            await self._app.schema_manager.apply_schema_async()

    def _look_for_stalled(self, lease: float) -> None:
        """As its how-to has it: a periodic task that retries what dead workers left; here every 5 s."""

        async def retry_stalled(context: Any, timestamp: int) -> None:
            manager = self._app.job_manager
            for job in await manager.get_stalled_jobs(seconds_since_heartbeat=lease):
                await manager.retry_job(job)

        task = self._app.task(queueing_lock="stalled", pass_context=True, name="retry_stalled")(retry_stalled)
        self._app.periodic(cron="*/5 * * * * *")(task)

    async def _send(self, bodies: Iterable[Body], delay: float, urgent: bool) -> None:
        options: dict[str, Any] = {"schedule_in": {"seconds": delay}} if delay else {}
        if urgent:
            options["priority"] = 9
        for body in bodies:
            await self._task.configure(**options).defer_async(body=body)

    def send_many(self, bodies: Sequence[Body]) -> None:
        self._runner.run(self._task.batch_defer_async(*({"body": body} for body in bodies)))

    def work(self) -> None:
        options: dict[str, Any] = {"concurrency": self._terms.hands} if self._terms.hands else {}
        if self._terms.lease:
            options |= {"update_heartbeat_interval": self._terms.lease / 3}
            options |= {"stalled_worker_timeout": self._terms.lease}
        self._runner.run(self._app.run_worker_async(delete_jobs="successful", **options))
