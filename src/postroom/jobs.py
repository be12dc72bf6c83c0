"""Work on many dead letters that outlives whoever asked for it: a record says what to do and how far it is.

Any process with a `Runner` does it; one at a time does one job, by a lock with a time to live. When that one
dies or the store is away for a while, another (or the same) goes on where it was: before each step the record
says which letters are in hand, so that nothing is done or counted twice. Letters that died after the job was
made are not meant. The archive of a service of events is worked on by a runner that was given that service:
no other job waits for a broker that is away.

`pause` has a job rest after the step that it is in, for as long as it takes; `resume` has it go on there.

A job may begin later: until then `cancel` takes it back whole. So a discard can be undone for a while,
whatever becomes of the browser that asked for it: the letters stay where they are until its time.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from postroom import audit
from postroom.deadletters import Cancelled, DeadLetters, Filter, Place, Result
from postroom.duration import Duration, milliseconds
from postroom.errors import Closed, Conflict, EngineUnavailable, InvalidInput, NotFound, PostroomError
from postroom.ids import new_id
from postroom.keeper import Lead
from postroom.limits import MAX_BATCH, check_between, check_limit
from postroom.room import Room
from postroom.services import EventService

log: logging.Logger = logging.getLogger(__name__)

KIND = "job"
#: A job is forgotten after this long (ms).
_KEPT = 30 * 86_400_000
#: No job waits longer for its beginning (ms).
_LONGEST_WAIT = 7 * 86_400_000
#: Whoever does a job and is silent for this long is taken for dead (ms).
_TTL = 15_000
#: How often it is looked for jobs, and a slow step tells how far it is and whether it is cancelled (seconds).
_LOOK, _CHECK = 1.0, 0.5
#: How often a change is tried while others change the same record.
_TRIES = 20


class JobState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


_OPEN = frozenset({JobState.WAITING, JobState.RUNNING, JobState.PAUSED})


class _Paused(Cancelled):
    """It rests, and goes on from its place."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work: what is meant, who asked for it, how far it is and what came of it.

    `done` and `scanned` are at most one step (200 letters) behind, and right in the end, whatever happened
    on the way. `until` is when it was made: letters that died later are not meant. Nothing is done before
    `begins` (epoch ms).
    """

    id: str
    action: Literal["replay", "discard"]
    name: str | None
    until: int
    by: str
    #: Why, as who asked for it said: what it does stands in the audit with that.
    why: str = ""
    #: Whose archive is meant; None: the letters of the room.
    service: str | None = None
    filter: dict[str, Any] | None = None
    ids: list[str] | None = None
    options: dict[str, Any] = {}
    state: JobState = JobState.WAITING
    scanned: int = 0
    done: int = 0
    total: int = 0
    #: What somebody wants of it; it notices that between two steps.
    cancel: bool = False
    pause: bool = False
    begins: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    #: Why it ended early, or why it waits.
    reason: str = ""
    result: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN


class _Kept(Job, frozen=True, kw_only=True):
    """A job as it is kept: with the step that it is in, which is of no interest to who looks at it."""

    place: Place | None = None


_decode = msgspec.json.Decoder(Job).decode
_decode_kept = msgspec.json.Decoder(_Kept).decode


class Jobs:
    """The jobs of a room: made and looked at by everybody."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._records = room.engine.records

    def make(
        self,
        action: Literal["replay", "discard"],
        name: str | None,
        chosen: Filter | list[str],
        *,
        service: str | None = None,
        after: Duration | None = None,
        **options: Any,
    ) -> Job:
        """Note what is to be done; a runner begins soon, or `after` a while of at most a week.

        Raises NotFound for a name that means nothing. With a `service` the name is only shown.
        """
        wait = 0 if after is None else milliseconds(after, "after")
        check_between("after", wait, 0, _LONGEST_WAIT)
        if not isinstance(chosen, Filter) and not 1 <= len(chosen) <= MAX_BATCH:
            raise InvalidInput(f"ids: from 1 to {MAX_BATCH:,}; choose more by a filter")
        if service is None:
            DeadLetters(self._room, name).queues  # noqa: B018 — raises NotFound for a name that means nothing
        now = self._room.engine.now()
        job = Job(
            id=new_id(),
            action=action,
            name=name,
            until=now,
            begins=now + wait if wait else 0,
            by=audit.actor(),
            why=audit.why(),
            service=service,
            filter=chosen.as_dict() if isinstance(chosen, Filter) else None,
            ids=None if isinstance(chosen, Filter) else list(chosen),
            options={key: value for key, value in options.items() if value is not None},
        )
        self._records.put(KIND, job.id, msgspec.json.encode(job), ttl=_KEPT, expect=0)
        return job

    def get(self, id: str) -> Job:
        if record := self._records.get(KIND, id):
            return _decode(record.value)
        raise NotFound(f"there is no job {id}")

    def list(self, after: str = "", limit: int = 100) -> list[Job]:
        """Jobs in the order in which they were made, beginning behind one."""
        check_limit(limit)
        return [_decode(record.value) for record in self._records.list(KIND, after=after, limit=limit)]

    def open(self) -> Iterator[Job]:
        """Those that have not ended."""
        after = ""
        while found := self.list(after, MAX_BATCH):
            yield from (job for job in found if job.is_open)
            after = found[-1].id

    def cancel(self, id: str) -> Job:
        """End it after the step that it is in; what was done stays done. Raises Conflict if it has ended."""
        return self._tell(id, "cancel_job", cancel=True)

    def pause(self, id: str) -> Job:
        """Have it rest after the step that it is in, until `resume`. Raises Conflict if it has ended."""
        return self._tell(id, "pause_job", pause=True)

    def resume(self, id: str) -> Job:
        """Have it go on where it rests. Raises Conflict if it has ended."""
        return self._tell(id, "resume_job", pause=False)

    def _tell(self, id: str, event: str, **wanted: bool) -> Job:
        job = self.change(id, lambda job: msgspec.structs.replace(_still_open(job), **wanted))
        audit.note(self._room.engine, event, job.name or "", 1, job=id)
        return self.get(id)

    def change(self, id: str, change: Callable[[_Kept], _Kept]) -> _Kept:
        for _ in range(_TRIES):
            record = self._records.get(KIND, id)
            if record is None:
                raise NotFound(f"there is no job {id}")
            job = change(_decode_kept(record.value))
            value = msgspec.json.encode(job)
            if self._records.put(KIND, id, value, ttl=_KEPT, expect=record.version) is not None:
                return job
        raise Conflict(f"job {id}: others change it all the time; try again")


