"""A producer in a process of its own: `python -m tests.chaos.producer URL LEDGER SEED`, until SIGTERM."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from postroom.errors import EngineBusy, EngineUnavailable, PartialPut, QueueFull, Uncertain
from postroom.ids import new_id
from postroom.model import NewMessage, Put
from postroom.queue import Queue
from tests.chaos.ledger import Ledger
from tests.chaos.load import KEYED, KEYS, QUEUES, body_of
from tests.chaos.outside import opened

T = TypeVar("T")

#: A put after which the store was full is followed by a pause (seconds).
_FULL = 0.05
#: A store that cannot be reached is asked again after so long (seconds).
_AWAY = 0.05


class Producer:
    """Puts one by one and in batches; whatever it is about to do is in the ledger first."""

    def __init__(self, queues: list[Queue], ledger: Ledger, chance: random.Random) -> None:
        self.stopping = threading.Event()
        self._queues = queues
        self._ledger = ledger
        self._chance = chance
        self._batches = 0

    def run(self) -> None:
        while not self.stopping.wait(self._chance.uniform(0, 0.02)):
            queue = self._chance.choice(self._queues)
            if self._chance.random() < 0.7:
                (message,) = messages = self._intend(queue, 1)
                self._put(messages, lambda: [queue.put(message)])  # noqa: B023 - called before the next round
            else:
                messages = self._intend(queue, self._chance.randrange(2, 30))
                self._put(messages, lambda: queue.put_many(messages))  # noqa: B023 - the same

    def _intend(self, queue: Queue, count: int) -> list[NewMessage]:
        self._batches += 1
        # A message is made as its queue demands, and to know that may take a question to the store.
        messages = self._insistently([], lambda: [self._message(queue) for _ in range(count)])
        now = time.monotonic()
        self._ledger.note_all(
            ("intend", message.id, self._batches, now + message.delay / 1_000, message.unique_key or "-")
            for message in messages
        )
        return messages

    def _message(self, queue: Queue) -> NewMessage:
        id, chance = new_id(), self._chance
        options: dict[str, Any] = {"id": id, "priority": chance.choice(["low", "normal", "normal", "high"])}
        if chance.random() < 0.15:
            options["delay"] = chance.uniform(0.05, 2.0)
        if chance.random() < KEYED:
            options["unique_key"] = f"key-{chance.randrange(KEYS)}"
        return queue.message(body_of(id, chance), **options)

    def _put(self, messages: list[NewMessage], call: Callable[[], list[Put]]) -> None:
        began = time.monotonic()
        try:
            puts = self._insistently(messages, call)
        except QueueFull:
            self._ledger.note_all(("refused", message.id) for message in messages)
            self.stopping.wait(_FULL)
            return
        span = f"{time.monotonic() - began:.6f}"
        self._ledger.note_all(map(_answer, messages, puts, [span] * len(puts)))

    def _insistently(self, messages: list[NewMessage], call: Callable[[], T]) -> T:
        """The call's result; whatever the store did not say is asked again, with the same ids."""
        while True:
            try:
                return call()
            except EngineBusy:  # then it has changed nothing
                self._ledger.note_all(("busy", message.id) for message in messages)
            except (EngineUnavailable, Uncertain, PartialPut):
                self._ledger.note_all(("unsure", message.id) for message in messages)
                time.sleep(_AWAY)


def _answer(message: NewMessage, put: Put, span: str) -> tuple[object, ...]:
    if put.created:
        return "accepted", put.id, span
    return ("merged", message.id, put.id) if put.id != message.id else ("repeated", put.id)


def main(url: str, path: str, seed: str) -> None:
    ledger = Ledger(path)
    with opened(url) as room:
        producer = Producer([room.queue(name) for name in QUEUES], ledger, random.Random(int(seed)))
        signal.signal(signal.SIGTERM, lambda *_: producer.stopping.set())
        ledger.note("ready")
        producer.run()
    ledger.note("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
