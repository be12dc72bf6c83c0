"""Postroom by its Python door."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import postroom
from bench.systems.system import Body, System
from postroom import Delivery, Policy, Worker


class Postroom(System):
    """A lease and a fencing token for each; settles and claims in batches."""

    def _open(self) -> None:
        self._room = self._kept.enter_context(postroom.open(self._url))
        self._queue = self._room.queue("bench")
        if self._terms.lease:
            self._queue.declare(Policy(lease=self._terms.lease))

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        put = self._queue.put
        if not delay and not urgent:
            for body in bodies:
                put(body)
            return
        for body in bodies:
            put(body, delay=delay, priority=9 if urgent else 5)

    def send_many(self, bodies: Sequence[Body]) -> None:
        self._queue.put_many(bodies)

    def work(self) -> None:
        def handler(delivery: Delivery) -> None:
            self._run(delivery.body)

        options: dict[str, Any] = {"concurrency": self._terms.hands} if self._terms.hands else {}
        Worker(self._room, {"bench": handler}, **options).run()
