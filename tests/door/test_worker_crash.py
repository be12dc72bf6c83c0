"""A message that kills its workers takes nobody with it.

A kill is a wire that is cut: from then on no call of that worker arrives anywhere, as when its process
is gone, with whatever it had begun in the middle of it. The next process is a room of its own, because
the place for a suspect belongs to a process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from postroom import Delivery, Policy, Worker
from postroom.engines.memory import MemoryEngine
from postroom.keeper import Keeper
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import PATIENCE, Wire, entries, eventually, let_pass, room_on

KILLER = "killer"


class Process:
    """A worker in a process of its own, which the killer message ends with `beside` others in flight."""

    def __init__(self, engine: MemoryEngine, beside: int) -> None:
        self.wire = Wire(engine)
        self.beside = beside
        #: What is being worked on; after the death: what was.
        self.flying: set[str] = set()
        self.worker = Worker(room_on(self.wire), {"q": self.handle}, concurrency=4, prefetch=64)
        self.worker.start()

    def handle(self, delivery: Delivery) -> None:
        if delivery.body == KILLER:
            eventually(lambda: len(self.flying) == self.beside and self.is_led)
            self.wire.cut()
        elif not delivery.suspect:
            self.flying.add(delivery.id)
            self.wire.is_cut.wait(PATIENCE)  # in the middle of its work when the process dies

    @property
    def is_led(self) -> bool:
        """Whether its keeper, or the last one, leads."""
        return self.wire.records.get("lock", "keeper") is not None

    def bury(self) -> None:
        self.wire.bury()
        self.worker.stop()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[MemoryEngine]:
    engine = MemoryEngine(clock)
    yield engine
    engine.close()


@pytest.fixture
def killed() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.bury()


def kill(engine: MemoryEngine, killed: list[Process], beside: int) -> Process:
    process = Process(engine, beside)
    killed.append(process)
    assert process.wire.is_cut.wait(PATIENCE), "the killer was never worked on"
    return process


def settled(engine: MemoryEngine, clock: ManualClock) -> Room:
    """A room in which somebody else has been looking after the queue since the death of a worker."""
    room = room_on(engine)
    let_pass(room, clock, 45)
    return room


def test_a_worker_killed_three_times_by_one_message_loses_only_that_one(
    engine: MemoryEngine, clock: ManualClock, killed: list[Process]
) -> None:
    room = room_on(engine)
    queue = room.queue("q")
    killer, *neighbours = [put.id for put in queue.put_many([KILLER, *range(63)])]

    for death in range(1, 4):
        process = kill(engine, killed, beside=3)
        found = entries(queue, State.PROCESSING)
        started = {entry.message.id for entry in found if entry.started_at is not None}
        assert started == {killer, *process.flying}, "the killer, and three neighbours in flight"
        assert len(process.flying) == 3
        assert len(found) >= 55, "and all the others that are above suspicion are held, and go down too"
        settled(engine, clock)
        assert queue.stats().processing == 0
        assert queue.get(killer).attempt == death

    entry = queue.get(killer)
    assert (entry.state, entry.attempt, entry.ran_out) == (State.DEAD, 3, 3)
    assert entry.failure and entry.failure.type in ("LeaseExpired", "AckTimeout")
    assert queue.stats().dead == 1

    survivors = entries(queue, State.READY)
    assert [survivor.message.id for survivor in survivors] == neighbours, "in their old order"
    assert max(survivor.attempt for survivor in survivors) == 1
    assert sum(survivor.attempt for survivor in survivors) == 9, "three in flight, three times, all different"

    healthy: list[str] = []
    Worker(room_on(engine), {"q": lambda delivery: healthy.append(delivery.id)}, concurrency=4).run(
        drain=True
    )
    assert sorted(healthy) == neighbours
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.dead, stats.counters["acked"]) == (0, 0, 1, 63)


def test_a_dead_worker_costs_nothing_to_what_it_merely_held(
    engine: MemoryEngine, clock: ManualClock, killed: list[Process]
) -> None:
    queue = room_on(engine).queue("q", Policy(max_attempts=1))
    queue.put_many([KILLER, *range(63)])
    kill(engine, killed, beside=3)
    settled(engine, clock)
    stats = queue.stats()
    assert (stats.dead, stats.ready) == (4, 60), "one attempt each: what was begun is dead, the rest is not"
    assert {entry.attempt for entry in entries(queue, State.READY)} == {0}
    assert {entry.strays for entry in entries(queue, State.READY)} == {1}


def test_what_was_quick_enough_to_be_started_ahead_loses_one_attempt_at_most(
    engine: MemoryEngine, clock: ManualClock, killed: list[Process]
) -> None:
    """Quick handlers have several messages started on every hand; they all go down, once."""
    room = room_on(engine)
    queue = room.queue("q")
    wire = Wire(engine)
    behind = queue.put_many(range(200))

    def handler(delivery: Delivery) -> None:
        if delivery.body == KILLER:
            wire.cut()

    worker = Worker(room_on(wire), {"q": handler}, concurrency=4).start()
    eventually(lambda: queue.stats().counters["acked"] == 200)
    queue.put_many([KILLER, *range(100)])
    assert wire.is_cut.wait(PATIENCE)
    settled(engine, clock)
    wire.bury()
    worker.stop()
    assert len(behind) == 200
    attempts = [entry.attempt for entry in entries(queue, State.READY)]
    assert max(attempts) == 1
    assert queue.stats().dead == 0


def test_a_dead_worker_is_found_out_by_whoever_leads(
    engine: MemoryEngine, clock: ManualClock, killed: list[Process]
) -> None:
    """Its lock, its leases and its heartbeat all end with it; nobody has to clean up."""
    room = room_on(engine)
    queue = room.queue("q", Policy(lease="10s", ack_timeout="1h"))
    queue.put_many([KILLER, *range(9)])
    kill(engine, killed, beside=3)
    assert engine.records.get("lock", "keeper") is not None
    keeper = Keeper(room)
    led = [keeper.leading for _ in range(9) if clock.advance("5s") and keeper.tick()]
    assert (led[0], led[-1]) == (False, True)
    assert (queue.stats().processing, queue.stats().ready) == (0, 10)
    assert queue.history().entries[-1].info["triggered_by"] == "scheduler"


def test_a_consumer_that_died_without_a_word_is_noticed_by_those_who_wait(clock: ManualClock) -> None:
    engine = MemoryEngine(clock)
    queue: Queue = room_on(engine).queue("q", Policy(ack_timeout="10s"))
    queue.put(1)
    dead = room_on(engine).queue("q").claim(timeout=0)
    assert dead
    got: list[Delivery | None] = []
    waiting = threading.Thread(target=lambda: got.append(queue.claim(timeout=PATIENCE)))
    waiting.start()
    for _ in range(3):
        clock.advance("5s")
        engine.sweep("q")
    waiting.join()
    assert got[0] and got[0].id == dead.id
    engine.close()
