"""How long messages wait: measured by the engine's clock, kept in the store, against what is promised."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Policy, config
from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import InvalidInput
from postroom.model import NewMessage, Settlement, Verb
from postroom.room import Room
from postroom.telemetry import Observed, Sla, samples
from postroom.telemetry.histogram import BOUNDS
from postroom.telemetry.samples import Recorder
from postroom.testing import ManualClock
from tests.door.staging import Wire, eventually, room_on

LEASE = 30_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Observed]:
    engine = Observed(MemoryEngine(clock))
    yield engine
    engine.close()


def measured(engine: Engine, key: str) -> Any:
    """The spans of this thing as they are in the store, about, in seconds: (count, sum)."""
    if isinstance(engine, Observed):
        engine.recorder.flush()
    found = samples.read(engine, key)
    return {name: (sample.all().count, round(sample.all().sum, 3)) for name, sample in found.items()}


# ---- What is measured -----------------------------------------------------------------------------


def test_the_wait_is_from_the_due_time_to_the_start(engine: Observed, clock: ManualClock) -> None:
    engine.put("emails", [NewMessage(), NewMessage(delay=10_000)])
    clock.advance("12s")
    assert len(engine.claim("emails", ClaimRequest(n=2, lease=LEASE)).deliveries) == 2
    assert measured(engine, "wait:") == {"emails": (2, 12.0 + 2.0)}


@pytest.mark.parametrize("lease", [None, 1_000, 300_000])
@pytest.mark.parametrize("ack_timeout", ["5s", "10m"])
def test_the_wait_does_not_depend_on_lease_and_ack_timeout(
    engine: Observed, clock: ManualClock, lease: int | None, ack_timeout: str
) -> None:
    engine.declare("emails", Policy(ack_timeout=ack_timeout))
    engine.put("emails", [NewMessage()])
    clock.advance("7s")
    engine.claim("emails", ClaimRequest(lease=lease))
    assert measured(engine, "wait:") == {"emails": (1, 7.0)}


def test_a_message_that_is_held_waits_until_it_is_started(
    engine: Observed, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([100.0, 100.0, 103.0, 103.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    engine.put("emails", [NewMessage()])
    clock.advance("2s")
    (held,) = engine.turn("emails", [], [], ClaimRequest(start=0, lease=LEASE)).claimed.deliveries
    engine.turn("emails", [], [held.receipt], None)
    assert measured(engine, "wait:") == {"emails": (1, 5.0)}


def test_only_first_attempts_wait(engine: Observed, clock: ManualClock) -> None:
    engine.put("emails", [NewMessage()])
    (leased,) = engine.claim("emails", ClaimRequest(lease=LEASE)).deliveries
    engine.settle("emails", [Settlement(leased.receipt, Verb.RETRY, delay=1_000)])
    clock.advance("60s")
    assert engine.claim("emails", ClaimRequest(lease=LEASE)).deliveries
    assert measured(engine, "wait:") == {"emails": (1, 0.0)}


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.RETRY, Verb.BURY])
def test_the_work_is_from_the_start_to_the_answer(
    engine: Observed, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put("emails", [NewMessage()])
    seconds = iter([100.0, 104.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    (leased,) = engine.claim("emails", ClaimRequest(lease=LEASE)).deliveries
    engine.settle("emails", [Settlement(leased.receipt, verb)])
    assert measured(engine, "process:") == {"emails": (1, 4.5)}


def test_what_was_handed_back_or_lost_is_no_work(engine: Observed) -> None:
    engine.put("emails", [NewMessage()])
    (leased,) = engine.claim("emails", ClaimRequest(lease=LEASE)).deliveries
    engine.settle("emails", [Settlement(leased.receipt, Verb.RELEASE)])
    engine.settle("emails", [Settlement(leased.receipt, Verb.ACK)])
    assert measured(engine, "process:") == {}


def test_deliveries_that_are_never_settled_do_not_pile_up(
    engine: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.telemetry.observed._MOST", 10)
    monkeypatch.setattr("postroom.telemetry.observed._CLOSE", -1.0)
    engine.put("emails", [NewMessage() for _ in range(40)])
    engine.claim("emails", ClaimRequest(n=20, lease=LEASE))
    engine.claim("emails", ClaimRequest(n=20, start=0, lease=LEASE))
    assert len(engine._open) == 10


def test_of_claims_that_follow_closely_fewer_are_timed_and_count_for_more(
    engine: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.telemetry.observed._CLOSE", 3_600.0)
    engine.put("emails", [NewMessage() for _ in range(80)])
    engine._drain("emails").timed_at = -3_600.0  # long ago
    timed: list[int] = []
    for n in (40, 4, 20, 16):
        leased = engine.claim("emails", ClaimRequest(n=n, lease=LEASE)).deliveries
        timed.append(len(engine._open))
        engine.settle("emails", [Settlement(each.receipt) for each in leased])
    assert timed == [8, 2, 0, 0], "of a large one none"
    assert measured(engine, "wait:")["emails"][0] == 80
    assert measured(engine, "process:")["emails"][0] == 80


def test_of_a_fast_drain_what_is_timed_counts_for_what_was_passed_over(
    engine: Observed, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait of each claim, and the work of the next that is timed; retries have not waited."""
    seconds = iter([100.0, 100.01, 100.02, 100.03, 102.0, 105.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    engine.put("emails", [NewMessage() for _ in range(60)])
    for wait in ("1s", "2s", "3s"):
        clock.advance(wait)
        leased = engine.claim("emails", ClaimRequest(n=20, lease=LEASE)).deliveries
        engine.settle("emails", [Settlement(each.receipt) for each in leased])
    assert measured(engine, "wait:") == {"emails": (60, 20 * (1.0 + 3.0 + 6.0))}
    assert measured(engine, "process:") == {"emails": (60, 20 * 0.01 + 40 * 3.0)}


def test_of_a_large_claim_every_nth_is_timed_and_counts_for_n(engine: Observed, clock: ManualClock) -> None:
    engine.put("emails", [NewMessage() for _ in range(997)])
    clock.advance("2s")
    leased = engine.claim("emails", ClaimRequest(n=1_000, lease=LEASE)).deliveries
    engine.settle("emails", [Settlement(each.receipt) for each in leased])
    assert measured(engine, "wait:") == {"emails": (997, 2.0 * 997)}
    assert measured(engine, "process:")["emails"][0] == 997
    assert not engine._open


def test_a_worker_is_measured() -> None:
    with room_on(Observed(MemoryEngine())) as room:
        queue = room.queue("emails", policy=Policy(sla_p95="10m"))
        queue.put_many(range(50))
        postroom.Worker(room, {"emails": lambda delivery: None}, concurrency=3).run(drain=True)
        room.engine.recorder.flush()  # type: ignore[attr-defined]  # the engine is one that is watched
        (sla,) = room.sla()
        assert (sla.count, sla.target, sla.met, sla.within) == (50, 600_000, True, 1.0)
        assert measured(room.engine, "process:")["emails"][0] == 50


# ---- Against what is promised ---------------------------------------------------------------------


def waits(engine: Observed, clock: ManualClock, *seconds: int) -> None:
    for wait in seconds:
        engine.put("emails", [NewMessage()])
        clock.advance(wait)
        (leased,) = engine.claim("emails", ClaimRequest(lease=LEASE)).deliveries
        engine.settle("emails", [Settlement(leased.receipt)])
    engine.recorder.flush()


def room_of(engine: Observed) -> Room:
    return Room(engine, config.load(environ={}))


def test_the_p95_is_that_of_all_and_misses_its_target(engine: Observed, clock: ManualClock) -> None:
    engine.declare("emails", Policy(sla_p95="5s"))
    waits(engine, clock, *[1] * 90, *[20] * 10)
    (sla,) = room_of(engine).sla()
    assert sla.queue == "emails"
    assert sla.p95
    assert 17_500 <= sla.p95 <= 20_500
    assert (sla.met, sla.within, sla.count) == (False, 0.9, 100)


def test_a_queue_without_a_promise_has_a_p95_and_no_verdict(engine: Observed, clock: ManualClock) -> None:
    waits(engine, clock, 2)
    engine.declare("quiet", Policy(sla_p95="1s"))
    emails, quiet = room_of(engine).sla()
    assert (emails.target, emails.met, emails.within) == (None, None, None)
    assert emails.p95 is not None
    assert quiet == Sla(queue="quiet", target=1_000, p95=None, p50=None, count=0, within=None)
    assert quiet.met is None


def test_only_the_asked_span_counts_and_an_hour_is_kept(engine: Observed, clock: ManualClock) -> None:
    waits(engine, clock, 20)
    clock.advance("10m")
    waits(engine, clock, 1)
    room = room_of(engine)
    assert room.sla("5m")[0].count == 1
    assert room.sla("1h")[0].count == 2
    clock.advance("2h")
    waits(engine, clock, 1)
    assert room.sla("1h")[0].count == 1
    (sample,) = samples.read(engine, "wait:").values()
    assert len(sample.minutes) == 1, "older minutes are gone"
    assert sample.all().count == 3, "the total is not"


# ---- Kept in the store ----------------------------------------------------------------------------


def test_several_processes_add_to_one_sample() -> None:
    engine = MemoryEngine()
    recorders = [Recorder(engine) for _ in range(4)]

    def work(recorder: Recorder) -> None:
        for _ in range(25):
            recorder.add("wait:emails", [(0.1, 1), (0.2, 1)])
            recorder.flush()
        eventually(lambda: _flushed(recorder))

    threads = [threading.Thread(target=work, args=(recorder,)) for recorder in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert measured(engine, "wait:") == {"emails": (200, 30.0)}
    for recorder in recorders:
        recorder.close()
    engine.close()


def _flushed(recorder: Recorder) -> bool:
    recorder.flush()
    return not recorder._pending and not recorder._sent


def test_what_another_adds_between_the_look_and_the_write_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    one, other = Recorder(engine), Recorder(engine)
    one.add("wait:emails", [(0.1, 1)])
    other.add("wait:emails", [(0.2, 1)])
    look, others = engine.records.get, [other]

    def get(kind: str, key: str) -> Any:
        found = look(kind, key)
        if others:
            others.pop().flush()
        return found

    monkeypatch.setattr(engine.records, "get", get)
    one.flush()
    assert measured(engine, "wait:") == {"emails": (2, 0.3)}
    one.close()
    other.close()
    engine.close()


def test_spans_of_every_length_for_an_hour_fit_into_their_record(clock: ManualClock) -> None:
    engine = MemoryEngine(clock)
    recorder = Recorder(engine)
    for _ in range(samples.KEPT):
        clock.advance("1m")
        recorder.add("wait:emails", [(bound, 1_000) for bound in BOUNDS])
        recorder.flush()
    assert _flushed(recorder)
    (sample,) = samples.read(engine, "wait:").values()
    exact, kept = sample.all(), sample.last(60 * samples.MINUTE, engine.now())
    assert exact.count == kept.count == samples.KEPT * 1_000 * len(BOUNDS)
    assert len(exact.counts) == len(BOUNDS), "the total stays as it is"
    for percent in (50, 95):
        told, true = kept.percentile(percent), exact.percentile(percent)
        assert told and true
        assert true <= told < true * 1.6, "longer rather than shorter"
    recorder.close()
    engine.close()


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("verb", ["records.get", "records.put"])
def test_what_fails_on_its_way_is_added_once(verb: str, arrived: bool) -> None:
    engine = MemoryEngine()
    wire = Wire(engine)
    recorder = Recorder(wire)  # type: ignore[arg-type]  # a wire stands where an engine stands
    wire.fail(2, verb, arrived=arrived)
    recorder.add("wait:emails", [(0.1, 1)])
    recorder.flush()
    recorder.add("wait:emails", [(0.1, 1)])
    for _ in range(4):
        recorder.flush()
    assert measured(engine, "wait:") == {"emails": (2, 0.2)}
    recorder.close()
    engine.close()


def test_what_cannot_be_written_holds_up_nobody_and_stays_small() -> None:
    engine = MemoryEngine()
    wire = Wire(engine)
    recorder = Recorder(wire)  # type: ignore[arg-type]  # a wire stands where an engine stands
    wire.fail(1_000, "records.put", "records.get")
    for _ in range(50):
        recorder.add("wait:emails", [(0.1, 1)])
        recorder.flush()
    assert len(recorder._pending) + len(recorder._sent) == 2
    wire._failures.clear()
    recorder.flush()
    recorder.flush()
    assert measured(engine, "wait:") == {"emails": (50, 5.0)}
    recorder.close()
    engine.close()


def test_there_is_a_limit_to_different_things(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("postroom.telemetry.samples._MOST", 3)
    engine = MemoryEngine()
    recorder = Recorder(engine)
    for number in range(10):
        recorder.add(f"timer:{number}", [(0.1, 1)])
    recorder.close()
    assert len(measured(engine, "timer:")) == 3
    assert [record.getMessage() for record in caplog.records] == ["too many things to measure"]
    engine.close()


def test_the_last_of_it_is_kept_when_the_room_closes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url, telemetry=True) as room:
        room.queue("emails").put(1)
        postroom.Worker(room, {"emails": lambda delivery: None}).run(drain=True)
    with postroom.open(url) as room:
        assert [sla.count for sla in room.sla()] == [1]


def test_it_is_kept_while_a_worker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.telemetry.samples.EVERY", 0.05)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url, telemetry=True) as room, postroom.open(url) as other:
        room.queue("emails").put(1)
        with postroom.Worker(room, {"emails": lambda delivery: None}):
            eventually(lambda: other.sla() and other.sla()[0].count == 1, timeout=60)


def _work_in_child(url: str) -> None:
    with postroom.open(url, telemetry=True) as room:
        postroom.Worker(room, {"emails": lambda delivery: None}).run(drain=True)


def test_processes_are_measured_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url, telemetry=True) as room:
        room.queue("emails").put_many(range(200))
        spawn = multiprocessing.get_context("spawn")
        children = [spawn.Process(target=_work_in_child, args=(url,)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(240)
            assert child.exitcode == 0
        assert room.sla()[0].count == 200


def test_a_forked_child_adds_only_its_own() -> None:
    engine = MemoryEngine()
    observed = Observed(engine)
    observed.recorder.add("wait:emails", [(0.1, 1)])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # no assert and no cleanup here: this is a copy of the test run
        os.write(writer, b"%d" % len(observed.recorder._pending))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"0"
    os.waitpid(child, 0)
    assert measured(observed, "wait:") == {"emails": (1, 0.1)}
    observed.close()


def test_off_it_is_not_there(tmp_path: Path) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        assert not isinstance(room.engine, Observed)
        room.queue("emails").put(1)
        postroom.Worker(room, {"emails": lambda delivery: None}).run(drain=True)
        assert [sla.count for sla in room.sla()] == [0]


def test_more_than_is_kept_is_refused() -> None:
    with postroom.open("memory://") as room, pytest.raises(InvalidInput, match=r"over: .* at most 1h"):
        room.sla("61m")
