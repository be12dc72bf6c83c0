"""Leases of a worker: renewed while it lives, lost when the work takes too long."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from postroom import Delivery, Policy
from postroom.engine import ClaimRequest
from postroom.engines.memory import MemoryEngine
from postroom.model import State
from postroom.room import Room
from postroom.testing import ManualClock
from postroom.worker.heartbeat import Heartbeat
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, let_pass, room_on


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def compute(seconds: float) -> None:
    """Nothing but Python: the other threads get what the interpreter leaves them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert sum(range(200)) == 19_900


@pytest.mark.parametrize("work", [sleep, compute])
def test_work_may_take_longer_than_a_lease(live: Room, hire: Hire, work: Any) -> None:
    queue = live.queue("q", Policy(lease="3s", ack_timeout="1h", keep_done="1h"))
    put = queue.put(1)
    runs: list[int] = []

    def handler(delivery: Delivery) -> None:
        runs.append(delivery.attempt)
        work(4)

    hire(live, {"q": handler}, concurrency=2)
    hire(live, {"q": handler})
    eventually(lambda: queue.stats().counters["acked"] == 1)
    entry = queue.get(put.id)
    assert (entry.deliveries, entry.attempt, entry.ran_out) == (1, 0, 0)
    assert runs == [0]


def test_what_is_merely_held_is_renewed_too(clock: ManualClock, hire: Hire, gate: threading.Event) -> None:
    wire = Wire(MemoryEngine(clock))
    room = room_on(wire)
    queue = room.queue("q", Policy(lease="90ms", ack_timeout="1h"))
    queue.put_many(range(8))
    hire(room, {"q": lambda delivery: gate.wait()}, prefetch=5, keeper=False)
    eventually(lambda: queue.stats().processing == 6)
    eventually(lambda: any(call.verb == "renew" and len(call.args[1]) == 6 for call in wire.calls))
    (renew, *_) = [call for call in wire.calls if call.verb == "renew"]
    assert renew.args[0] == "q"
    assert renew.args[2] == 90
    assert queue.stats().ready == 2


def test_the_heart_beats_three_times_a_lease(
    hire: Hire, gate: threading.Event, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[float] = []
    real = wire.send

    def send(verb: str, *args: Any, **options: Any) -> Any:
        if verb == "renew":
            beats.append(time.monotonic())
        return real(verb, *args, **options)

    monkeypatch.setattr(wire, "send", send)
    room = room_on(wire)
    queue = room.queue("q", Policy(lease="600ms", ack_timeout="1h"))
    queue.put(1)
    hire(room, {"q": lambda delivery: gate.wait()}, keeper=False)
    eventually(lambda: len(beats) > 10)
    assert 1 < beats[10] - beats[0] < 30, "two seconds, on an idle machine"


def leased(room: Room, n: int, lease: int = 30_000) -> list[Delivery]:
    """Deliveries of a consumer that has a heartbeat."""
    return room.take("q", ClaimRequest(n=n, lease=lease))[0]


def test_a_heart_that_skipped_a_beat_tries_again_soon(room: Room) -> None:
    wire = Wire(room.engine)
    queue = room_on(wire).queue("q")
    queue.put(1)
    (delivery,) = leased(room, 1, lease=60)
    wire.fail(3, "renew")
    heart = Heartbeat(room_on(wire).engine, lambda: [delivery])
    heart.start()
    eventually(lambda: wire.count("renew") >= 6)
    heart.stop()
    assert not delivery.lost


def test_a_heart_marks_what_is_lost_and_not_what_is_done(
    room: Room, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = room.queue("q")
    queue.put_many(["lost", "done", "ours"])
    lost, done, ours = leased(room, 3, lease=3_600_000)  # what counts here is the ack_timeout
    ours.extend("1h")
    done.ack()
    let_pass(room, clock, 31)
    Heartbeat(room.engine, lambda: [lost, done, ours]).beat()
    assert [delivery.lost for delivery in (lost, done, ours)] == [True, False, False]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.__dict__["message_id"] == lost.id


def test_a_heart_renews_more_than_a_thousand(room: Room) -> None:
    wire = Wire(room.engine)
    queue = room.queue("q")
    queue.put_many(range(1_500))
    held = leased(room, 1_000) + leased(room, 1_000)
    Heartbeat(room_on(wire).engine, lambda: held).beat()
    assert [len(call.args[1]) for call in wire.calls if call.verb == "renew"] == [1_000, 500]
    assert not any(delivery.lost for delivery in held)


def test_work_beyond_its_ack_timeout_is_given_to_another_and_its_end_changes_nothing(
    live: Room, hire: Hire, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    queue = live.queue("q", Policy(lease="1h", ack_timeout="250ms", max_attempts=100, keep_done="1h"))
    put = queue.put(1)
    first_may_end, deliveries = threading.Event(), []

    def handler(delivery: Delivery) -> None:
        deliveries.append(delivery)
        if delivery.attempt == 0:
            first_may_end.wait(PATIENCE)
            return
        delivery.extend("1m")
        gate.wait()

    hire(live, {"q": handler}, concurrency=4)
    eventually(lambda: any(delivery.attempt for delivery in deliveries))
    eventually(lambda: (queue.get(put.id).deadline or 0) - queue.get(put.id).message.put_at > 30_000)
    before = queue.get(put.id)
    first_may_end.set()
    eventually(lambda: any(record.__dict__.get("event") == "delivery.lost" for record in caplog.records))
    assert queue.get(put.id) == before, "the stale end of the first changed nothing"
    assert before.state is State.PROCESSING
    assert before.ran_out >= 1
    gate.set()
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert deliveries[0].settled is None


def test_a_handler_can_see_that_its_lease_is_lost(live: Room, hire: Hire) -> None:
    queue = live.queue("q", Policy(lease="900ms", ack_timeout="100ms", max_attempts=1))
    queue.put(1)
    noticed = threading.Event()

    def handler(delivery: Delivery) -> None:
        eventually(lambda: delivery.lost)
        noticed.set()

    hire(live, {"q": handler})
    assert noticed.wait(PATIENCE)
    eventually(lambda: queue.stats().dead == 1)
    failure = entries(queue, State.DEAD)[0].failure
    assert failure and failure.type == "AckTimeout"


def test_a_handler_that_extends_may_go_on(room: Room, clock: ManualClock, hire: Hire) -> None:
    queue = room.queue("q", Policy(lease="10s", ack_timeout="400ms", keep_done="1h"))
    put = queue.put(1)

    def handler(delivery: Delivery) -> None:
        for _ in range(20):
            clock.advance("300ms")
            room.engine.sweep("q")
            delivery.extend()

    hire(room, {"q": handler})
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert queue.get(put.id).deliveries == 1


def test_a_lease_made_shorter_while_a_worker_runs_costs_nothing(live: Room, hire: Hire) -> None:
    queue = live.queue("q", Policy(lease="30s", ack_timeout="1h"))
    runs: list[int] = []

    def handler(delivery: Delivery) -> None:
        runs.append(delivery.attempt)
        time.sleep(delivery.body)

    hire(live, {"q": handler})
    live.queue("q", Policy(lease="3s", ack_timeout="1h"))
    queue.put(4)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert runs == [0]
