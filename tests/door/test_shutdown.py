"""Stopping: what runs is finished, what was not begun is handed back, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Delivery, Policy, Worker
from postroom.engines.steps.bells import BellWaiter
from postroom.model import State
from postroom.room import Room
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, room_on


def test_a_stop_finishes_what_runs_and_hands_back_the_rest(live: Room) -> None:
    queue = live.queue("q")
    queue.put_many(range(30))
    gate, began = threading.Event(), []

    def handler(delivery: Delivery) -> None:
        began.append(delivery.body)
        gate.wait()

    worker = Worker(live, {"q": handler}, concurrency=3, prefetch=10).start()
    eventually(lambda: len(began) == 3)
    eventually(lambda: queue.stats().processing == 13)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    eventually(lambda: queue.stats().processing == 3)
    assert stopping.is_alive(), "it waits for what runs"
    gate.set()
    stopping.join()
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (27, 0, 3)
    assert [entry.message.body for entry in entries(queue, State.READY)] == [b"%d" % n for n in range(3, 30)]
    assert {entry.attempt for entry in entries(queue, State.READY)} == {0}
    assert began == [0, 1, 2]


def test_work_that_fails_during_a_stop_is_tried_again(live: Room) -> None:
    queue = live.queue("q")
    put = queue.put(1)
    gate, began = threading.Event(), threading.Event()

    def handler(delivery: Delivery) -> None:
        began.set()
        gate.wait()
        raise LookupError

    worker = Worker(live, {"q": handler}).start()
    assert began.wait(PATIENCE)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    gate.set()
    stopping.join()
    assert queue.get(put.id).state is State.SCHEDULED
    assert len(worker.last_exceptions) == 1


def test_a_stop_does_not_wait_for_work_that_settled_itself(
    live: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.worker.worker._NAP", 60.0)
    live.queue("q").put(1)
    gate, began = threading.Event(), threading.Event()

    def handler(delivery: Delivery) -> None:
        began.set()
        gate.wait()
        delivery.ack()

    worker = Worker(live, {"q": handler}).start()
    assert began.wait(PATIENCE)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    eventually(lambda: worker._dispatcher and worker._dispatcher._leaving and worker._dispatcher._asleep)
    gate.set()
    stopping.join(PATIENCE / 2)
    assert not stopping.is_alive()


def test_what_was_started_ahead_is_handed_back_without_an_attempt(live: Room) -> None:
    queue = live.queue("q")
    gate, stuck = threading.Event(), threading.Event()

    def handler(delivery: Delivery) -> None:
        if delivery.body == "long":
            stuck.set()
            gate.wait()

    worker = Worker(live, {"q": handler}).start()
    queue.put_many(range(100))
    eventually(lambda: queue.stats().counters["acked"] == 100)
    queue.put_many(["long", *range(15)])
    assert stuck.wait(PATIENCE)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    eventually(lambda: queue.stats().ready == 15)
    assert {entry.attempt for entry in entries(queue, State.READY)} == {0}
    gate.set()
    stopping.join()
    assert queue.stats().counters["acked"] == 101


def test_a_stop_does_not_wait_long_for_a_store_that_is_away(
    wire: Wire, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler has ended; only its ack cannot be sent. Half a minute is for handlers."""
    began = threading.Event()

    def handler(delivery: Delivery) -> None:
        began.set()
        gate.wait()

    with room_on(wire) as room:
        queue = room.queue("q")
        put = queue.put("x")
        worker = Worker(room, {"q": handler}).start()
        assert began.wait(PATIENCE)
        wire.fail(1_000_000, "turn", "settle")
        gate.set()
        started = time.monotonic()
        worker.stop()
        assert time.monotonic() - started < 20
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.__dict__["ids"] == [put.id]


def test_a_stop_that_takes_too_long_is_told_and_its_work_is_not_acked(
    live: Room, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    queue = live.queue("q", Policy(lease="300ms", ack_timeout="10s"))
    put = queue.put("endless")
    began, before = threading.Event(), set(threading.enumerate())

    def handler(delivery: Delivery) -> None:
        began.set()
        gate.wait()

    worker = Worker(live, {"q": handler}, stop_timeout="100ms").start()
    assert began.wait(PATIENCE)
    started = time.monotonic()
    worker.stop()
    assert 0.1 <= time.monotonic() - started < PATIENCE
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    fields = record.__dict__
    assert (fields["event"], fields["count"], fields["ids"]) == ("worker.unfinished", 1, [put.id])
    gate.set()
    eventually(lambda: not [each for each in set(threading.enumerate()) - before if "hand" in each.name])
    assert queue.stats().counters["acked"] == 0
    again = queue.claim(timeout=PATIENCE)
    assert again and again.id == put.id, "nobody renews its lease any more"


def test_a_worker_that_is_stopping_lets_others_hear_what_comes(hire: Hire, gate: threading.Event) -> None:
    with room_on(poll_timeout="1h") as room:
        queue = room.queue("q", Policy(lease="1h", ack_timeout="1h"))
        began = threading.Event()

        def handler(delivery: Delivery) -> None:
            began.set()
            gate.wait()

        worker = hire(room, {"q": handler}, concurrency=4, keeper=False)
        queue.put("long")
        assert began.wait(PATIENCE)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        eventually(lambda: worker._dispatcher and worker._dispatcher._leaving)
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(queue.claim(timeout=PATIENCE)))
        waiting.start()
        time.sleep(0.1)  # so that it most likely sleeps; if not, it gets the message all the sooner
        queue.put("for the other")
        waiting.join()
        assert got[0] and got[0].body == "for the other"
        gate.set()
        stopping.join()


