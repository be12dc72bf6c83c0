"""The staff: who works in a room. Every worker keeps a record of itself and removes it when it stops.

    for worker in room.workers():
        print(worker.name, worker.queues, f"{worker.busy} of {worker.concurrency}", worker.lost)

Told again every ten seconds, in one small write. A worker that was killed says nothing: it is `lost` after
three beats, and forgotten five minutes after its last. When that was is the engine's to say, as of every
record with a time to live, so a worker whose clock is wrong is not lost for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from postroom.engine import Engine
from postroom.errors import Closed, PostroomError
from postroom.ids import new_token
from postroom.limits import MAX_BATCH
from postroom.logs import Record
from postroom.version import __version__

log = logging.getLogger(__name__)

#: The kind of the records; the key is the name, and a token because two may have the same name.
KIND = "worker"
#: A worker shows itself this often, is lost when it was not seen for so long, and forgotten later (ms).
#: The last is part of what is stored: when a worker was seen follows from when its record ends.
BEAT, LOST, KEPT = 10_000, 30_000, 300_000
#: Of what a worker holds and consumes, so much is told: a record stays small.
MOST_IDS, MOST_QUEUES = 20, 100
_LONGEST_NAME = 200


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it showed itself last. Times are epoch milliseconds by the engine's clock.

    door         who runs it: `python` or `celery`
    role         its role in the matrix, if it has one
    queues       what it consumes (the first 100)
    concurrency  how many messages it works on at once, and `busy` on how many it did
    in_flight    how many it held, begun or not, and the `ids` of the oldest 20
    versions     of postroom, python and, where that runs it, celery
    last_seen    its last beat; `lost`: that is more than three beats ago
    """

    name: str
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
    last_seen: int = 0
    lost: bool = False
    versions: dict[str, str] = {}


def read_workers(engine: Engine, limit: int = MAX_BATCH) -> list[WorkerInfo]:
    """Who works here, by name, and who did until it was lost."""
    now = engine.now()
    return [_seen(record, now) for record in engine.records.list(KIND, limit=limit)]


def _seen(record: Record, now: int) -> WorkerInfo:
    try:
        info = msgspec.json.decode(record.value, type=WorkerInfo)
    except msgspec.DecodeError:  # written by a newer release: at least it is there
        info = WorkerInfo(name=record.key.rpartition(" ")[0])
    last_seen = (record.expires or now) - KEPT
    return msgspec.structs.replace(info, last_seen=last_seen, lost=now - last_seen > LOST)


def this_process(name: str, *, door: str = "python", celery: str = "") -> WorkerInfo:
    """What does not change about a worker of this process."""
    versions = {"postroom": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    if celery:
        versions["celery"] = celery
    return WorkerInfo(name=name, host=os.uname().nodename, pid=os.getpid(), door=door, versions=versions)


Look = Callable[[], WorkerInfo]


class Attendance:
    """The record of one worker, written by a thread of its own from `start` to `stop`.

    `look` says how the worker stands. A store that is away holds nobody up: the next beat tells it.
    """

    def __init__(self, engine: Engine, look: Look) -> None:
        self._engine = engine
        self._look = look
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
        info = _bounded(self._look(), self._started)
        engine.records.put(KIND, self._key, msgspec.json.encode(info), ttl=KEPT)

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = BEAT / 1_000
            try:
                self.beat()
            except Closed:
                return
            except Exception as error:  # whatever an engine raises, the worker goes on, and so does this
                log.info("attendance failed", extra={"event": "attendance.failed", "error": str(error)})


def _bounded(info: WorkerInfo, started: int) -> WorkerInfo:
    oldest = tuple(sorted(info.ids)[:MOST_IDS])
    return msgspec.structs.replace(
        info, in_flight=len(info.ids), ids=oldest, queues=info.queues[:MOST_QUEUES], started=started
    )
