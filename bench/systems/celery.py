"""Celery, on Postroom and on kombu's own transport for Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from bench.systems.system import Body, System


class _Celery(System):
    """Late acks; tasks on threads."""

    _whose: ClassVar[str]
    _urgent: ClassVar[int]
    _normal: ClassVar[int]

    def _open(self) -> None:
        from bench.celery.app import opened

        self._app: Any = self._kept.enter_context(opened(self._whose, self._url))
        transport: dict[str, Any] = dict(self._transport())
        if self._terms.lease:
            transport["visibility_timeout"] = self._terms.lease
        self._app.conf.update(
            task_reject_on_worker_lost=True,
            broker_transport_options=transport,
            worker_cancel_long_running_tasks_on_connection_loss=False,
        )

        def job(body: Body) -> None:
            self._run(body)

        self._job: Any = self._app.task(job, name="bench.job")

    def _transport(self) -> dict[str, Any]:
        return {}

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        options: dict[str, Any] = {"countdown": delay} if delay else {}
        if self._terms.priorities:
            options["priority"] = self._urgent if urgent else self._normal
        for body in bodies:
            self._job.apply_async((body,), **options)

    def send_many(self, bodies: Sequence[Body]) -> None:
        from celery import group

        group(self._job.s(body) for body in bodies).apply_async()

    def work(self) -> None:
        hands = ("--concurrency", str(self._terms.hands)) if self._terms.hands else ()
        self._app.worker_main(["worker", "--loglevel", "ERROR", "--pool", "threads", *hands])


class Stock(_Celery):
    """LPUSH and BRPOP; what is taken is kept in a hash, and put back when it is too old."""

    _whose = "stock"
    _urgent, _normal = 0, 5

    def _transport(self) -> dict[str, Any]:
        # As Celery's documentation says for priorities with Redis; a queue then is a list for each.
        if not self._terms.priorities:
            return {}
        return {"priority_steps": list(range(10)), "queue_order_strategy": "priority"}


class OnPostroom(_Celery):
    """`postroom+redis://`."""

    _whose = "Postroom"
    _urgent, _normal = 9, 5

    def send_many(self, bodies: Sequence[Body]) -> None:
        from postroom.celery import publish_group

        for done in range(0, len(bodies), 1_000):
            publish_group([self._job.s(body) for body in bodies[done : done + 1_000]], app=self._app)
