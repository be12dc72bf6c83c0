"""A producer in a process of its own: `python -m tests.battle.producer DOOR URL SEED RATE LONGEST MOST`.

Sends at a steady rate until SIGTERM, or until it has sent MOST (0: no end); holds while there is a file
`hold`, which bounds what waits.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import postroom
from postroom.errors import PostroomError
from postroom.ids import new_id
from tests.battle.work import QUEUES, SERVICES, Bench, Job, job

#: So often something is sent (seconds); and what failed is sent again.
_TICK = 0.05
_AGAIN = 0.1


class Sender(Protocol):
    """Puts these jobs; calls `unsure` with the labels of what it has to send again."""

    def __call__(self, jobs: Sequence[Job], unsure: Callable[[Sequence[Job]], None]) -> None: ...


def native(url: str) -> Sender:
    """By the Python door, in one call a queue. What is repeated has the same ids, and they are remembered."""
    room = postroom.open(url)

    def send(jobs: Sequence[Job], unsure: Callable[[Sequence[Job]], None]) -> None:
        for name, grouped in itertools.groupby(
            sorted(jobs, key=lambda job: job.queue), lambda job: job.queue
        ):
            part, queue = list(grouped), room.queue(name)
            ids = [new_id() for _ in part]
            while True:
                try:
                    messages = [
                        queue.message([job.label, job.seconds], id=id, delay=job.later, priority=job.priority)
                        for job, id in zip(part, ids, strict=True)
                    ]
                    queue.put_many(messages)
                    break
                except PostroomError:
                    unsure(part)

    return send


def celery(broker: str) -> Sender:
    """As users do it: kombu repeats a publish for ever; what fails nevertheless is sent again."""
    from tests.battle.app import work

    policy = {"max_retries": None, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5}

    def send(jobs: Sequence[Job], unsure: Callable[[Sequence[Job]], None]) -> None:
        for each in jobs:
            options = {"countdown": each.later} if each.later else {}
            while True:
                try:
                    work.apply_async(
                        (each.label, each.seconds), queue=each.queue, priority=each.priority,
                        retry=True, retry_policy=policy, **options,
                    )  # fmt: skip
                    break
                except Exception:
                    unsure([each])

    return send


def events(broker: str) -> Sender:
    """As events, some at a time, confirmed at the end; again as a whole when that could not be done."""
    from postroom.celery.events import events_app
    from tests.battle.service import event_of

    app = events_app("shop", broker_url=broker, unrouted="error")
    happened = {queue: app.event(event_of(queue))(_anything) for queue in QUEUES}

    def send(jobs: Sequence[Job], unsure: Callable[[Sequence[Job]], None]) -> None:
        while True:
            before = app.publisher.resent
            try:
                with app.publisher.window():
                    for each in jobs:
                        happened[each.queue](each.label, each.seconds, each.later)
            except PostroomError:
                unsure(jobs)
                continue
            if app.publisher.resent > before:
                unsure(jobs)
            return

    return send


def _anything(label: str, seconds: float, later: float) -> None:
    """An event that checks nothing."""


_DOORS = {"native": native, "celery": celery, "events": events}


class Producer:
    """`services`: each of them has a label of its own for a job, and may begin at once."""

    def __init__(
        self,
        send: Sender,
        bench: Bench,
        chance: random.Random,
        rate: float,
        longest: float,
        services: Sequence[str] = (),
        most: int = 0,
    ) -> None:
        self.stopping = threading.Event()
        self._send, self._bench, self._chance = send, bench, chance
        self._rate, self._longest, self._services, self._most = rate, longest, services, most
        self._hold = bench.folder / "hold"
        self._count = 0

    def run(self) -> None:
        owed, last = 0.0, time.monotonic()
        while not self._is_done and not self.stopping.wait(_TICK):
            now = time.monotonic()
            # What a fault has kept it from sending it does not send all at once afterwards.
            owed = min(owed + (now - last) * self._rate, self._rate)
            last = now
            if not self._hold.exists() and owed >= 1:
                self._produce(int(owed))
                owed -= int(owed)

    @property
    def _is_done(self) -> bool:
        return 0 < self._most <= self._count

    def _produce(self, count: int) -> None:
        count = min(count, self._most - self._count) if self._most else count
        jobs = [job(f"{self._count + n}", self._chance, self._longest) for n in range(count)]
        self._count += count
        now = time.monotonic()
        for each in jobs:
            for label in self._labels(each):
                self._bench.note("intend", label, now + (0.0 if self._services else each.later))
        self._send(jobs, self._unsure)
        self._note_all("accepted", jobs)

    def _unsure(self, jobs: Sequence[Job]) -> None:
        self._note_all("unsure", jobs)
        time.sleep(_AGAIN)

    def _note_all(self, word: str, jobs: Sequence[Job]) -> None:
        for each in jobs:
            for label in self._labels(each):
                self._bench.note(word, label)

    def _labels(self, job: Job) -> list[str]:
        return [f"{job.label}.{service}" for service in self._services] or [job.label]


def main(door: str, url: str, seed: str, rate: str, longest: str, most: str) -> None:
    services = SERVICES if door == "events" else ()
    chance = random.Random(int(seed))
    send, bench = _DOORS[door](url), Bench.here()
    producer = Producer(send, bench, chance, float(rate), float(longest), services, int(most))
    signal.signal(signal.SIGTERM, lambda *_: producer.stopping.set())
    producer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
