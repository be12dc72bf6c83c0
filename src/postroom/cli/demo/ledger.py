"""What really happened, written down by those who did it: the evidence of every check.

The ledger does not ask the engine. Producers note what was accepted, the processes that work report
every run (see `wire`), and both by the number in a message's body, which no engine knows of.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from postroom.model import State

#: Who runs a job but is not a worker: the process that is killed.
CONSUMER = "consumer 3"


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
    """A message in the hands of the process that is killed; `asked` is when it asked for one."""

    number: int
    asked: float


@dataclass(frozen=True, slots=True)
class Killed:
    """A Celery worker that was killed with this job in hand."""

    pid: int
    number: int
    at: float


@dataclass(slots=True)
class CeleryPart:
    """What concerns the Celery app; `played` only where Celery is installed."""

    played: bool = False
    #: The numbers that waited together before its worker began, in the order in which they were sent.
    together: list[int] = field(default_factory=list)
    killed: Killed | None = None


@dataclass(frozen=True, slots=True)
class Buried:
    """A dead letter as the room showed it."""

    number: int
    error: str
    attempts: int


@dataclass(slots=True)
class Ledger:
    """Thread-safe where threads meet (jobs and runs); everything else is written by one thread alone."""

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
    taken: list[Taken] = field(default_factory=list)
    #: The id of the process that was killed.
    killed: int | None = None
    celery: CeleryPart = field(default_factory=CeleryPart)
    #: How a process ended that should not have ended; empty as it should be.
    accident: str = ""
    #: Who ended without a word about what was in hand.
    crashed: set[str] = field(default_factory=lambda: {CONSUMER})
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

    def begin(self, number: int, by: str, attempt: int, at: float) -> Run:
        run = Run(number, by, attempt, at)
        with self._lock:
            self.runs.append(run)
            self._by_number[number].append(run)
        return run

    def end(self, run: Run, at: float, error: str = "", retry_in: float | None = None) -> None:
        """The run is over; a failed one that is to be repeated says after how long at the earliest."""
        run.error = error
        run.not_before = None if retry_in is None else at + retry_in
        run.ended = at

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
            return sorted(self._by_number.get(number, ()), key=_began)

    def all_runs(self) -> list[Run]:
        """Every run so far, in the order in which they began."""
        with self._lock:
            return sorted(self.runs, key=_began)

    def complete(self) -> bool:
        """Whether everything that was accepted so far has been handled."""
        handled = self.handled()
        with self._lock:
            return all(handled[number] for number in self.jobs)


def _began(run: Run) -> float:
    # Reports of two processes may arrive in another order than that in which they were written.
    return run.began
