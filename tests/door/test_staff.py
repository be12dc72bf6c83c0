"""Who works in a room: told by each worker, every ten seconds, until it stops or is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import postroom
from postroom import Delivery, audit, staff
from postroom.breaker import Breaker
from postroom.engines.memory import MemoryEngine
from postroom.errors import Conflict, EngineUnavailable, InvalidInput, NotFound
from postroom.room import Room
from postroom.staff import BEAT, KEPT, KIND, LOST, Attendance, WorkerInfo, guarded, read_workers, this_process
from postroom.testing import ManualClock
from postroom.worker import runs
from tests.door.staging import PATIENCE, Hire, Wire, eventually, room_on


def named(room: Room) -> dict[str, WorkerInfo]:
    return {worker.name: worker for worker in room.workers()}


def test_a_worker_shows_itself(room: Room, clock: ManualClock, hire: Hire) -> None:
    began = clock()
    hire(room, {"a": print, "b": print}, concurrency=3, name="w", role="fast", keeper=False)
    eventually(room.workers)
    (worker,) = room.workers()
    assert (worker.name, worker.role, worker.door) == ("w", "fast", "python")
    assert (worker.host, worker.pid) == (os.uname().nodename, os.getpid())
    assert (worker.queues, worker.concurrency) == (("a", "b"), 3)
    assert (worker.busy, worker.in_flight, worker.ids) == (0, 0, ())
    assert worker.versions.keys() == {"postroom", "python"}
    assert worker.last_seen == began
    assert not worker.lost


def test_which_queues_wait_for_a_breaker_is_told(room: Room, hire: Hire) -> None:
    psp = Breaker("psp", room=room)
    hire(room, {"pay": print, "mail": print}, name="a", breakers={"pay": psp})
    hire(room, {"refund": print}, name="b", breakers={"refund": psp})
    eventually(lambda: guarded(room.engine) == {"psp": ["pay", "refund"]})
    assert named(room)["a"].breakers == {"pay": "psp"}


def test_a_worker_that_stops_leaves_at_once(room: Room, hire: Hire) -> None:
    first, second = hire(room, {"a": print}), hire(room, {"b": print})
    eventually(lambda: len(room.workers()) == 2)
    assert first.name == second.name, "two of one process are told apart all the same"
    first.stop()
    assert [worker.queues for worker in room.workers()] == [("b",)]
    second.stop()
    assert room.workers() == []


def test_what_it_holds_and_works_on_is_told(
    room: Room, hire: Hire, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 10)
    began: list[str] = []

    def work(delivery: Delivery) -> None:
        began.append(delivery.id)
        gate.wait(PATIENCE)

    ids = sorted(put.id for put in room.queue("q").put_many(range(30)))
    hire(room, {"q": work}, concurrency=2, prefetch=28, name="w", keeper=False)
    eventually(lambda: room.workers() and named(room)["w"].in_flight == 30 and named(room)["w"].busy == 2)
    worker = named(room)["w"]
    assert set(began) <= set(ids)
    assert worker.ids == tuple(ids[:20]), "the oldest, and no more than fit into a small record"


def test_what_took_a_while_is_told_with_how_it_ended(
    room: Room, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 10)

    def work(delivery: Delivery) -> None:
        if delivery.body != "quick":
            time.sleep(runs.WORTH + 0.01)
        if delivery.body == "bad":
            raise postroom.Bury("no")

    ids = [room.queue("q").put(body, kind="work").id for body in ("slow", "quick", "bad")]
    hire(room, {"q": work}, name="w")
    eventually(lambda: len(named(room)["w"].runs) == 2 if "w" in named(room) else False)
    slow, bad = named(room)["w"].runs
    assert [(slow.id, slow.verb), (bad.id, bad.verb)] == [(ids[0], "ack"), (ids[2], "bury")]
    assert (slow.queue, slow.kind, slow.ran >= 250, slow.ago >= bad.ran) == ("q", "work", True, True)


def test_the_newest_runs_are_told_and_no_body_is_kept(monkeypatch: pytest.MonkeyPatch, room: Room) -> None:
    known = runs.Runs()
    for n in range(runs.MOST + 5):
        room.queue("q").put("x" * 1_000, kind=str(n))
        delivery = room.queue("q").claim(timeout=0)
        assert delivery
        known.note(delivery, 1.0, None)
        gone = weakref.ref(delivery)
    del delivery
    assert gone() is None
    assert [run.kind for run in known.told()] == [str(n) for n in range(5, runs.MOST + 5)]
    monkeypatch.setattr(runs, "SPAN", -1.0)
    assert known.told() == ()


def test_a_worker_that_says_nothing_is_lost_and_then_forgotten(clock: ManualClock, room: Room) -> None:
    wire = Wire(room.engine)
    worker = postroom.Worker(room_on(wire), {"q": print}, name="w", keeper=False).start()
    eventually(room.workers)
    wire.cut()
    clock.advance(f"{LOST}ms")
    assert not named(room)["w"].lost
    clock.advance("1ms")
    assert named(room)["w"].lost
    clock.advance(f"{KEPT - LOST - 2}ms")
    assert named(room)["w"].lost
    clock.advance("2ms")
    assert room.workers() == []
    wire.bury()
    worker.stop()


def test_it_shows_itself_again_and_again(
    room: Room, clock: ManualClock, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 10)
    hire(room, {"q": print}, name="w", keeper=False)
    eventually(room.workers)
    started = named(room)["w"].started
    clock.advance("2m")
    eventually(lambda: not named(room)["w"].lost)
    assert named(room)["w"].started == started


def test_a_store_that_is_away_costs_a_beat_and_no_more(
    wire: Wire, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 10)
    wire.fail(3, "records.put")
    room = room_on(wire)
    hire(room, {"q": print}, keeper=False)
    eventually(lambda: not wire.failing)
    eventually(room.workers)


def test_who_leaves_while_the_store_is_away_is_not_held_up(wire: Wire) -> None:
    room = room_on(wire)
    worker = postroom.Worker(room, {"q": print}, keeper=False).start()
    eventually(room.workers)
    wire.fail(1, "records.delete")
    worker.stop()
    assert len(room.workers()) == 1, "its record ends by itself"


def test_a_beat_is_one_small_write(wire: Wire) -> None:
    info = msgspec.structs.replace(
        this_process("w"), ids=tuple(map("{:032x}".format, range(1_000))), queues=("q" * 200,) * 500
    )
    attendance = Attendance(room_on(wire).engine, lambda: info)
    attendance.beat()
    wire.calls.clear()
    attendance.beat()
    (call,) = wire.calls
    assert call.verb == "records.put"
    assert len(call.args[2]) < 25_000
    assert call.options.keys() == {"ttl", "expect"} and call.options["ttl"] == KEPT
    (worker,) = room_on(wire).workers()
    assert (worker.in_flight, len(worker.ids), len(worker.queues)) == (1_000, 20, 100)


def test_a_beat_may_take_another_way(room: Room) -> None:
    wire = Wire(room.engine)
    wire.fail(9)
    attendance = Attendance(room_on(wire).engine, lambda: this_process("w"))
    with pytest.raises(EngineUnavailable):
        attendance.beat()
    attendance.beat(room.engine)
    assert list(named(room)) == ["w"]


def test_a_worker_of_a_newer_release_is_there_all_the_same(room: Room) -> None:
    room.engine.records.put(KIND, "new one 0123456789abcdef", b"\x01 something else", ttl=KEPT)
    room.engine.records.put(KIND, "next 0123456789abcdef", b'{"name": "next", "mood": "good"}', ttl=KEPT)
    assert list(named(room)) == ["new one", "next"]


def test_a_worker_with_a_long_name_is_shown(room: Room) -> None:
    Attendance(room.engine, lambda: this_process("ä" * 900)).beat()
    assert list(named(room)) == ["ä" * 900]


def test_a_beat_comes_often_enough_not_to_be_lost() -> None:
    assert 3 * BEAT <= LOST < KEPT


# ---- what a worker is told -------------------------------------------------------------------------


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that hear at once."""
    monkeypatch.setattr(staff, "BEAT", 10)


