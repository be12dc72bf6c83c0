"""The keeper: one leads, and sweeps in time what nobody else looks after."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from postroom import Policy, Worker
from postroom.engines.memory import MemoryEngine
from postroom.errors import EngineUnavailable
from postroom.keeper import LOCK_KEY, LOCK_KIND, Keeper, Lead, Leader, leader
from postroom.logs import LogEntry
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import Hire, Wire, entries, events, eventually, room_on, taken

TTL = 30_000


@pytest.fixture
def lead(room: Room) -> Lead:
    return Lead(room.engine, TTL)


@pytest.fixture
def rival(room: Room) -> Lead:
    return Lead(room.engine, TTL)


# ---- The lock -------------------------------------------------------------------------------------


def test_one_leads_and_the_other_does_not(lead: Lead, rival: Lead) -> None:
    assert lead.hold()
    assert not rival.hold()
    assert lead.hold(), "a renewal"
    assert not rival.hold()


def test_the_lock_is_a_token_with_a_time_to_live(room: Room, lead: Lead, clock: ManualClock) -> None:
    lead.hold()
    record = room.engine.records.get(LOCK_KIND, LOCK_KEY)
    assert record
    assert record.expires == clock() + TTL
    assert len(record.value) >= 16


def test_every_candidate_has_a_token_of_its_own(room: Room, lead: Lead, rival: Lead) -> None:
    tokens = []
    for candidate in (lead, rival):
        candidate.hold()
        record = room.engine.records.get(LOCK_KIND, LOCK_KEY)
        assert record
        tokens.append(record.value)
        candidate.give_up()
    assert len(set(tokens)) == 2


def test_who_gives_up_lets_the_other_lead_at_once(lead: Lead, rival: Lead) -> None:
    lead.hold()
    lead.give_up()
    assert rival.hold()
    assert not lead.hold()


def test_who_is_silent_for_too_long_is_replaced(lead: Lead, rival: Lead, clock: ManualClock) -> None:
    lead.hold()
    clock.advance("29.999s")
    assert not rival.hold()
    clock.advance("1ms")
    assert rival.hold()
    assert not lead.hold(), "and steps down"


def test_renewing_keeps_the_lead(lead: Lead, rival: Lead, clock: ManualClock) -> None:
    for _ in range(5):
        assert lead.hold()
        clock.advance("20s")
        assert not rival.hold()


def test_who_lost_the_lead_cannot_give_up_another_s(
    room: Room, lead: Lead, rival: Lead, clock: ManualClock
) -> None:
    lead.hold()
    clock.advance("31s")
    rival.hold()
    lead.give_up()
    assert room.engine.records.get(LOCK_KIND, LOCK_KEY) is not None
    assert not lead.hold()
    assert rival.hold()


def test_who_was_away_takes_a_free_lead_again(lead: Lead, clock: ManualClock) -> None:
    lead.hold()
    clock.advance("1h")
    assert lead.hold()


def test_giving_up_what_one_never_had_is_fine(lead: Lead, rival: Lead) -> None:
    lead.give_up()
    rival.hold()
    lead.give_up()
    assert rival.hold()


# ---- Who leads, and when it sweeps ---------------------------------------------------------------


def test_a_leader_tells_its_name_and_when_it_sweeps_next(room: Room, clock: ManualClock) -> None:
    room.queue("q", Policy()).put(1)
    assert leader(room.engine) is None
    Keeper(room, "host-a:7").tick()
    assert leader(room.engine) == Leader("host-a:7", clock() + room.config.sweep_interval)


def test_a_sweep_that_comes_sooner_is_told_in_the_same_look(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q", Policy(lease="2s"))
    queue.put(1)
    assert queue.claim(timeout=0)
    Keeper(room).tick()
    found = leader(room.engine)
    assert found
    assert found.next_sweep
    assert (found.name, found.next_sweep <= clock() + 2_000) == (room.consumer, True)


def test_a_leader_of_an_older_release_leads_without_a_name(room: Room) -> None:
    room.engine.records.put(LOCK_KIND, LOCK_KEY, b"0123456789abcdef", ttl=TTL)
    assert leader(room.engine) == Leader()


def test_a_lead_that_told_something_is_known_again_after_a_lost_reply(room: Room, lead: Lead) -> None:
    lead.hold(b"one")
    lead._version = None
    assert lead.hold(b"another")


# ---- Sweeping -------------------------------------------------------------------------------------


def overdue(room: Room, clock: ManualClock, count: int, name: str = "q", **policy: Any) -> Queue:
    """A queue with so many deliveries whose consumer went away; a keeper has noticed the time passing."""
    queue = room.queue(name, Policy(**policy))
    queue.put_many(range(count))
    for _ in range(0, count, 1_000):
        assert queue.claim_many(1_000, timeout=0)
    for _ in range(4):
        clock.advance("9s")
        for info in room.queues():
            room.engine.renew(info.name, [], 1)  # a sign of life: this is no outage
    return queue


def test_a_leader_sweeps_every_queue(room: Room, clock: ManualClock) -> None:
    queues = [overdue(room, clock, 3, name) for name in ("a", "b")]
    assert [queue.stats().overdue for queue in queues] == [3, 3]
    keeper = Keeper(room)
    keeper.tick()
    assert keeper.leading
    assert [(queue.stats().ready, queue.stats().processing) for queue in queues] == [(3, 0), (3, 0)]


def test_a_candidate_that_does_not_lead_sweeps_nothing(room: Room, clock: ManualClock) -> None:
    queue = overdue(room, clock, 3)
    Lead(room.engine, TTL).hold()
    keeper = Keeper(room)
    keeper.tick()
    assert not keeper.leading
    assert queue.stats().overdue == 3


def test_two_keepers_one_leads_and_the_other_takes_over(clock: ManualClock) -> None:
    engine = MemoryEngine(clock)
    first, second = Keeper(room_on(engine)), Keeper(room_on(engine))

    def leads(keeper: Keeper) -> bool:
        keeper.tick()
        return keeper.leading

    for _ in range(3):
        assert (leads(first), leads(second)) == (True, False)
        clock.advance("5s")
    clock.advance("24.999s")
    assert not leads(second), "the first may still come back in time"
    clock.advance("1ms")
    assert leads(second)
    assert not leads(first)
    engine.close()


def test_full_sweeps_are_repeated_at_once(clock: ManualClock) -> None:
    wire = Wire(MemoryEngine(clock))
    room = room_on(wire, sweep_batch=100)
    queue = overdue(room, clock, 250)
    wire.calls.clear()
    Keeper(room).tick()
    sweeps = [call for call in wire.calls if call.verb == "sweep"]
    assert [call.options["limit"] for call in sweeps] == [100, 100, 100]
    assert queue.stats().ready == 250
    assert [entry.count for entry in events(queue.history().entries, "requeue")] == [100, 100, 50]


def test_the_batch_comes_from_the_configuration(clock: ManualClock) -> None:
    wire = Wire(MemoryEngine(clock))
    room = room_on(wire, sweep_batch=40)
    overdue(room, clock, 50)
    wire.calls.clear()
    Keeper(room).tick()
    assert [call.options["limit"] for call in wire.calls if call.verb == "sweep"] == [40, 40]


def test_the_next_look_is_at_the_interval_of_the_configuration_or_sooner(clock: ManualClock) -> None:
    engine = MemoryEngine(clock)
    assert Keeper(room_on(engine, sweep_interval="2s")).tick() == 2_000
    assert Keeper(room_on(engine)).tick() == 5_000
    assert Keeper(room_on(engine, keeper_ttl="6s")).tick() == 2_000, "the lock is renewed three times a life"
    engine.close()


def test_what_is_due_sooner_is_swept_sooner(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q", Policy(ack_timeout="3s"))
    queue.put(1)
    taken(queue)
    clock.advance("1s")
    assert Keeper(room).tick() == 2_000


def test_a_sweep_promotes_what_is_due(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q")
    queue.put(1, delay="1s")
    clock.advance("2s")
    assert queue.stats().scheduled == 1
    Keeper(room).tick()
    assert (queue.stats().scheduled, queue.stats().ready) == (0, 1)


# ---- What is told about it ------------------------------------------------------------------------


def followed(room: Room, sweep: Any) -> list[LogEntry]:
    lifecycle = room.lifecycle()
    sweep()
    return lifecycle.read()


def payload(entry: LogEntry) -> dict[str, Any]:
    return {"count": entry.count, **entry.info}


def test_a_sweep_of_the_keeper_is_told(room: Room, clock: ManualClock) -> None:
    overdue(room, clock, 3)
    (entry,) = followed(room, Keeper(room).tick)
    assert (entry.queue, entry.event, entry.at) == ("q", "requeue", clock())
    assert payload(entry) == {"count": 3, "dlq_count": 0, "triggered_by": "scheduler"}
    assert len(entry.ids) == 3


def test_so_is_one_by_a_claim(room: Room, clock: ManualClock) -> None:
    queue = overdue(room, clock, 3)
    log = followed(room, lambda: queue.claim(timeout=0))
    assert [payload(entry) for entry in log] == [{"count": 3, "dlq_count": 0, "triggered_by": "claim"}]


def test_and_one_by_an_operator(room: Room, clock: ManualClock) -> None:
    overdue(room, clock, 3)
    log = followed(room, lambda: Keeper(room).sweep("q", "operator"))
    assert [payload(entry) for entry in log] == [{"count": 3, "dlq_count": 0, "triggered_by": "operator"}]


def test_reclaimed_or_dead_is_one_decision_and_both_are_told(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q")
    dead = [queue.put(n, max_attempts=1).id for n in range(2)]
    queue = overdue(room, clock, 3)
    log = followed(room, Keeper(room).tick)
    assert {entry.event: payload(entry) for entry in log} == {
        "requeue": {"count": 3, "dlq_count": 2, "triggered_by": "scheduler"},
        "move_to_dlq": {"count": 2},
    }
    assert set(events(log, "move_to_dlq")[0].ids) == set(dead)
    for entry in entries(queue, State.DEAD):
        assert entry.failed_at == clock()
        assert entry.last_error and "attempts used up" in entry.last_error


def test_a_burial_is_told_too(room: Room) -> None:
    queue = room.queue("q")
    queue.put(1)
    log = followed(room, lambda: taken(queue).bury("enough"))
    assert [(entry.event, payload(entry)) for entry in log] == [("move_to_dlq", {"count": 1})]


# ---- The loop -------------------------------------------------------------------------------------


def test_a_keeper_of_its_own_sweeps_until_it_is_stopped() -> None:
    with room_on(sweep_interval="20ms") as room:
        queue = room.queue("q", Policy(lease="60ms", ack_timeout="60ms"))
        queue.put(1)
        taken(queue)
        keeper = Keeper(room)
        keeper.start()
        eventually(lambda: queue.stats().ready == 1)
        keeper.stop()
        assert Lead(room.engine, TTL).hold(), "whoever stops gives up the lead"


def test_a_worker_of_another_queue_sweeps_one_that_nobody_consumes(hire: Hire) -> None:
    with room_on(sweep_interval="20ms") as room:
        orphan = room.queue("orphan", Policy(lease="60ms", ack_timeout="60ms"))
        orphan.put(1)
        taken(orphan)
        worker = hire(room, {"other": lambda delivery: None})
        eventually(lambda: orphan.stats().ready == 1)
        (entry,) = events(orphan.history().entries, "requeue")
        assert entry.info["triggered_by"] == "scheduler"
        worker.stop()


def test_a_worker_need_not_be_a_candidate(wire: Wire) -> None:
    with Worker(room_on(wire), {"q": lambda delivery: None}, keeper=False):
        eventually(lambda: wire.count("turn"))
    written = {call.args[0] for call in wire.calls if call.verb == "records.put"}
    assert (wire.count("sweep"), written - {"worker"}) == (0, set())


def test_a_stopped_worker_gives_up_the_lead(live: Room) -> None:
    with Worker(live, {"q": lambda delivery: None}):
        eventually(lambda: live.engine.records.get(LOCK_KIND, LOCK_KEY))
    assert live.engine.records.get(LOCK_KIND, LOCK_KEY) is None


def test_the_loop_survives_an_engine_that_fails(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(room_on(wire, sweep_interval="5ms"))
    wire.fail(3, "records.put")
    wire.fail(3, "queues")
    keeper.start()
    eventually(lambda: not wire.failing)
    eventually(lambda: keeper.leading)
    keeper.stop()
    failed = [record for record in caplog.records if record.__dict__.get("event") == "keeper.failed"]
    assert len(failed) == 6
    assert {record.levelname for record in failed} == {"WARNING"}


def test_the_loop_ends_with_its_engine(live: Room) -> None:
    before = set(threading.enumerate())
    keeper = Keeper(live)
    keeper.start()
    live.close()
    keeper._stop.set()
    keeper.stop()
    assert set(threading.enumerate()) - before == set()


def test_a_keeper_that_cannot_give_up_its_lead_still_stops(wire: Wire) -> None:
    keeper = Keeper(room_on(wire))
    keeper.tick()
    wire.fail(1, "records.delete")
    keeper.stop()
    assert not wire.failing


def test_the_loop_does_not_run_in_a_tight_circle(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[float] = []

    def tick(self: Keeper, triggered_by: str = "scheduler", *, only_due: bool = False) -> int:
        ticks.append(time.monotonic())
        return 0

    monkeypatch.setattr(Keeper, "tick", tick)
    keeper = Keeper(room_on(wire))
    keeper.start()
    eventually(lambda: len(ticks) > 10)
    keeper.stop()
    assert ticks[10] - ticks[0] >= 0.1


# ---- Its pace -------------------------------------------------------------------------------------


def test_a_lost_reply_does_not_cost_the_lead(wire: Wire) -> None:
    lead = Lead(room_on(wire).engine, TTL)
    wire.fail(1, "records.put", arrived=True)
    with pytest.raises(EngineUnavailable):
        lead.hold()
    assert lead.hold(), "it was taken, only nobody heard of it"


def test_a_busy_queue_does_not_have_the_others_swept_more_often(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.keeper._LEAST_WAIT", 3_600_000)
    room = room_on(wire, sweep_interval="1h")
    room.queue("busy", Policy(lease="1h")).put(1, delay="50ms")
    room.queue("quiet", Policy(lease="1h")).put(1)
    keeper = Keeper(room)
    for _ in range(50):
        room.queue("busy").put("again", delay="1ms")
        keeper.tick(only_due=True)
    swept = [call.args[0] for call in wire.calls if call.verb == "sweep"]
    assert (swept.count("busy"), swept.count("quiet")) == (1, 1)


def test_a_queue_that_is_gone_is_forgotten(wire: Wire) -> None:
    room = room_on(wire)
    room.queue("gone").put(1)
    keeper = Keeper(room)
    keeper.tick(only_due=True)
    room.queue("gone").drop(force=True)
    assert keeper.tick(only_due=True) > 0


# ---- What a door has to look after ------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
def test_a_chore_is_done_whoever_leads_and_when_it_wants_to_be(room: Room, leads: bool) -> None:
    if not leads:
        Lead(room.engine, TTL).hold()
    done = threading.Semaphore(0)

    def chore() -> int:
        done.release()
        return 20

    keeper = Keeper(room, chores=[chore])
    keeper.start()
    try:
        for _ in range(3):
            assert done.acquire(timeout=4), "sooner than the keeper itself would look"
        assert keeper.leading is leads
    finally:
        keeper.stop()


def test_a_chore_that_fails_keeps_the_keeper_from_nothing(clock: ManualClock) -> None:
    room, tried = room_on(MemoryEngine(clock), sweep_interval="1s"), threading.Semaphore(0)
    queue = overdue(room, clock, 3)

    def chore() -> int:
        tried.release()
        raise EngineUnavailable("away")

    keeper = Keeper(room, chores=[chore])
    keeper.start()
    try:
        for _ in range(2):
            assert tried.acquire(timeout=10), "it is tried again"
        assert queue.stats().ready == 3
    finally:
        keeper.stop()
        room.close()
