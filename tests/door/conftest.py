"""Rooms, clocks and workers that are gone when a test ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from postroom import Worker
from postroom.engines.memory import MemoryEngine
from postroom.room import Room
from postroom.testing import ManualClock
from postroom.worker.handlers import Handler, Handlers
from tests.door.staging import Hire, Wire, room_on


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def room(clock: ManualClock) -> Iterator[Room]:
    """A room whose time only the test moves."""
    with room_on(MemoryEngine(clock)) as room:
        yield room


@pytest.fixture
def live() -> Iterator[Room]:
    """A room by the wall clock."""
    with room_on() as room:
        yield room


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A wire to an engine by the wall clock."""
    engine = MemoryEngine()
    wire = Wire(engine)
    yield wire
    wire.bury()
    engine.close()


@pytest.fixture
def hire() -> Iterator[Hire]:
    workers: list[Worker] = []

    def start(room: Room, handlers: Mapping[str, Handler] | Handlers | None = None, **options: Any) -> Worker:
        worker = Worker(room, handlers, **{"stop_timeout": "30s", **options})
        workers.append(worker)
        return worker.start()

    yield start
    for worker in workers:
        worker.stop()


@pytest.fixture
def gate(hire: Hire) -> Iterator[threading.Event]:
    """Handlers may wait here; it opens at the latest when the test ends, before its workers stop."""
    gate = threading.Event()
    yield gate
    gate.set()