@pytest.mark.usefixtures("prompt")
def test_a_quiet_worker_finishes_what_it_began_and_claims_no_more(
    room: Room, hire: Hire, gate: threading.Event
) -> None:
    began: list[str] = []

    def work(delivery: Delivery) -> None:
        began.append(delivery.id)
        gate.wait(PATIENCE)

    room.queue("q").put_many(range(5))
    hire(room, {"q": work}, prefetch=3, name="w", keeper=False)
    eventually(lambda: len(began) == 1)
    eventually(lambda: "w" in named(room))
    told = room.tell_worker("w", "quiet")
    assert (told.told, told.state) == ("quiet", "working"), "it has not heard it yet"
    eventually(lambda: named(room)["w"].state == "quiet")
    eventually(lambda: room.engine.stats("q").ready == 4)
    gate.set()
    eventually(lambda: room.engine.stats("q").counters["acked"] == 1)
    room.queue("q").put("more")
    assert (named(room)["w"].told, room.engine.stats("q").ready, len(began)) == ("", 5, 1)
    room.tell_worker(named(room)["w"].id, "resume")
    eventually(lambda: room.engine.stats("q").counters["acked"] == 6)
    eventually(lambda: named(room)["w"].state == "working")


@pytest.mark.usefixtures("prompt")
def test_a_worker_that_is_told_to_stop_ends_gracefully(room: Room) -> None:
    worker = postroom.Worker(room, {"q": print}, name="w", keeper=False)
    ended = threading.Thread(target=worker.run)
    ended.start()
    eventually(room.workers)
    room.tell_worker("w", "stop")
    ended.join(PATIENCE)
    assert not ended.is_alive()
    assert room.workers() == [], "it left, as one that was stopped by hand"
    with pytest.raises(NotFound, match="has stopped, or was never"):
        room.tell_worker("w", "stop")


