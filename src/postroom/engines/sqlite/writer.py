"""Group commit: whoever holds the writer commits what queued up meanwhile.

A commit waits for the disk. While it does, other threads queue their steps; the next thread runs all
of them in one transaction, so that one wait serves many. Who is alone never waits for company; who was
not gives the others a moment to come back, or it would commit alone and they together, in turns.

Each thread sleeps at a gate of its own: it is woken when its step is over, or when it is its turn to commit
for those behind it. Who is over wakes another of the same transaction on its way out: woken all at once they
would only wait again, for Python's one lock, and each such wait costs as much as a put.

An interrupt (Ctrl-C, in the main thread) can come between any two instructions. So what became of a
transaction is never only in local variables: it is read off the connection, by the interrupted
thread if it still can, else by the next. A thread whose step was neither committed nor refused runs
it again itself, and sleeps at its gate for a bounded time only, in case nobody is left to open it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from postroom.engines.sqlite.faults import SQLITE_ERRORS, ours
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.folder import Stamp
from postroom.engines.sqlite.link import Link
from postroom.errors import StoreCorrupt

log: logging.Logger = logging.getLogger(__name__)


class Context(Protocol):
    """What the steps of one transaction share."""

    def committed(self) -> None:
        """After COMMIT, outside the transaction, in the committing thread."""


C = TypeVar("C", bound=Context)
T = TypeVar("T")

#: The most steps of one transaction: it holds up every other process.
_MAX_STEPS = 64

#: How long, in seconds, a thread sleeps at its gate before it looks by itself: only an interrupt needs it.
_NET = 0.05

#: How many of a transaction are on their way out at a time. To wake one takes longer than what it then does,
#: so two are woken ahead; more would only wait for Python's one lock.
_AHEAD = 2

#: Another process is in the way of who is alone.
_HELD = object()

#: How long, in seconds, who had company last time waits for it; about as long as a fast disk takes.
_COMPANY = 0.000_2


class _Transaction:
    """What became of a transaction, readable at any moment."""

    __slots__ = ("committing", "error", "jobs", "over")

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.committing = False
        #: Why all of it failed, for the steps that have no error of their own.
        self.error: Exception | None = None
        self.over = False


class _Job:
    """One step that a thread waits for."""

    __slots__ = ("_gate", "behind", "error", "result", "step", "transaction", "withdrawn")

    def __init__(self, step: Any) -> None:
        self.step = step  # called with the context
        self.result: Any = None
        self.error: Exception | None = None
        self.transaction: _Transaction | None = None
        self.withdrawn = False
        #: Who is to be woken when this one is over.
        self.behind: _Job | None = None
        self._gate = _closed_gate()

    @property
    def over(self) -> bool:
        return self.transaction is not None and self.transaction.over

    def run(self, context: Context) -> None:
        self.error = None
        self.result = self.step(context)

    def outcome(self) -> Any:
        assert self.transaction
        error = self.error or self.transaction.error
        if error is not None:
            raise error
        return self.result

    def sleep(self) -> None:
        self._gate.acquire(timeout=_NET)

    def wake(self) -> None:
        _unlock(self._gate)

    def wake_behind(self) -> None:
        behind, self.behind = self.behind, None
        if behind is not None:
            behind.wake()


def _closed_gate() -> threading.Lock:
    """A lock that one thread waits for and another opens: a fraction of what an Event costs."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def _unlock(gate: threading.Lock) -> None:
    try:
        gate.release()
    except RuntimeError:
        return  # it is open already


