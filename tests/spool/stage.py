"""A primary that can be switched off, and what the tests of the spool share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from postroom import config
from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.engines.spool import SpoolEngine
from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.errors import Closed, EngineUnavailable
from postroom.model import Leased, NewMessage
from postroom.room import Room

PATIENCE = 60.0


def eventually(condition: Callable[[], object], complaint: object = "", timeout: float = PATIENCE) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, complaint or f"not within {timeout} s"
        time.sleep(0.002)


class LostReply(Exception):
    """The cause of an error after which nobody knows whether the call was done."""


def is_uncertain(error: BaseException) -> bool:
    return isinstance(error.__cause__, LostReply)


class Remote:
    """Stands where an engine stands that can be away.

    refuse()   no call arrives: connection refused
    mute()     calls arrive and are done, and no answer comes back; `done` False: nor are they done
    hang()     calls wait until `answer`, and arrive then
    answer()   all is well again
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or MemoryEngine()
        self.mode = "answer"
        self.verbs: list[str] = []
        #: In which mode only these verbs fail; empty: all.
        self.only: set[str] = set()
        self._answers = threading.Event()
        self._answers.set()
        self._closed = False
        self.records = _Part(self, self.engine.records, "records.")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.engine, name)
        return self._wrapped(name, value) if callable(value) else value

    def _wrapped(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: self.send(verb, call, *args, **options)

    def connect(self) -> Engine:
        """The factory: fails like every other call."""
        self.send("connect", lambda: None)
        return cast(Engine, self)

    def refuse(self, *only: str) -> None:
        self.mode, self.only = "refuse", set(only)

    def mute(self, *only: str) -> None:
        self.mode, self.only = "mute", set(only)

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        return cast(int, self.send("drop", self.engine.drop, queue, force=force, by=by, why=why))

    def hang(self, *only: str) -> None:
        self._answers.clear()
        self.mode, self.only = "hang", set(only)

    def answer(self) -> None:
        self.mode, self.only = "answer", set()
        self._answers.set()

    def close(self) -> None:
        self._closed = True
        self._answers.set()
        self.engine.close()

    def send(self, verb: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.verbs.append(verb)
        mode = self.mode if not self.only or verb in self.only else "answer"
        if mode == "refuse":
            raise EngineUnavailable("connection refused")
        if mode == "hang":
            self._answers.wait(PATIENCE)
            if self._closed:
                raise Closed("closed during this call")
        answer = call(*args, **options)
        if mode == "mute":
            raise EngineUnavailable("no answer") from LostReply()
        return answer


class _Part:
    def __init__(self, remote: Remote, part: Any, prefix: str) -> None:
        self._remote, self._part, self._prefix = remote, part, prefix

    def __getattr__(self, name: str) -> Any:
        return self._remote._wrapped(self._prefix + name, getattr(self._part, name))


def sqlite(folder: Path, name: str = "spool.db") -> SqliteEngine:
    return SqliteEngine(File(str(folder / name)))


def spool_on(remote: Remote, spool: Engine | None = None, **options: Any) -> SpoolEngine:
    # Long: a busy machine is no outage. Who lets the primary hang says how long is too long.
    options = {"timeout": 30_000, "uncertain": is_uncertain, **options}
    return SpoolEngine(remote.connect, spool or MemoryEngine(), **options)


@contextmanager
def opened(remote: Remote, spool: Engine | None = None, **options: Any) -> Iterator[SpoolEngine]:
    engine = spool_on(remote, spool, **options)
    try:
        yield engine
    finally:
        remote.answer()
        engine.close()


@contextmanager
def hanging(remote: Remote, engine: SpoolEngine, *only: str) -> Iterator[None]:
    """The primary hangs, and for so long a second is too long to wait for an answer."""
    errands = engine._line.errands
    patient, errands.timeout = errands.timeout, 1.0
    remote.hang(*only)
    try:
        yield
    finally:
        errands.timeout = patient
        remote.answer()


def room_on(engine: Engine, **settings: Any) -> Room:
    return Room(engine, config.load(environ={}, **settings))


def put(engine: Engine, queue: str = "q", **fields: Any) -> str:
    return engine.put(queue, [NewMessage(**fields)]).puts[0].id


def claim(engine: Engine, queue: str = "q", n: int = 10, **options: Any) -> list[Leased]:
    return engine.claim(queue, ClaimRequest(n=n, **options)).deliveries


def ids(leased: list[Leased]) -> list[str]:
    return [each.message.id for each in leased]


def await_away(engine: SpoolEngine) -> None:
    eventually(lambda: not engine.redis_active, "still active")


def await_back(engine: SpoolEngine) -> None:
    """Redis is active again."""
    eventually(lambda: engine.redis_active, "Redis is not active again")


def await_moved(engine: SpoolEngine) -> None:
    await_back(engine)
    eventually(lambda: left(engine) == 0, "the spool is not empty")


def left(engine: SpoolEngine) -> int:
    """What is in the spool, in whatever state."""
    total = 0
    for info in engine.spool.queues():
        stats = engine.spool.stats(info.name)
        total += stats.depth + stats.processing + stats.dead
    return total