def test_a_word_is_heard_with_the_next_beat_and_only_once(wire: Wire) -> None:
    heard: list[str] = []
    room = room_on(wire)
    attendance = Attendance(room.engine, lambda: this_process("w"), heard.append)
    attendance.beat()
    room.tell_worker("w", "quiet")
    room.tell_worker("w", "stop")
    attendance.beat()
    attendance.beat()
    assert heard == ["stop"], "the later word replaces the one that was not heard yet"
    wire.calls.clear()
    attendance.beat()
    assert [call.verb for call in wire.calls] == ["records.put"], "who is told nothing asks nothing"


def test_a_word_survives_a_beat_that_fails(wire: Wire) -> None:
    heard: list[str] = []
    room = room_on(wire)
    attendance = Attendance(room.engine, lambda: this_process("w"), heard.append)
    attendance.beat()
    room.tell_worker("w", "quiet")
    wire.fail(1, "records.put")
    with pytest.raises(EngineUnavailable):
        attendance.beat()
    assert heard == []
    attendance.beat()
    assert heard == ["quiet"]


def test_a_record_that_ended_while_the_store_was_away_is_written_anew(clock: ManualClock, room: Room) -> None:
    attendance = Attendance(room.engine, lambda: this_process("w"), print)
    attendance.beat()
    clock.advance(f"{KEPT + 1}ms")
    assert room.workers() == []
    attendance.beat()
    assert list(named(room)) == ["w"]


def test_who_cannot_hear_is_not_told(clock: ManualClock, room: Room) -> None:
    Attendance(room.engine, lambda: this_process("old")).beat()
    with pytest.raises(Conflict, match="runs a release"):
        room.tell_worker("old", "quiet")
    Attendance(room.engine, lambda: this_process("w"), print).beat()
    Attendance(room.engine, lambda: this_process("w"), print).beat()
    with pytest.raises(Conflict, match="2 workers are called 'w'"):
        room.tell_worker("w", "quiet")
    clock.advance(f"{LOST + 1}ms")
    one = named(room)["w"]
    with pytest.raises(Conflict, match="was lost"):
        room.tell_worker(one.id, "stop")
    assert named(room)["w"].told == ""
    with pytest.raises(InvalidInput, match="quiet, resume, stop"):
        room.tell_worker(one.id, "dance")  # type: ignore[arg-type]


def test_to_tell_a_worker_changes_nothing_about_when_it_was_seen(clock: ManualClock, room: Room) -> None:
    Attendance(room.engine, lambda: this_process("w"), print).beat()
    before = named(room)["w"].last_seen
    clock.advance("20s")
    room.tell_worker("w", "quiet")
    assert named(room)["w"].last_seen == before
    room.tell_worker("w", "stop")
    with pytest.raises(Conflict, match="stops already"):
        room.tell_worker("w", "resume")


def test_what_a_worker_is_told_is_in_the_audit(room: Room) -> None:
    Attendance(room.engine, lambda: this_process("w"), print).beat()
    with audit.acting("jo"), audit.watched("deploy"):
        told = room.tell_worker("w", "quiet")
    (act,) = audit.read(room.engine).acts
    assert (act.event, act.by) == ("quiet_worker", "jo")
    assert act.info == {"worker": "w", "id": told.id, "reason": "deploy"}


# ---- a real process, killed ------------------------------------------------------------------------

SCRIPT = """
import sys, postroom
with postroom.open(sys.argv[1]) as room:
    postroom.Worker(room, {"q": print}, name="w", keeper=False).run()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, f"sqlite:///{tmp_path}/jobs.db"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_is_lost_a_stopped_one_is_gone(
    process: subprocess.Popen[bytes], tmp_path: Path, how: signal.Signals
) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        eventually(room.workers)
        (worker,) = room.workers()
        assert (worker.pid, worker.lost) == (process.pid, False)
        process.send_signal(how)
        process.wait(PATIENCE)
        left = room.workers()
        if how is signal.SIGTERM:
            assert left == []
        else:
            assert [worker.pid for worker in left] == [process.pid]


def test_workers_are_read_as_they_stand_by_the_engines_clock(clock: ManualClock) -> None:
    engine = MemoryEngine(clock)
    Attendance(engine, lambda: this_process("w")).beat()
    at = clock()
    clock.advance("7s")
    assert [(each.last_seen, each.started <= at) for each in read_workers(engine)] == [(at, True)]
    engine.close()