class Runner:
    """Does the jobs of a room in a thread, one after the other, until `stop`; or those of some services."""

    def __init__(self, room: Room, services: Mapping[str, EventService] | None = None) -> None:
        self._room = room
        self._services = services
        self._jobs = Jobs(room)
        self._stop = threading.Event()
        self._poked = threading.Event()
        self._checked = 0.0
        #: What came of the running job so far.
        self._result: Result | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="postroom-jobs", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """There is a new one."""
        self._poked.set()

    def stop(self, patience: float | None = None) -> None:
        """End after the present step; another runner, or the next one here, goes on with the job.

        Who does not wait for that, or only so long (seconds), leaves a step that ends as by a crash.
        """
        self._stop.set()
        self._poked.set()
        if self._thread:
            self._thread.join(patience)

    def _run(self) -> None:
        told = ""
        while not self._stop.is_set():
            self._poked.clear()
            try:
                self.tick()
                told = ""
            except Closed:
                return
            except Exception as error:  # whatever an engine raises, the next look may succeed
                if str(error) != told:  # an outage is told once, not with every look
                    told = str(error)
                    log.warning("jobs wait: %s", told, extra={"event": "jobs.failed", "error": told})
            self._poked.wait(_LOOK)

    def tick(self) -> None:
        """Do every job that nobody does."""
        now = self._room.engine.now()
        for job in self._jobs.open():
            if (job.begins > now or job.pause) and not job.cancel:
                continue
            lead = Lead(self._room.engine, _TTL, f"job:{job.id}")
            if self._stop.is_set():
                return
            if self._is_mine(job) and lead.hold():
                try:
                    with _held(lead):
                        self._do(job.id)
                except EngineUnavailable as error:
                    if job.service is None:
                        raise
                    # Whoever looks at it is told why; the next one may be of another service.
                    self._set(job.id, state=JobState.WAITING, reason=str(error)[:1_000])
                finally:
                    lead.give_up()

    def _is_mine(self, job: Job) -> bool:
        """Also what is only to be ended, for a service that perhaps nobody has any more."""
        if self._services is None:
            return job.service is None or job.cancel
        return job.service in self._services

    def _do(self, id: str) -> None:
        now = self._room.engine.now()
        job = self._jobs.change(id, lambda job: _begun(job, now))
        if not job.is_open:
            return
        self._result = None
        if job.service is not None and job.cancel:  # its broker may be away
            self._end(job.id, JobState.CANCELLED, "cancelled")
            return
        try:
            with audit.acting(job.by), audit.watched(job.why):
                result = self._work(job)
        except _Paused:
            self._jobs.change(id, _rested)
        except Cancelled as why:
            if not self._stop.is_set():
                self._end(job.id, JobState.CANCELLED, str(why))
        except (Closed, EngineUnavailable):
            raise  # it goes on when the store is there again
        except Exception as error:
            if not isinstance(error, PostroomError):
                log.exception("a job failed", extra={"event": "jobs.failed", "job": job.id})
            self._end(job.id, JobState.FAILED, str(error) or type(error).__name__)
        else:
            state = JobState.STOPPED if result.stopped else JobState.DONE
            self._end(job.id, state, result.stopped)

    def _work(self, job: _Kept) -> Result:
        chosen: Filter | list[str] = job.ids or [] if job.filter is None else Filter(**job.filter)

        def on_step(place: Place) -> None:
            self._result = place.result
            self._tell(job.id, place=place, total=place.total)

        common: dict[str, Any] = {"until": job.until, "on_step": on_step, "place": job.place}
        with self._letters(job) as letters:
            if job.action == "discard":
                result = letters.discard(chosen, **common)
            else:
                result = letters.replay(chosen, check=lambda: self._check(job.id), **common, **job.options)
        self._result = result
        return result

    @contextlib.contextmanager
    def _letters(self, job: Job) -> Iterator[DeadLetters]:
        if job.service is None or self._services is None:
            yield DeadLetters(self._room, job.name)
            return
        with contextlib.ExitStack() as stack:
            try:
                letters = stack.enter_context(self._services[job.service].letters(self._room))
            except Conflict as error:  # somebody reads them: a job can wait
                raise EngineUnavailable(str(error)) from error
            yield letters

    def _check(self, id: str) -> None:
        """Between the portions of a slow step: how far is it, and does anybody want it to end?"""
        if self._stop.is_set() or time.monotonic() - self._checked > _CHECK:
            self._tell(id)

    def _tell(self, id: str, **fields: Any) -> None:
        self._checked = time.monotonic()
        job = self._set(id, **fields, **self._counts())
        if job.cancel:
            raise Cancelled("cancelled")
        if job.pause:
            raise _Paused("paused")
        if self._stop.is_set():
            raise Cancelled("interrupted: the server ends, and another goes on")

    def _counts(self) -> dict[str, int]:
        result = self._result
        return {"scanned": result.scanned, "done": result.done} if result else {}

    def _end(self, id: str, state: JobState, reason: str = "") -> None:
        told: dict[str, Any] = self._counts()
        if self._result:
            told["result"] = self._result.as_dict()
        now = self._room.engine.now()
        self._set(id, state=state, reason=reason[:1_000], ended_at=now, place=None, **told)

    def _set(self, id: str, **fields: Any) -> _Kept:
        return self._jobs.change(id, lambda job: msgspec.structs.replace(job, **fields))


def _begun(job: _Kept, now: int) -> _Kept:
    """As it is while it runs; one that has ended meanwhile stays as it is."""
    if not job.is_open:
        return job
    return msgspec.structs.replace(job, state=JobState.RUNNING, reason="", started_at=job.started_at or now)


def _still_open(job: _Kept) -> _Kept:
    """The job, which can still be told something, or Conflict."""
    if not job.is_open:
        raise Conflict(f"job {job.id} has ended: {job.state}")
    return job


def _rested(job: _Kept) -> _Kept:
    """As it is between two runs; who resumed it meanwhile finds it waiting for its next."""
    return msgspec.structs.replace(job, state=JobState.PAUSED if job.pause else JobState.WAITING)


@contextlib.contextmanager
def _held(lead: Lead) -> Iterator[None]:
    """Renewed while the work goes on: a canary may keep it waiting for longer than the lock lives."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_TTL / 3_000):
            with contextlib.suppress(PostroomError):  # the work itself notices that the store is away
                lead.hold()

    thread = threading.Thread(target=renew, name="postroom-job-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
