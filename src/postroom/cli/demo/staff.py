"""Those who work in the demo: three handlers, two workers, and a consumer that vanishes.

What a handler does follows from the message alone, so it does not matter who runs it, or where.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from postroom.cli.demo.ledger import VANISHED, Ledger, Taken
from postroom.delivery import Delivery
from postroom.policy import Policy
from postroom.queue import Queue
from postroom.room import Room
from postroom.worker import Worker

#: Starts that may fail before a message is a dead letter.
ATTEMPTS = 3
#: What fits into the queue of reports.
CAPACITY = 12
QUEUES = ("emails", "payments", "reports")


@dataclass(frozen=True, slots=True)
class Tempo:
    """How long things take, so that everything fits into `seconds`; all in seconds."""

    seconds: float

    @property
    def beat(self) -> float:
        """The time from one scene to the next, roughly."""
        return min(2.0, self.seconds / 20)

    @property
    def lease(self) -> float:
        return min(3.0, max(0.8, 3 * self.beat))

    @property
    def backoff(self) -> float:
        """The wait after the first failure; it doubles with each further one."""
        return 0.4 * self.beat

    def policies(self) -> dict[str, Policy]:
        """What each queue promises; no jitter, so that the ledger can tell when a retry is early."""
        backoff = f"2^n * {round(self.backoff * 1_000)}ms"
        return {
            "emails": Policy(max_attempts=ATTEMPTS, backoff=backoff, jitter=False),
            # Without an ack_timeout it is the lease alone that says when a silent consumer is dead.
            "payments": Policy(
                max_attempts=ATTEMPTS, backoff=backoff, jitter=False, lease=self.lease, ack_timeout=None
            ),
            # One report at a time, whoever works on it: only so is the order of urgency exact.
            "reports": Policy(max_in_flight=1, capacity=CAPACITY),
        }


def workers(room: Room, ledger: Ledger, tempo: Tempo) -> list[Worker]:
    """Two workers for all queues, not started yet."""
    return [_worker(room, ledger, tempo, f"worker {number}") for number in (1, 2)]


def _worker(room: Room, ledger: Ledger, tempo: Tempo, name: str) -> Worker:
    work = {"emails": _send, "payments": _charge, "reports": _print_report}

    def noted(handler: Callable[[Any, int, Tempo], None]) -> Callable[[Delivery], None]:
        def handle(delivery: Delivery) -> None:
            run = ledger.begin(delivery.body["job"], name, delivery.attempt)
            try:
                handler(delivery.body, delivery.attempt, tempo)
            except Exception as error:
                ledger.end(run, f"{type(error).__name__}: {error}", _retry_in(delivery.attempt, tempo))
                raise
            ledger.end(run)

        return handle

    handlers = {queue: noted(handler) for queue, handler in work.items()}
    return Worker(room, handlers, concurrency=2, name=name, stop_timeout="3s")


def _retry_in(attempt: int, tempo: Tempo) -> float | None:
    return None if attempt + 1 >= ATTEMPTS else tempo.backoff * 2**attempt


def _send(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.01)
    if "@" not in body["to"]:
        raise ValueError(f"{body['to']!r} is not an address")
    if attempt < body["fails"]:
        raise ConnectionError("the mail server is busy")


def _charge(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.02)


def _print_report(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.05 * tempo.beat)


class Vanishing(threading.Thread):
    """A consumer that claims payments, does one of them, and ends without a word to anybody.

    What it had in its hands is in the ledger; the engine learns of its end by the lease alone.
    """

    def __init__(self, queue: Queue, ledger: Ledger, count: int, stop: threading.Event) -> None:
        super().__init__(name=VANISHED, daemon=True)
        self._queue = queue
        self._ledger = ledger
        self._count = count
        self._stop_asked = stop

    def run(self) -> None:
        asked, held = self._claim()
        self._ledger.taken = [Taken(delivery.body["job"], asked) for delivery in held]
        for delivery in held[:1]:
            # Charged, but the word that it is done never leaves this thread.
            run = self._ledger.begin(delivery.body["job"], VANISHED, delivery.attempt)
            self._ledger.end(run)
        self._ledger.vanished_at = time.time()

    def _claim(self) -> tuple[float, list[Delivery]]:
        """As many as wanted from one claim, so that one lease counts for all; fewer are handed back."""
        while not self._stop_asked.is_set():
            asked = time.time()
            held = self._queue.claim_many(self._count, timeout=0.05)
            if len(held) == self._count:
                return asked, held
            for delivery in held:
                delivery.release()
        return time.time(), []