def test_a_stop_is_not_overheard_by_a_worker_that_just_closes_its_ears(
    live: Room, hire: Hire, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with its hands full hands its rings on, among them the one that tells it to stop."""
    monkeypatch.setattr("postroom.worker.worker._NAP", 60.0)
    disarm = BellWaiter.disarm

    def stop_then_disarm(waiter: BellWaiter) -> None:
        worker.stop(wait=False)
        disarm(waiter)

    worker = hire(live, {"q": lambda delivery: gate.wait()}, keeper=False)
    eventually(lambda: worker._dispatcher and worker._dispatcher._asleep)
    monkeypatch.setattr(BellWaiter, "disarm", stop_then_disarm)
    live.queue("q").put(1)
    eventually(lambda: getattr(worker._dispatcher, "_leaving", True), timeout=PATIENCE / 2)


def test_a_run_ends_when_its_room_is_shut_down_and_empty(live: Room) -> None:
    queue = live.queue("q")
    queue.put_many(range(500))
    queue.put("not yet", delay="1h")
    seen: list[int] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if len(seen) == 3:
            live.shutdown()

    Worker(live, {"q": handler}).run()
    assert seen == list(range(500))
    assert queue.stats().scheduled == 1


def test_an_idle_run_ends_at_once_when_its_room_is_shut_down(
    hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.worker.worker._NAP", 600.0)
    with room_on(poll_timeout="1h") as room:
        room.queue("q", Policy(lease="1h"))
        worker = hire(room, {"q": lambda delivery: None}, keeper=False)
        eventually(lambda: worker._dispatcher and worker._dispatcher._asleep)
        room.shutdown()
        eventually(lambda: not worker._running.locked())


def test_a_worker_takes_what_was_put_just_before_the_shutdown(wire: Wire) -> None:
    """Its queues had nothing when it last asked; that answer must not outlive the shutdown."""
    for _ in range(25):
        room, other = room_on(wire), room_on(wire)
        worker = Worker(room, {"a": lambda delivery: None, "b": lambda delivery: None}, keeper=False).start()
        eventually(lambda w=worker: w._dispatcher and w._dispatcher._asleep)  # type: ignore[misc]
        other.queue("a").put(1)
        other.queue("b").put(2)
        room.shutdown()
        eventually(lambda w=worker: not w._running.locked())  # type: ignore[misc]
        assert [other.queue(name).stats().depth for name in "ab"] == [0, 0]


def test_handlers_can_still_settle_but_not_put_after_a_shutdown(live: Room) -> None:
    queue = live.queue("q", Policy(max_attempts=1))
    queue.put(1)

    def handler(delivery: Delivery) -> None:
        live.shutdown()
        queue.put(2)

    worker = Worker(live, {"q": handler})
    worker.run()
    assert [error["type"] for error in worker.last_exceptions] == ["Closed"]
    assert queue.stats().dead == 1


# ---- Signals, in a process of its own -------------------------------------------------------------

PROGRAM = """
import json, sys, threading, time
import postroom

room = postroom.open("memory://")
queue = room.queue("q", postroom.Policy(keep_done="1h"))
queue.put_many(range(20))
finished = []

def handler(delivery):
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    worker._stopping.wait()
    time.sleep({seconds})
    finished.append(delivery.body)

def watch():
    worker._stopping.wait()
    print("stopping", flush=True)

worker = postroom.Worker(room, {{"q": handler}}, concurrency=2, prefetch=5)
threading.Thread(target=watch, daemon=True).start()
worker.run()
stats = queue.stats()
print(json.dumps({{
    "finished": sorted(finished),
    "acked": stats.counters["acked"],
    "ready": stats.ready,
    "processing": stats.processing,
    "attempts": [entry.attempt for entry in queue.find("ready").entries],
}}), flush=True)
"""


@contextlib.contextmanager
def program(seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process whose worker has begun two messages that take so long."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(seconds=seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(postroom.__file__).parents[1])},
    ) as process:
        try:
            assert process.stdout
            assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_gracefully(name: signal.Signals) -> None:
    with program(0.3) as process:
        process.send_signal(name)
        out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    report = json.loads(out.splitlines()[-1])
    assert report == {
        "finished": [0, 1],
        "acked": 2,
        "ready": 18,
        "processing": 0,
        "attempts": [0] * 18,
    }


def test_a_second_signal_does_not_wait() -> None:
    with program(600) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout and process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors


def test_the_handlers_of_signals_are_put_back(live: Room) -> None:
    before = [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)]
    Worker(live, {"q": lambda delivery: None}).run(drain=True)
    assert [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_run_in_another_thread_leaves_signals_alone(live: Room) -> None:
    before = signal.getsignal(signal.SIGTERM)
    worker = Worker(live, {"q": lambda delivery: None})
    running = threading.Thread(target=worker.run)
    running.start()
    eventually(worker._running.locked)
    assert signal.getsignal(signal.SIGTERM) == before
    worker.stop()
    running.join(PATIENCE)
    assert not running.is_alive()
