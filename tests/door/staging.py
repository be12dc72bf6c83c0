"""What the tests of the Python door stand on: rooms, waiting for a condition, and a wire that can be cut."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from postroom import Worker, config
from postroom.delivery import Delivery
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import Closed, EngineUnavailable
from postroom.logs import LogEntry
from postroom.model import Entry, NewMessage, State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from postroom.worker.handlers import Handler, Handlers

#: Long enough for a machine that does three other things; nothing waits for so long when all is well.
PATIENCE = 60.0


def eventually(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not within {timeout} s"
        time.sleep(0.002)


def room_on(engine: Engine | Wire | None = None, **settings: Any) -> Room:
    """A room with nothing but these settings; on an engine of its own by the wall clock unless given one."""
    return Room(cast(Engine, engine or MemoryEngine()), config.load(environ={}, **settings))


def taken(queue: Queue) -> Delivery:
    """The next delivery, which must be there."""
    delivery = queue.claim(timeout=0)
    assert delivery is not None, f"nothing is ready: {queue.stats()}"
    return delivery


def entries(queue: Queue, state: State | str) -> list[Entry]:
    return queue.find(state, limit=1_000).entries


def events(log: list[LogEntry], event: str) -> list[LogEntry]:
    return [entry for entry in log if entry.event == event]


def let_pass(room: Room, clock: ManualClock, seconds: float) -> None:
    """Let time go by while somebody looks after the queues, so that no silence looks like an outage."""
    while seconds > 0:
        clock.advance(min(seconds, 1))
        seconds -= 1
        for info in room.queues():
            room.engine.sweep(info.name)


def put_raw(room: Room, queue: str, body: bytes, content_type: str) -> str:
    """Put as a client might that is not ours: nothing has looked at the content type."""
    message = NewMessage(body=body)
    msgspec.structs.force_setattr(message, "content_type", content_type)
    room.engine.put(queue, [message])
    return message.id


class Hire(Protocol):
    """Starts a worker; it is stopped when the test ends."""

    def __call__(
        self, room: Room, handlers: Mapping[str, Handler] | Handlers | None = None, **options: Any
    ) -> Worker: ...


class Call(NamedTuple):
    verb: str
    args: tuple[Any, ...]
    options: dict[str, Any]


class Wire:
    """Stands where an engine stands, and in between: its calls can be watched, fail, or never arrive.

    fail(n)   the next n calls raise EngineUnavailable; `arrived`: after the engine has done them
    cut()     the process at this end is dead: no call arrives or returns any more, until `bury`
    """

    def __init__(self, engine: Engine) -> None:
        self.calls: list[Call] = []
        self._engine = engine
        self._failures: list[tuple[frozenset[str], bool]] = []
        self._is_cut = threading.Event()
        self._buried = threading.Event()
        self._waiters: list[Any] = []
        self.records = _Records(self, engine.records)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        return functools.partial(self.send, name, value) if callable(value) else value

    def fail(self, n: int, *verbs: str, arrived: bool = False) -> None:
        """Have the next `n` calls fail, of these verbs only or of all."""
        self._failures += [(frozenset(verbs), arrived)] * n

    @property
    def failing(self) -> bool:
        return bool(self._failures)

    @property
    def is_cut(self) -> threading.Event:
        return self._is_cut

    def cut(self) -> None:
        self._is_cut.set()
        for waiter in self._waiters:
            waiter.disarm()

    def bury(self) -> None:
        """End the threads that hang on a cut wire."""
        self.cut()
        self._buried.set()

    def count(self, verb: str) -> int:
        return sum(call.verb == verb for call in self.calls)

    def send(self, verb: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._check_cut()
        self.calls.append(Call(verb, args, options))
        failure = next((each for each in self._failures if not each[0] or verb in each[0]), None)
        if failure:
            self._failures.remove(failure)
            if failure[1]:
                call(*args, **options)
            raise EngineUnavailable(f"{verb} failed on its way")
        answer = call(*args, **options)
        self._check_cut()
        if verb == "waiter":
            self._waiters.append(answer)
        return answer

    def _check_cut(self) -> None:
        if self._is_cut.is_set():
            self._buried.wait()
            raise Closed("the wire was cut")


class _Records:
    """The records of an engine at the other end of a wire."""

    def __init__(self, wire: Wire, records: Any) -> None:
        self._wire = wire
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._wire.send, f"records.{name}", getattr(self._records, name))
