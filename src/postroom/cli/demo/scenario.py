"""The story: who puts what, what goes wrong when, until everything is done or the time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

from postroom.cli.demo.celery_story import CeleryStory
from postroom.cli.demo.ledger import Buried, Job, Ledger, Refusal, Repeat
from postroom.cli.demo.processes import Company
from postroom.cli.demo.tempo import CAPACITY, LEASE, ORDERS, QUEUES, Tempo
from postroom.content import decode
from postroom.errors import QueueFull
from postroom.model import Entry, State
from postroom.room import Room

_ADDRESS = "customer@example.org"
#: The pause between two messages of the everyday flow (seconds).
_FLOW = 0.12
#: This long before the end nobody is waited for who does nothing any more (seconds) …
_RESERVE = 0.3
#: … and who still works, as on a slow machine, only so much longer.
_OVERTIME = 25.0
_KEY = "balance-of-today"
#: More at once than two workers reach for, so that some are left for a third.
_RUSH = 30


class Scenario:
    """Plays all scenes on an open room whose workers run. `stop` ends it early."""

    def __init__(
        self,
        room: Room,
        company: Company,
        ledger: Ledger,
        tempo: Tempo,
        began: float,
        tell: Callable[[str], None],
        celery: CeleryStory | None = None,
    ) -> None:
        self.stop: threading.Event = threading.Event()
        self._room = room
        self._company = company
        self._ledger = ledger
        self._tempo = tempo
        self._began = began
        self._tell = tell
        self._celery = celery
        self._emails, self._payments, self._reports = (room.queue(name) for name in QUEUES)
        self._urgency = cycle(("normal", "high", "low", "normal"))

    def run(self) -> None:
        """Play; that of Celery beside the others, each to its end."""
        if self._celery is None:
            self._tell("Celery is not installed, so its part is left out: pip install 'postroom[celery]'")
            self._play(lambda: True)
            return
        self._celery.over = lambda: self._over
        with ThreadPoolExecutor(1, "celery-story") as thread:
            beside = thread.submit(self._celery.run)
            self._play(beside.done)
            beside.result()

    def _play(self, is_complete: Callable[[], bool]) -> None:
        scenes = (
            (1.2, self._repeat),
            (2.4, self._fill),
            (3.6, self._delay),
            (4.8, self._kill),
            (6.2, self._fail),
            (7.4, self._poison),
            (10.5, self._resume),
            (12.5, self._repair_and_replay),
        )
        self._pause()
        # Processes take their time to start, and only who is awake can run anything too early.
        self._flow_while(lambda: not self._company.is_ready())
        ready = self._elapsed
        for beat, scene in scenes:
            self._flow_until(ready + beat * self._tempo.beat)
            if self.stop.is_set():
                return
            scene()
        self._flow_until(self._tempo.seconds - min(3.5, 6 * self._tempo.beat))
        self._drain(is_complete)

    # --- putting ----------------------------------------------------------------------------

    def _put(self, queue: str, what: str, priority: str = "normal", **options: Any) -> Job:
        return self._put_many(1, queue, what, priority, **options)[0]

    def _put_many(
        self,
        count: int,
        queue: str,
        what: str,
        priority: str = "normal",
        *,
        delay: float = 0,
        unique_key: str | None = None,
        to: str = _ADDRESS,
        fails: int = 0,
    ) -> list[Job]:
        """Put messages in one call; only what the queue has accepted is in the ledger."""
        numbers = [self._ledger.number() for _ in range(count)]
        bodies = [_body(number, what, to, fails) for number in numbers]
        due = time.time() + delay
        puts = self._room.queue(queue).put_many(
            bodies, kind=what, priority=priority, delay=delay, unique_key=unique_key
        )
        return [
            self._ledger.accept(
                Job(number, f"{what} {number}", queue, put.id, priority, due, delay > 0, fails)
            )
            for number, put in zip(numbers, puts, strict=True)
        ]

    def _flow_until(self, at: float) -> None:
        """Everyday messages until so many seconds after the beginning."""
        self._flow_while(lambda: self._elapsed < at)

    def _flow_while(self, so: Callable[[], bool]) -> None:
        """Everyday messages of mixed urgency."""
        count = 0
        while so() and not self._over and not self.stop.wait(_FLOW):
            count += 1
            self._put("emails", "email", next(self._urgency))
            if count % 3 == 0:
                self._put("payments", "payment", next(self._urgency))
            if count % 8 == 0:
                self._put("emails", "reminder", delay=0.8 * self._tempo.beat)

    @property
    def _elapsed(self) -> float:
        return time.time() - self._began

    @property
    def _over(self) -> bool:
        """Whether it was stopped, or the time is over."""
        late = self._elapsed - self._tempo.seconds
        if self.stop.is_set() or late >= _OVERTIME:
            return True
        return late >= -_RESERVE and self._company.is_quiet(LEASE + 2)

    # --- scenes -----------------------------------------------------------------------------

    def _pause(self) -> None:
        self._tell("the printer is out of paper: nine reports, urgent or not, must wait")
        self._reports.pause("out of paper")
        self._ledger.paused_at = time.time()
        for priority in ("low", "normal", "high") * 3:
            self._wait_in_line("report", priority)

    def _wait_in_line(self, what: str, priority: str, **options: Any) -> Job:
        job = self._put("reports", what, priority, **options)
        self._ledger.together.append(job.number)
        return job

    def _repeat(self) -> None:
        first = self._wait_in_line("balance", "normal", unique_key=_KEY)
        for _ in range(2):
            number = self._ledger.number()
            put = self._reports.put(_body(number, "balance"), unique_key=_KEY)
            self._ledger.repeats.append(Repeat(first, number, put.id, put.created))
        self._tell(f"{first.name} is put three times with one unique key: still one message")

    def _fill(self) -> None:
        while len(self._ledger.together) < CAPACITY:
            self._wait_in_line("report", "low")
        number, error = self._ledger.number(), ""
        try:
            self._reports.put(_body(number, "report"))
        except QueueFull as refused:
            error = str(refused)
        self._ledger.refusal = Refusal(number, len(self._ledger.together), error)
        self._tell(f"one report too many: {'QueueFull, nothing was put' if error else 'accepted'}")

    def _delay(self) -> None:
        delays = [share * self._tempo.beat for share in (0.5, 1, 1.5, 2, 3, 4, 4.5)]
        self._tell(f"{len(delays)} reminders are for later: {delays[0]:.1f} to {delays[-1]:.1f} s from now")
        for delay in delays:
            self._put("emails", "reminder", "high", delay=delay)

    def _fail(self) -> None:
        self._tell("four invoices meet a busy mail server: each fails once or twice")
        for fails in (1, 1, 2, 2):
            self._put("emails", "invoice", fails=fails)

    def _poison(self) -> None:
        job = self._put("emails", "newsletter", "high", to="nobody")
        self._ledger.poison = job.number
        self._tell(f"{job.name} is poison: it can never be sent")

    def _kill(self) -> None:
        """Payments come in until a third process has some in its hands; then it is killed."""
        consumer = self._company.consumer
        consumer.cue()
        while not consumer.has_done.is_set():
            if self._over:
                return
            if self._payments.stats().ready < _RUSH:
                self._put_many(_RUSH, "payments", "payment")
            consumer.has_done.wait(0.2)
        pid = self._company.kill_consumer()
        numbers = ", ".join(str(taken.number) for taken in self._ledger.taken)
        self._tell(f"kill -9 {pid}: a third process had payments {numbers} in hand")

    def _resume(self) -> None:
        self._tell("the paper is here: reports come out, the urgent ones first")
        self._ledger.resumed_at = time.time()
        self._reports.resume()

    def _repair_and_replay(self) -> None:
        entry = self._dead_poison()
        if entry is None or entry.failure is None:
            return
        body = decode(entry.message)
        self._ledger.buried = Buried(body["job"], entry.failure.summary, len(entry.attempts))
        self._tell(f"{body['name']} died of {entry.failure.summary}; repaired and replayed")
        self._ledger.replayed_at = time.time()
        self._emails.replay(entry.message.id, body=body | {"to": _ADDRESS})

    def _dead_poison(self) -> Entry | None:
        """The poison as a dead letter; None if the time was over before."""
        poison = self._ledger.jobs[self._ledger.poison or 0]
        while not self._over:
            dead = self._emails.find(State.DEAD).entries
            if entry := next((entry for entry in dead if entry.message.id == poison.id), None):
                return entry
            self.stop.wait(_FLOW)
        return None

    def _drain(self, is_complete: Callable[[], bool]) -> None:
        """No more puts here: wait until everything is done, or the time is over."""
        self._tell("no more messages: the workers finish what is left")
        while not self._over and not self.stop.wait(0.05):
            if is_complete() and self._ledger.complete() and not self._waiting():
                self._tell("everything is done")
                return

    def _waiting(self) -> int:
        stats = [self._room.queue(name).stats() for name in QUEUES]
        return sum(queue.depth + queue.processing for queue in stats)


def _body(number: int, what: str, to: str = _ADDRESS, fails: int = 0) -> dict[str, Any]:
    return {"job": number, "name": f"{what} {number}", "to": to, "fails": fails}


def survey(room: Room, queues: Sequence[str]) -> list[tuple[int, State]]:
    """The number and state of everything that the room still holds."""
    found: list[tuple[int, State]] = []
    for name in queues:
        for state in (State.READY, State.SCHEDULED, State.PROCESSING, State.DEAD):
            found += [(_number(entry), state) for entry in room.queue(name).find_all(state)]
    return found


def _number(entry: Entry) -> int:
    body = decode(entry.message)
    # Celery's body is a list: arguments, keyword arguments, and what comes after the task.
    number: int = body[0][0] if entry.message.queue == ORDERS else body["job"]
    return number