class Writer(Generic[C]):
    """Runs steps in transactions of the one writing connection of this process."""

    def __init__(self, file: File, context: Callable[[sqlite3.Connection], C]) -> None:
        self._file = file
        self._context = context
        self._link = Link(file)
        #: Only who holds the lock takes from the queue.
        self._queue: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._suspended = False
        self._transaction: _Transaction | None = None
        #: How many steps the last transaction had, and whether as many wait again.
        self._company = 1
        self._gathered = _closed_gate()

    def run(self, step: Callable[[C], T]) -> T:
        """Run the step, all or nothing; when this returns it is on disk.

        A step may be run in any thread, and more than once if the first run was undone; only the
        last run counts. It fetches all rows it asks for, and does not call `run`. Neighbours with the
        same `alike`, if a step has that, may be run by its `together`.
        """
        if self._company == 1 and not (self._queue or self._lock.locked()):
            result = self._run_lone(step)
            if result is not _HELD:
                lone: T = result
                return lone
        job = _Job(step)
        self._queue.append(job)
        if len(self._queue) >= self._company > 1:
            _unlock(self._gathered)
        try:
            while not job.over:
                if self._lock.locked():
                    job.sleep()
                else:
                    self._lead(job)
        except BaseException:
            job.withdrawn = True
            self._wake_next()
            raise
        finally:
            job.wake_behind()
        outcome: T = job.outcome()
        return outcome

    @property
    def stamp(self) -> Stamp | None:
        """That of the store's folder after the last commit, for who is told of it."""
        return self._link.stamp

    def close(self) -> None:
        """Later steps get Closed."""
        with self._lock:
            self._clear_up()
            self._link.close()
        self._wake_next()

    def suspend(self, timeout: float) -> bool:
        """Before a fork: steps wait until `resume`, and nothing is open. False if a commit took too long."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._clear_up()
        self._link.drop()
        self._suspended = True
        return True

    def resume(self) -> None:
        """After a fork, in the parent; only if `suspend` said True."""
        self._suspended = False
        self._lock.release()
        self._wake_next()

    def reset(self) -> None:
        """After a fork, in the child: the threads that held the lock or waited do not exist here."""
        self._link.leave(in_use=self._lock.locked() and not self._suspended)
        self._lock = threading.Lock()
        self._queue = deque()
        self._transaction = None
        self._company = 1
        self._gathered = _closed_gate()
        self._suspended = False

    def _lead(self, own: _Job) -> None:
        """Commit for everybody who waits, as soon as the lock is free."""
        # `with` a lock, and nothing else: no interrupt can come between taking it and giving it back.
        with self._lock:
            self._clear_up()
            if not own.over:
                self._commit(own)
            while self._queue and (self._queue[0].over or self._queue[0].withdrawn):
                self._queue.popleft()
        self._wake_next()

    def _run_lone(self, step: Callable[[C], T]) -> Any:
        """The same for who is alone, without what only company needs; _HELD, and nothing is done, if another
        process is in the way."""
        try:
            with self._lock:
                self._clear_up()
                return self._commit_lone(step)
        finally:
            self._wake_next()

    def _wake_next(self) -> None:
        if not self._queue:
            return
        try:
            first = self._queue[0]
        except IndexError:
            return  # nobody waits
        first.wake()

    # --- the lock is held in all of these ---------------------------------------------------

    def _commit_lone(self, step: Callable[[C], T]) -> Any:
        committing = False
        try:
            connection = self._link.open(checked=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return _HELD
            context = self._context(connection)
            result = step(context)
            committing = True
            connection.execute("COMMIT")
            self._link.check()
        except Exception as error:
            raise self._undone(error, committing)  # noqa: B904  # it has its cause already
        except BaseException:
            self._link.roll_back()
            raise
        _tell(context)
        return result

    def _commit(self, own: _Job) -> None:
        transaction = self._transaction = _Transaction()
        context = None
        try:
            context = self._attempt(transaction, own)
        except Exception as error:
            # First of all: without it _clear_up would take an interrupt from here on for a success.
            committing, transaction.committing = transaction.committing, False
            self._fail(transaction, own, error, committing)
        except BaseException:
            self._clear_up()
            raise
        self._transaction = None
        # They refer to the transaction too: a circle would be left to the garbage collector.
        jobs, transaction.jobs = transaction.jobs, []
        for job, behind in zip(jobs, jobs[_AHEAD:], strict=False):
            job.behind = behind
        for job in jobs[1:_AHEAD]:
            job.wake()
        if context is not None:
            _tell(context)

    def _attempt(self, transaction: _Transaction, own: _Job) -> C:
        if self._company > 1:
            self._gather()
        connection = self._link.open(checked=False)
        self._begin(connection)
        # Taken only now: who queued up while another process held the store comes along.
        transaction.jobs = self._take(transaction, own, _MAX_STEPS)
        self._company = len(transaction.jobs)
        context = self._context(connection)
        self._run(transaction.jobs, connection, context)
        transaction.committing = True
        connection.execute("COMMIT")
        self._link.check()
        transaction.over = True
        return context

    def _begin(self, connection: sqlite3.Connection) -> None:
        try:  # almost always at once
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            self._file.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))

    def _gather(self) -> None:
        """Those who came along last time are mostly back in a moment: a wait for the disk takes longer."""
        self._gathered.acquire(blocking=False)
        if len(self._queue) < self._company:
            self._gathered.acquire(timeout=_COMPANY)

    def _take(self, transaction: _Transaction, own: _Job, limit: int) -> list[_Job]:
        """The own step, which may have been lost from the queue by an interrupt, and those that wait."""
        own.transaction = transaction
        jobs = [own]
        while self._queue and len(jobs) < limit:
            job = self._queue.popleft()
            if not (job.over or job.withdrawn or job.transaction is transaction):
                job.transaction = transaction
                jobs.append(job)
        return jobs

    def _run(self, jobs: list[_Job], connection: sqlite3.Connection, context: C) -> None:
        if len(jobs) == 1:
            jobs[0].run(context)
            return
        for _, some in groupby(jobs, _likeness):
            alike = list(some)
            if len(alike) == 1 or not self._run_together(alike, connection, context):
                for job in alike:
                    self._run_alone(job, connection, context)

    def _run_alone(self, job: _Job, connection: sqlite3.Connection, context: C) -> None:
        connection.execute("SAVEPOINT step")
        try:
            job.run(context)
        except Exception as error:
            job.error = self._undo(error, connection)
        connection.execute("RELEASE step")

    def _run_together(self, alike: list[_Job], connection: sqlite3.Connection, context: C) -> bool:
        """Run these as one step. False, and nothing is done, if they have to be run alone: then also
        whoever would fail does so alone."""
        connection.execute("SAVEPOINT step")
        try:
            results = alike[0].step.together([job.step for job in alike], context)
        except Exception as error:
            self._undo(error, connection)
            results = None
        connection.execute("RELEASE step")
        if results is None:
            return False
        for job, result in zip(alike, results, strict=True):
            job.result, job.error = result, None
        return True

    def _undo(self, error: Exception, connection: sqlite3.Connection) -> Exception:
        """Undo the step that failed, and say why; if that is not possible, or not wise, all have failed."""
        instead = ours(error, self._file.path)
        if not connection.in_transaction or isinstance(instead, StoreCorrupt):
            raise error
        connection.execute("ROLLBACK TO step")
        return instead

    def _fail(self, transaction: _Transaction, own: _Job, error: Exception, committing: bool) -> None:
        """Nothing of it was committed, and everybody in it gets the error."""
        instead = self._undone(error, committing)
        # Who queued up while it could not even begin would only wait for the same again.
        transaction.jobs = transaction.jobs or self._take(transaction, own, len(self._queue) + 1)
        transaction.error = instead
        transaction.over = True

    def _undone(self, error: Exception, committing: bool) -> Exception:
        """Undo the transaction, and say what to raise for it."""
        self._link.roll_back()
        if committing and isinstance(error, SQLITE_ERRORS):
            # Perhaps a statement that was not read to its end: it would stop the next COMMIT as well.
            self._link.drop()
        return self._link.failed(error)

    def _clear_up(self) -> None:
        """Find out what became of a transaction that an interrupt broke off."""
        transaction = self._transaction
        if transaction is None or transaction.over:
            self._link.roll_back()  # of one who was alone, if there is any
            return
        if transaction.committing and not self._link.in_transaction():
            transaction.over = True
        else:
            self._link.roll_back()
            self._queue.extendleft(reversed(transaction.jobs))
            self._transaction = None
        for job in transaction.jobs:
            job.wake()


def _likeness(job: _Job) -> object:
    """The same for neighbours whose steps can be run together."""
    return getattr(job.step, "alike", job)


def _tell(context: Context) -> None:
    try:
        context.committed()
    except Exception:
        # It is on disk: whoever waits for it must not hear that it failed.
        log.exception("after a commit", extra={"event": "sqlite.after_commit_failed"})
