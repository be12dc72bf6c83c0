"""Suspects: what may have killed its consumer is worked on alone, one at a time in a process."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from typing import Any

import pytest

from postroom import Delivery, Policy
from postroom.engine import ClaimRequest
from postroom.engines.memory import MemoryEngine
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, let_pass, room_on, taken


@pytest.fixture
def queue(room: Room, clock: ManualClock) -> Queue:
    """A queue with three suspects, 0 to 2, in front of two messages above suspicion, 3 and 4."""
    queue = room.queue("q", Policy(max_attempts=10))
    queue.put_many(range(3))
    dropped = queue.claim_many(3, timeout=0)
    let_pass(room, clock, 31)
    assert len(dropped) == queue.stats().ready == 3
    queue.put_many([3, 4])
    return queue


def test_a_process_gets_one_suspect_and_otherwise_what_is_above_suspicion(queue: Queue) -> None:
    first = queue.claim_many(5, timeout=0)
    assert [(delivery.body, delivery.suspect) for delivery in first] == [(0, True), (3, False), (4, False)]
    assert queue.claim(timeout=0) is None
    assert queue.stats().ready == 2


@pytest.mark.parametrize("settle", ["ack", "fail", "release", "bury"])
def test_the_next_one_comes_when_the_first_is_settled(queue: Queue, settle: str) -> None:
    first = queue.claim_many(5, timeout=0)[0]
    assert queue.claim(timeout=0) is None
    getattr(first, settle)()
    again = taken(queue)
    assert again.suspect
    assert again.body == (0 if settle == "release" else 1)


def test_or_when_its_delivery_was_dropped(queue: Queue) -> None:
    first = taken(queue)
    assert first.suspect
    assert {taken(queue).body, taken(queue).body} == {3, 4}
    assert queue.claim(timeout=0) is None
    del first
    gc.collect()
    assert taken(queue).body == 1


def test_or_when_it_turned_out_to_be_lost(room: Room, queue: Queue, clock: ManualClock) -> None:
    first = taken(queue)
    let_pass(room, clock, 31)
    with pytest.raises(Exception, match="no longer held"):
        first.ack()
    again = taken(queue)
    assert (again.body, again.suspect, again.attempt) == (0, True, 2)


def test_a_failed_claim_does_not_keep_the_place(wire: Wire, queue: Queue, room: Room) -> None:
    on_wire = Wire(room.engine)
    other = room_on(on_wire)
    on_wire.fail(1, "turn")
    with pytest.raises(Exception, match="turn failed"):
        other.queue("q").claim(timeout=0)
    assert taken(other.queue("q")).suspect


def test_a_claim_that_wants_no_suspect_does_not_take_the_place_of_one_that_does(
    room: Room, queue: Queue
) -> None:
    wire = Wire(room.engine)
    other = room_on(wire)
    meanwhile: list[Delivery] = []
    send = wire.send

    def claim_meanwhile(verb: str, *args: Any, **options: Any) -> Any:
        if verb == "turn" and not args[4].suspects and not meanwhile:
            meanwhile.append(taken(other.queue("q")))
        return send(verb, *args, **options)

    wire.send = claim_meanwhile  # type: ignore[method-assign]
    (delivery,), _ = other.take("q", ClaimRequest(suspects=False))
    assert not delivery.suspect
    assert meanwhile[0].suspect


def test_another_process_has_a_place_of_its_own(room: Room, queue: Queue) -> None:
    first, second = taken(queue), taken(room_on(room.engine).queue("q"))
    assert [first.body, second.body] == [0, 1]
    assert first.suspect
    assert second.suspect


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("parent", ["claims", "works on one", "has the lock"])
def test_a_forked_child_has_a_place_of_its_own(room: Room, queue: Queue, parent: str) -> None:
    """Whatever the other threads of its parent were at."""
    held = taken(queue) if parent == "works on one" else None
    if parent == "claims":
        room.suspect.reserve()
    with room.suspect._lock if parent == "has the lock" else contextlib.nullcontext():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # one that hangs ends, and runs no test
            signal.alarm(30)
            os._exit(0 if room.suspect.reserve() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (held is not None) is (parent == "works on one")


def test_all_queues_of_a_room_share_the_place(room: Room, queue: Queue, clock: ManualClock) -> None:
    other = room.queue("other")
    other.put("innocent until dropped")
    dropped = taken(other)
    let_pass(room, clock, 31)
    suspect = taken(queue)
    assert suspect.suspect
    assert other.claim(timeout=0) is None
    suspect.ack()
    assert taken(other).id == dropped.id


def test_who_waits_is_told_when_the_place_is_free(clock: ManualClock) -> None:
    wire = Wire(MemoryEngine(clock))
    room = room_on(wire, poll_timeout="1h")
    queue = room.queue("q", Policy(max_attempts=10))
    queue.put_many(range(2))
    dropped = queue.claim_many(2, timeout=0)
    let_pass(room, clock, 31)
    first = taken(queue)
    assert first.suspect
    assert len(dropped) == 2
    got: list[Delivery | None] = []
    waiting = threading.Thread(target=lambda: got.append(queue.claim(timeout=PATIENCE)))
    waiting.start()
    eventually(lambda: any(c.verb == "turn" and c.args[3] and c.args[3].waiter for c in wire.calls))
    first.ack()
    waiting.join()
    assert got[0] and got[0].body == 1
    room.close()


def test_a_worker_and_direct_claims_share_the_place(
    room: Room, queue: Queue, hire: Hire, gate: threading.Event
) -> None:
    running: list[Delivery] = []

    def handler(delivery: Delivery) -> None:
        running.append(delivery)
        if delivery.suspect:
            gate.wait()

    hire(room, {"q": handler}, concurrency=4, keeper=False)
    eventually(lambda: len(running) == 3)
    assert [delivery.body for delivery in running if delivery.suspect] == [0]
    assert queue.claim(timeout=0) is None
    assert queue.stats().ready == 2
    gate.set()
    eventually(lambda: queue.stats().ready == queue.stats().processing == 0)
    assert [delivery.body for delivery in running if delivery.suspect] == [0, 1, 2]


def test_a_worker_never_runs_two_suspects_at_once(room: Room, clock: ManualClock, hire: Hire) -> None:
    queue = room.queue("q", Policy(max_attempts=10))
    queue.put_many(range(30))
    assert len(queue.claim_many(30, timeout=0)) == 30
    let_pass(room, clock, 31)
    at_once, most, lock = 0, 0, threading.Lock()

    def handler(delivery: Delivery) -> None:
        nonlocal at_once, most
        assert delivery.suspect
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.002)
        with lock:
            at_once -= 1

    worker = hire(room, {"q": handler}, concurrency=8)
    eventually(lambda: queue.stats().ready == queue.stats().processing == 0)
    assert most == 1
    assert not worker.last_exceptions


@pytest.mark.parametrize("prefetch", [None, 64])
def test_a_worker_with_enough_to_do_still_looks_for_suspects(
    room: Room, clock: ManualClock, hire: Hire, monkeypatch: pytest.MonkeyPatch, prefetch: int | None
) -> None:
    monkeypatch.setattr("postroom.worker.dispatcher._SUSPECTS", 0.1)
    queue = room.queue("q", Policy(lease="1h", ack_timeout="1h"))
    put = queue.put("suspect", ack_timeout="1s")
    dropped = taken(queue)
    assert dropped.id == put.id
    queue.put_many(range(20_000))
    done, found = 0, threading.Event()

    def handler(delivery: Delivery) -> None:
        nonlocal done
        done += 1
        if delivery.suspect:
            found.set()
        threading.Event().wait(0.001)

    hire(room, {"q": handler}, concurrency=2, prefetch=prefetch, keeper=False)
    eventually(lambda: done > 200)
    let_pass(room, clock, 2)
    assert found.wait(PATIENCE)
    assert queue.stats().ready > 1_000


def test_a_stray_is_a_suspect_from_the_third_time_on(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q")
    queue.put("merely held")
    for strays in range(3):
        (entry,) = entries(queue, State.READY)
        assert (entry.strays, entry.attempt) == (strays, 0)
        (leased,) = room.engine.claim("q", ClaimRequest(start=0, lease=30_000)).deliveries
        assert not leased.suspect
        let_pass(room, clock, 31)
    delivery = taken(queue)
    assert delivery.suspect
    assert delivery.attempt == 0
