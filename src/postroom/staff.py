"""The staff: who works in a room. Every worker keeps a record of itself and removes it when it stops.

    for worker in room.workers():
        print(worker.name, worker.queues, f"{worker.busy} of {worker.concurrency}", worker.lost)

Told again every ten seconds, in one small write. A worker that was killed says nothing: it is `lost` after
three beats, and forgotten 15 minutes after its last. When that was is the engine's to say, as of every
record with a time to live, so a worker whose clock is wrong is not lost for it.

    room.tell_worker(worker.id, "quiet")

The record is also where a worker hears what it is told: the word is written into it, and the worker's next
beat, which expects the version that it wrote itself, finds it there. So hearing costs nothing while nobody
says anything, and a word is heard within ten seconds, or the next time the store answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, cast, get_args

import msgspec

from postroom import audit
from postroom.engine import Engine
from postroom.errors import Closed, Conflict, InvalidInput, NotFound, PostroomError
from postroom.ids import new_token
from postroom.limits import MAX_BATCH
from postroom.logs import Record
from postroom.version import __version__

log: logging.Logger = logging.getLogger(__name__)

#: The kind of the records; the key is the name, and a token because two may have the same name.
KIND = "worker"
#: A worker shows itself this often, is lost when it was not seen for so long, and forgotten later (ms).
#: The last is part of what is stored: when a worker was seen follows from when its record ends.
BEAT, LOST, KEPT = 10_000, 30_000, 900_000
#: Of what a worker holds and consumes, so much is told: a record stays small.
MOST_IDS, MOST_QUEUES, MOST_TOPICS = 20, 100, 100
_LONGEST_NAME = 200
_MEMORY = Path("/proc/self/statm")
#: A word and a beat may cross; then the word is written once more, so many times.
_TRIES = 5

#: What a worker can be told: to claim no more, to claim again, and to end as by SIGTERM.
Word = Literal["quiet", "resume", "stop"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that has run: for how long, how it ended (`ack`, `retry`, `release`, `bury`), and how long
    that was ago when its worker told it. Spans, in ms: so no worker's clock is asked."""

    queue: str
    id: str
    kind: str
    ran: int
    ago: int
    verb: str


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it showed itself last. Times are epoch milliseconds by the engine's clock.

    id           which one it is, where several have the same name
    state        `working`; `quiet`: claims no more; `stopping`: ends when what it works on is done
    told         what it was told and has not heard yet: `quiet`, `resume` or `stop`
    hears        whether it can be told anything: one of an older release cannot
    door         who runs it: `python` or `celery`
    role         its role in the matrix, if it has one
    queues       what it consumes (the first 100)
    concurrency  how many messages it works on at once, and `busy` on how many it did
    in_flight    how many it held, begun or not, and the `ids` of the oldest 20
    memory       what its process has in memory (bytes); 0: this system does not say
    last_error   what its last failed handler said, where the worker knows
    breakers     the breaker of each queue that has one: while it is open, nothing is claimed from there
    runs         what it has done within five minutes and took a while: the newest 60, oldest first
    reads        the topics that it reads, each with the cursor of how far it is (the first 100)
    versions     of postroom, python and, where that runs it, celery
    last_seen    its last beat; `lost`: that is more than three beats ago
    """

    name: str
    id: str = ""
    state: str = "working"
    told: str = ""
    hears: bool = False
    host: str = ""
    pid: int = 0
    door: str = "python"
    role: str = ""
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    busy: int = 0
    in_flight: int = 0
    ids: tuple[str, ...] = ()
    started: int = 0
    memory: int = 0
    last_error: str = ""
    breakers: dict[str, str] = {}
    runs: tuple[Run, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()
    last_seen: int = 0
    lost: bool = False
    versions: dict[str, str] = {}


def read_workers(engine: Engine, limit: int = MAX_BATCH) -> list[WorkerInfo]:
    """Who works here, by name, and who did until it was lost."""
    now = engine.now()
    return [_seen(record, now) for record in engine.records.list(KIND, limit=limit)]


def guarded(engine: Engine) -> dict[str, list[str]]:
    """The queues that wait while a breaker is open, by its name: as the workers tell that are here."""
    found: dict[str, set[str]] = {}
    for worker in read_workers(engine):
        for queue, name in worker.breakers.items():
            found.setdefault(name, set()).add(queue)
    return {name: sorted(queues) for name, queues in found.items()}


def _seen(record: Record, now: int) -> WorkerInfo:
    name, _, id = record.key.rpartition(" ")
    try:
        info = msgspec.json.decode(record.value, type=WorkerInfo)
    except msgspec.DecodeError:  # written by a newer release: at least it is there
        info = WorkerInfo(name=name)
    last_seen = (record.expires or now) - KEPT
    return msgspec.structs.replace(info, id=id, last_seen=last_seen, lost=now - last_seen > LOST)


# --- telling ------------------------------------------------------------------------------------


def tell(engine: Engine, who: str, word: Word, reason: str = "") -> WorkerInfo:
    """Tell one worker, by its id or by a name that only it has, to be quiet, to resume or to stop.

    It hears that with its next beat, within ten seconds; a later word replaces one that is not heard yet.
    Raises NotFound when nobody of that name is here, and Conflict when the worker cannot hear it: several
    have the name, it is lost, it runs an older release, or it stops already.
    """
    if word not in get_args(Word):
        raise InvalidInput(f"a worker can be told {', '.join(get_args(Word))}, not {word!r:.80}")
    for _ in range(_TRIES):
        record, info = _one(engine, who)
        _check_hears(info, word)
        told = msgspec.structs.replace(info, told=word)
        left = max(1, (record.expires or 0) - engine.now())  # when it was seen shall not change by this
        if engine.records.put(KIND, record.key, msgspec.json.encode(told), ttl=left, expect=record.version):
            why = {"reason": reason} if reason else {}
            audit.note(engine, f"{word}_worker", "", 1, worker=info.name, id=info.id, **why)
            return told
    raise Conflict(f"{who!r:.200} changes all the time: tell it once more")


def _one(engine: Engine, who: str) -> tuple[Record, WorkerInfo]:
    now = engine.now()
    seen = ((record, _seen(record, now)) for record in _all(engine))
    found = [(record, info) for record, info in seen if who in (info.id, info.name)]
    if not found:
        raise NotFound(f"no worker {who!r:.200} is here: it has stopped, or was never in this room")
    if len(found) > 1:
        ids = ", ".join(info.id for _, info in found[:10])
        raise Conflict(f"{len(found)} workers are called {who!r:.200}: say which by its id ({ids})")
    return found[0]


def _all(engine: Engine) -> Iterator[Record]:
    after = ""
    while page := engine.records.list(KIND, after=after, limit=MAX_BATCH):
        yield from page
        after = page[-1].key


def _check_hears(info: WorkerInfo, word: Word) -> None:
    if info.lost:
        raise Conflict(f"{info.name} was lost: it says nothing any more and hears nothing either")
    if not info.hears:
        raise Conflict(f"{info.name} runs a release that cannot be told anything: send it a signal")
    if word != "stop" and (info.state == "stopping" or info.told == "stop"):
        raise Conflict(f"{info.name} stops already")


# --- showing oneself ----------------------------------------------------------------------------


def this_process(name: str, *, door: str = "python", celery: str = "") -> WorkerInfo:
    """What does not change about a worker of this process."""
    versions = {"postroom": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    if celery:
        versions["celery"] = celery
    return WorkerInfo(name=name, host=os.uname().nodename, pid=os.getpid(), door=door, versions=versions)


Look = Callable[[], WorkerInfo]
Hear = Callable[[Word], None]


class Attendance:
    """The record of one worker, written by a thread of its own from `start` to `stop`.

    `look` says how the worker stands, `hear` is called with what it is told; twice for one word where a
    beat failed in between. A store that is away holds nobody up: the next beat tells it.
    """

    def __init__(self, engine: Engine, look: Look, hear: Hear | None = None) -> None:
        self._engine = engine
        self._look = look
        self._hear = hear
        self._version = 0
        self._key = f"{look().name[:_LONGEST_NAME]} {new_token()}"
        self._began = time.monotonic()
        self._started = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="postroom-attendance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave: nobody shall take a worker for lost that was told to go."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(PostroomError):  # the store is away: the record ends by itself
            self._engine.records.delete(KIND, self._key)

    def beat(self, engine: Engine | None = None) -> None:
        """Tell how the worker stands; through this engine, if the caller may not use the worker's."""
        engine = engine or self._engine
        self._started = self._started or engine.now() - round((time.monotonic() - self._began) * 1_000)
        for _ in range(_TRIES):
            if self._told(engine):
                return
            self._listen(engine)

    def _told(self, engine: Engine) -> bool:
        """Whether the record was as this worker had left it, and now says how it stands."""
        info = _bounded(self._look(), self._started, hears=self._hear is not None)
        value = msgspec.json.encode(info)
        version = engine.records.put(KIND, self._key, value, ttl=KEPT, expect=self._version)
        self._version = version or self._version
        return version is not None

    def _listen(self, engine: Engine) -> None:
        """Somebody wrote into the record, or it ended while the store was away."""
        record = engine.records.get(KIND, self._key)
        self._version = record.version if record else 0
        word = _seen(record, 0).told if record else ""
        if self._hear and word in get_args(Word):  # a newer release may know more words
            log.info("told to %s", word, extra={"event": f"worker.told_{word}", "worker": self._look().name})
            self._hear(cast(Word, word))

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = BEAT / 1_000
            try:
                self.beat()
            except Closed:
                return
            except Exception as error:  # whatever an engine raises, the worker goes on, and so does this
                extra = {"event": "attendance.failed", "error": str(error)}
                log.info("attendance failed: %s", error, extra=extra)


def _bounded(info: WorkerInfo, started: int, *, hears: bool) -> WorkerInfo:
    return msgspec.structs.replace(
        info,
        in_flight=len(info.ids),
        ids=tuple(sorted(info.ids)[:MOST_IDS]),
        queues=info.queues[:MOST_QUEUES],
        reads=info.reads[:MOST_TOPICS],
        last_error=info.last_error[:_LONGEST_NAME],
        breakers=dict(sorted(info.breakers.items())[:MOST_QUEUES]),
        memory=_memory(),
        started=started,
        hears=hears,
    )


def _memory() -> int:
    """What this process has in memory (bytes), where the system tells it in the way of Linux; else 0."""
    try:
        return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
