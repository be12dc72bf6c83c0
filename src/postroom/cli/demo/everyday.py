"""After the story: a worker and a trickle of messages, so that whoever looks around sees something move."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from postroom.cli.demo.tempo import QUEUES
from postroom.errors import QueueFull
from postroom.room import Room
from postroom.worker import Worker

#: The pause between two messages (seconds); of so many one fails at first, and of so many one for good.
_FLOW = 0.35
_SOME_FAIL, _FEW_DIE = 15, 150


class Everyday:
    """Work that goes on until it is over."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._chance = random.Random(7)

    def go_on(self, is_over: Callable[[], bool]) -> None:
        """Put and work until that says so."""
        worker = Worker(self._room, dict.fromkeys(QUEUES, self._handle), concurrency=4)
        worker.start()
        try:
            queues = cycle(("emails", "payments", "emails", "reports"))
            number = 0
            while not is_over():
                number += 1
                self._put(next(queues), number)
                time.sleep(_FLOW)
        finally:
            worker.stop()

    def _put(self, queue: str, number: int) -> None:
        body = {"number": number, "fails": number % _SOME_FAIL == 0, "dies": number % _FEW_DIE == 0}
        options: dict[str, Any] = {"priority": self._chance.choice(("low", "normal", "high"))}
        if number % 10 == 0:
            options["delay"] = self._chance.randrange(5, 60)
        try:
            self._room.queue(queue).put(body, kind=queue.removesuffix("s"), **options)
        except QueueFull:  # as it may be: the next one has more luck
            return

    def _handle(self, delivery: Any) -> None:
        time.sleep(self._chance.uniform(0.05, 0.6))
        if delivery.body["dies"]:
            raise ValueError("no such address")
        if delivery.body["fails"] and delivery.attempt == 0:
            raise ConnectionError("the mail server is busy")
