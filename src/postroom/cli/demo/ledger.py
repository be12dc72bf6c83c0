"""What really happened, written down by those who did it: the evidence of every check.

The ledger does not ask the engine. Producers note what was accepted, handlers note every run, and
both by the number in a message's body, which no engine knows of.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from postroom.model import State

#: Who runs a job but is not a worker.
VANISHED = "consumer 3"


@dataclass(frozen=True, slots=True)
class Job:
    """One message that a queue accepted. `due` is when it was allowed to run (epoch seconds)."""

    number: int
    name: str
    queue: str
    id: str
    priority: str
    due: float
    delayed: bool = False
    #: How often its handler is going to fail before it succeeds.
    fails: int = 0


@dataclass(slots=True)
class Run:
    """One call of a handler. `not_before` is when the next run may begin, if this one failed."""

    number: int
    by: str
    attempt: int
    began: float
    ended: float | None = None
    error: str = ""
    not_before: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.ended is not None and not self.error


@dataclass(frozen=True, slots=True)
class Repeat:
    """A put with the unique key of a message that was still waiting, and what it was answered."""

    first: Job
    number: int
    id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """A put into a full queue; `error` is empty if it was not refused."""

    number: int
    waiting: int
    error: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A message in the hands of the consumer that vanished; `asked` is when it asked for one."""

    number: int
    asked: float


@dataclass(frozen=True, slots=True)
class Buried:
    """A dead letter as the room showed it."""

    number: int
    error: str
    attempts: int


@dataclass(slots=True)
class Ledger:
    """Thread-safe where threads meet (jobs and runs); the rest is written by the scenario alone."""

    jobs: dict[int, Job] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    #: The numbers that waited together in a paused queue, in the order in which they were put.
    together: list[int] = field(default_factory=list)
    paused_at: float | None = None
    resumed_at: float | None = None
    repeats: list[Repeat] = field(default_factory=list)
    refusal: Refusal | None = None
    poison: int | None = None
    buried: Buried | None = None
    replayed_at: float | None = None
    lease: float = 0.0
    taken: list[Taken] = field(default_factory=list)
    vanished_at: float | None = None
    #: What the room still held at the end, by number.
    left: list[tuple[int, State]] = field(default_factory=list)
    _by_number: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    _last: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def number(self) -> int:
        """A number for the next job."""
        with self._lock:
            self._last += 1
            return self._last

    def accept(self, job: Job) -> Job:
        with self._lock:
            self.jobs[job.number] = job
        return job

    def begin(self, number: int, by: str, attempt: int) -> Run:
        with self._lock:
            run = Run(number, by, attempt, time.time())
            self.runs.append(run)
            self._by_number[number].append(run)
        return run

    def end(self, run: Run, error: str = "", retry_in: float | None = None) -> None:
        """The run is over; a failed one that is to be repeated says after how long at the earliest."""
        now = time.time()
        run.error = error
        run.not_before = None if retry_in is None else now + retry_in
        run.ended = now

    # --- reading ----------------------------------------------------------------------------

    def job_of(self, id: str) -> Job | None:
        with self._lock:
            return next((job for job in self.jobs.values() if job.id == id), None)

    def handled(self) -> dict[int, int]:
        """How often each number was handled with success."""
        counts: dict[int, int] = defaultdict(int)
        for run in self.all_runs():
            counts[run.number] += run.succeeded
        return counts

    def runs_of(self, number: int) -> list[Run]:
        """The runs of one number, in the order in which they began."""
        with self._lock:
            return list(self._by_number.get(number, ()))

    def all_runs(self) -> list[Run]:
        """Every run so far, in the order in which they began."""
        with self._lock:
            return list(self.runs)

    def complete(self) -> bool:
        """Whether everything that was accepted so far has been handled."""
        handled = self.handled()
        with self._lock:
            return all(handled[number] for number in self.jobs)
