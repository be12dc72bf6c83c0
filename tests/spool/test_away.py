"""While Redis is away: what is put, claimed and settled, and what cannot be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from postroom.engine import ClaimRequest, QueueInfo
from postroom.engines.memory import MemoryEngine
from postroom.engines.spool import SpoolEngine, Switch, debts
from postroom.errors import ConfigError, Conflict, EngineUnavailable, InvalidInput, QueueFull, Uncertain
from postroom.model import (
    NewMessage,
    Outcome,
    Receipt,
    Settlement,
    State,
    Verb,
)
from postroom.policy import Policy
from postroom.stats import Memory
from tests.spool.stage import (
    PATIENCE,
    Remote,
    await_away,
    await_back,
    await_moved,
    claim,
    eventually,
    hanging,
    ids,
    left,
    opened,
    put,
)

# --- which error means away -----------------------------------------------------------------------


def test_a_put_that_is_refused_lands_in_the_spool(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    id = put(engine, body=b"1")
    assert not engine.redis_active
    assert ids(claim(engine)) == [id]


def test_answers_are_no_outage(remote: Remote, engine: SpoolEngine) -> None:
    engine.declare("full", Policy(capacity=1))
    put(engine, "full")
    with pytest.raises(QueueFull) as full:
        put(engine, "full")
    assert full.value.reason == "capacity"
    with pytest.raises(InvalidInput):
        put(engine, expires=1)
    with pytest.raises(Conflict):
        engine.drop("full")
    assert engine.redis_active
    assert left(engine) == 0


def test_a_wrong_password_at_the_start_is_a_wrong_password(quick: None) -> None:
    def connect() -> None:
        raise ConfigError("the password is wrong")

    with pytest.raises(ConfigError):
        SpoolEngine(connect, Remote().engine)  # type: ignore[arg-type]


def test_a_server_that_comes_back_unusable_is_still_away(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote.refuse()
    put(engine)

    def refuse(*args: object, **options: object) -> None:
        raise ConfigError("the password is wrong")

    monkeypatch.setattr(remote.engine.records, "put", refuse)
    remote.answer()
    eventually(lambda: [r for r in caplog.records if r.__dict__.get("event") == "spool.config"])
    assert not engine.redis_active
    monkeypatch.undo()
    await_moved(engine)


# --- bounded --------------------------------------------------------------------------------------


def test_a_put_waits_no_longer_than_the_timeout(remote: Remote, engine: SpoolEngine) -> None:
    with hanging(remote, engine):
        began = time.monotonic()
        id = put(engine)
        assert 1.0 <= time.monotonic() - began < PATIENCE / 2
        asked = remote.verbs.count("put")
        later = put(engine)
        assert remote.verbs.count("put") == asked, "who knows that Redis is away does not ask"
        assert ids(claim(engine)) == [later], "nobody knows whether Redis has the first one"
    eventually(lambda: engine.redis_active)
    eventually(lambda: [entry.id for entry in engine.find("q", State.READY).entries] == [id])


def test_every_caller_is_bounded_at_once(remote: Remote, engine: SpoolEngine) -> None:
    with hanging(remote, engine):
        began = time.monotonic()
        threads = [threading.Thread(target=put, args=(engine,)) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < PATIENCE / 2, "they waited one after the other"
        assert engine.spool.stats("q").depth == 40


def test_a_claim_that_answers_too_late_is_handed_back(remote: Remote, engine: SpoolEngine) -> None:
    id = put(engine)
    with hanging(remote, engine, "turn"):
        assert claim(engine) == []
        await_away(engine)
    eventually(lambda: engine.redis_active)
    eventually(lambda: remote.engine.stats("q").counters["released"] == 1)
    (leased,) = claim(engine)
    assert (leased.message.id, leased.attempt) == (id, 0)


def test_a_failure_from_before_the_return_says_nothing_about_now(remote: Remote, engine: SpoolEngine) -> None:
    stretch = engine._line._stretch
    remote.refuse()
    put(engine)
    remote.answer()
    await_moved(engine)
    engine._line.away(EngineUnavailable("late"), stretch)
    assert engine.redis_active


# --- uncertain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["put", "connect"], ids=["done", "not done"])
def test_a_put_without_an_answer_is_moved_and_never_worked_on_here(
    remote: Remote, engine: SpoolEngine, verb: str
) -> None:
    remote.mute(verb)
    if verb == "connect":
        remote.mode, remote.only = "refuse", set()
        engine._line._uncertain = lambda error: True
    id = put(engine, body=b"once", delay=0)
    remote.refuse()
    assert not engine.redis_active
    assert claim(engine) == []
    assert engine.spool.stats("q").depth == 1
    remote.answer()
    await_moved(engine)
    (leased,) = claim(engine)
    assert (leased.message.id, leased.message.body) == (id, b"once")
    assert claim(engine) == []


def test_an_uncertain_put_whose_message_is_done_meanwhile_stays_done(
    remote: Remote, engine: SpoolEngine
) -> None:
    remote.mute("put")
    put(engine)
    remote.refuse()
    (leased,) = claim(remote.engine)
    remote.engine.settle("q", [Settlement(leased.receipt)])
    remote.answer()
    await_moved(engine)
    assert claim(engine) == []


def test_a_put_that_may_be_a_repetition_is_only_moved(remote: Remote, engine: SpoolEngine) -> None:
    message = NewMessage(remember=60_000)
    engine.put("q", [message])
    (leased,) = claim(engine)
    engine.settle("q", [Settlement(leased.receipt)])
    remote.refuse()
    engine.put("q", [message])
    assert claim(engine) == []
    remote.answer()
    await_moved(engine)
    assert claim(engine) == []


def test_so_is_every_put_to_a_queue_with_a_dedupe_window(remote: Remote, engine: SpoolEngine) -> None:
    engine.declare("q", Policy(dedupe_window="1h"))
    remote.refuse()
    id = put(engine)
    assert claim(engine) == []
    remote.answer()
    await_moved(engine)
    assert ids(claim(engine)) == [id]


def test_the_same_put_twice_is_one_message_whichever_way_it_went(remote: Remote, engine: SpoolEngine) -> None:
    message = NewMessage(body=b"1")
    remote.mute("put")
    engine.put("q", [message])
    remote.refuse()
    (again,) = engine.put("q", [message]).puts
    assert not again.created
    assert claim(engine) == []
    remote.answer()
    await_moved(engine)
    (again,) = engine.put("q", [message]).puts
    assert not again.created
    assert len(claim(engine)) == 1


def test_a_put_that_no_replica_confirmed_is_repeated_and_only_moved(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored(queue: str, messages: list[NewMessage]) -> None:
        real(queue, messages)
        raise Uncertain("no replica", ids=[each.id for each in messages])

    real, message = remote.engine.put, NewMessage()
    monkeypatch.setattr(remote.engine, "put", stored)
    with pytest.raises(Uncertain):
        engine.put("q", [message])
    monkeypatch.undo()
    remote.refuse()
    engine.put("q", [message])
    assert claim(engine) == []
    remote.answer()
    await_moved(engine)
    assert ids(claim(engine)) == [message.id]


def test_so_is_one_without_an_answer_that_found_no_room_here(remote: Remote) -> None:
    message = NewMessage()
    with opened(remote, capacity=1) as engine:
        remote.refuse()
        put(engine)
        (here,) = claim(engine)
        remote.answer()
        await_back(engine)
        remote.mute("put")
        with pytest.raises(QueueFull, match="spool"):
            engine.put("q", [message])
        remote.refuse()
        engine.settle("q", [Settlement(here.receipt)])
        eventually(lambda: engine.side().spooled == 0)
        engine.put("q", [message])
        assert claim(engine) == []
        remote.answer()
        await_moved(engine)
        assert ids(claim(engine)) == [message.id]


def test_a_policy_is_not_forgotten_for_an_older_one_that_is_read_meanwhile(
    engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question to the spool and its answer somebody declares the queue."""
    real = engine.spool.queues

    def queues(names: Sequence[str] | None = None) -> list[QueueInfo]:
        found = real(names)
        if names is None:  # somebody else, who looks now and then
            return found
        monkeypatch.setattr(engine.spool, "queues", real)
        engine.declare("q", Policy(dedupe_window="1h"))
        return found

    monkeypatch.setattr(engine.spool, "queues", queues)
    engine._mirror.dedupe_window("q")
    assert engine._mirror.dedupe_window("q") == 3_600_000


def test_a_dedupe_window_is_known_after_a_restart(quick: None) -> None:
    remote, spool, message = Remote(), MemoryEngine(), NewMessage()
    with opened(remote, spool) as engine:
        engine.declare("q", Policy(dedupe_window="1h"))
        engine.put("q", [message])
        remote.refuse()
        spool.close = lambda: None  # type: ignore[method-assign]  # as a file is there the next time
        engine.close()
        with opened(remote, spool) as again:
            remote.refuse()
            again.put("q", [message])
            assert claim(again) == []


# --- what cannot be promised ----------------------------------------------------------------------


def test_a_unique_key_cannot_be_kept(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    with pytest.raises(EngineUnavailable, match="unique_key"):
        engine.put("q", [NewMessage(), NewMessage(unique_key="k")])
    assert left(engine) == 0


def test_records_topics_looks_and_moves_are_those_of_redis(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    put(engine)
    calls: list[Callable[[], object]] = [
        lambda: engine.records.put("lock", "k", b""),
        lambda: engine.records.get("breaker", "k"),
        lambda: engine.records.list("note"),
        lambda: engine.records.delete("lock", "k"),
        lambda: engine.publish("t", [b""]),
        lambda: engine.read("t"),
        lambda: engine.get("q", []),
        lambda: engine.find("q", State.READY),
        lambda: engine.log("q"),
        lambda: engine.move("q", []),
        lambda: engine.pause("q"),
        lambda: engine.resume("q"),
        lambda: engine.purge("q"),
        lambda: engine.drop("q", force=True),
    ]
    for call in calls:
        with pytest.raises(EngineUnavailable, match="away"):
            call()
    assert left(engine) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.declare("bad{name}", Policy()),
        lambda engine: engine.settle("bad{name}", [Settlement(Receipt("bad{name}", "0" * 32, "0" * 16))]),
        lambda engine: engine.renew("bad{name}", [Receipt("bad{name}", "0" * 32, "0" * 16)], 1_000),
        lambda engine: engine.renew("q", [Receipt("q", "0" * 32, "0" * 16)], 0),
        lambda engine: engine.renew("q", [Receipt("other", "0" * 32, "0" * 16)], 1_000),
    ],
    ids=["declare", "settle", "renew", "no lease", "another queue"],
)
def test_what_redis_would_refuse_for_ever_is_not_owed_to_it(
    remote: Remote, engine: SpoolEngine, call: Callable[[SpoolEngine], object]
) -> None:
    remote.refuse()
    put(engine)
    with pytest.raises(InvalidInput):
        call(engine)
    assert engine.side().owed == 0
    remote.answer()
    await_moved(engine)


def test_a_debt_that_redis_refuses_all_the_same_keeps_nobody_away(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object) -> None:
        raise InvalidInput("not by this release")

    put(engine)
    put(engine)
    first, second = claim(engine)
    remote.refuse()
    engine.declare("other", Policy())
    engine.settle("q", [Settlement(first.receipt)])
    engine.renew("q", [second.receipt], 30_000)
    for verb in ("declare", "settle", "renew"):
        monkeypatch.setattr(remote.engine, verb, refuse)
    remote.answer()
    await_back(engine)
    assert engine.side().owed == 0
    refused = [record for record in caplog.records if "not by this release" in record.getMessage()]
    assert len(refused) >= 3


# --- the bound ------------------------------------------------------------------------------------


def test_the_spool_is_bounded_by_number(remote: Remote) -> None:
    with opened(remote, capacity=3) as engine:
        remote.refuse()
        for _ in range(3):
            put(engine)
        with pytest.raises(QueueFull) as full:
            put(engine)
        assert full.value.reason == "spool"
        remote.answer()
        await_moved(engine)
        eventually(lambda: engine.side().spooled == 0)
        remote.refuse()
        put(engine)


def test_and_by_bytes(remote: Remote) -> None:
    with opened(remote, max_bytes=10_000) as engine:
        remote.refuse()
        for _ in range(9):
            put(engine, body=bytes(1_000))
        with pytest.raises(QueueFull):
            put(engine, body=bytes(2_000))
        put(engine, body=bytes(1_000))
        assert engine.side().spooled_bytes == 10_000


def test_a_body_as_large_as_allowed_can_be_held(remote: Remote) -> None:
    with opened(remote, max_body=1_000) as engine:
        engine.spool.max_body = 2**30
        remote.mute("put")
        put(engine, body=bytes(1_000), headers={"h": "x" * 60_000})
        with pytest.raises(InvalidInput):
            put(engine, body=bytes(1_001))


# --- deliveries -----------------------------------------------------------------------------------


def test_work_done_here_is_settled_here_and_never_reaches_redis(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    put(engine)
    (leased,) = claim(engine)
    assert engine.renew("q", [leased.receipt], 5_000) == [Outcome.OK]
    assert engine.extend("q", [leased.receipt]) == [Outcome.OK]
    remote.answer()
    eventually(lambda: engine.redis_active)
    assert engine.settle("q", [Settlement(leased.receipt)]) == [Outcome.OK]
    assert engine.settle("q", [Settlement(leased.receipt)]) == [Outcome.GONE]
    assert left(engine) == 0
    assert remote.engine.stats("q").counters["put"] == 0


def test_a_settle_of_redis_waits_for_redis(remote: Remote, engine: SpoolEngine) -> None:
    id = put(engine)
    (leased,) = claim(engine)
    remote.refuse()
    assert engine.turn("q", [Settlement(leased.receipt)], [], None).settled == [Outcome.OK]
    assert engine.side().owed == 1
    remote.answer()
    eventually(lambda: remote.engine.stats("q").counters["acked"] == 1)
    assert remote.engine.get("q", [id]) == [None]
    eventually(lambda: engine.side().owed == 0)


def test_what_waits_for_redis_is_bounded(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "MOST", 2)
    for _ in range(3):
        put(engine)
    settles = [Settlement(leased.receipt) for leased in claim(engine)]
    remote.refuse()
    engine.settle("q", settles[:2])
    engine.settle("q", settles[:2])  # repeated: still two
    with pytest.raises(EngineUnavailable, match="wait"):
        engine.settle("q", settles)


def test_one_turn_settles_on_both_sides_and_keeps_the_order_of_answers(
    remote: Remote, engine: SpoolEngine
) -> None:
    put(engine)
    (there,) = claim(engine)
    remote.refuse()
    put(engine)
    put(engine)
    here, other = claim(engine)
    remote.answer()
    eventually(lambda: engine.redis_active)
    engine.settle("q", [Settlement(other.receipt)])
    receipts = [other.receipt, there.receipt, here.receipt]
    settled = engine.turn("q", [Settlement(receipt) for receipt in receipts], [], None).settled
    assert settled == [Outcome.GONE, Outcome.OK, Outcome.OK]


def test_a_start_that_redis_cannot_hear_of_is_lost_and_costs_no_attempt(
    remote: Remote, engine: SpoolEngine
) -> None:
    id = put(engine)
    (leased,) = claim(engine, start=0)
    remote.refuse()
    assert engine.turn("q", [], [leased.receipt], None).started == [Outcome.LOST]
    remote.answer()
    eventually(lambda: remote.engine.stats("q").ready == 1)
    (again,) = claim(engine)
    assert (again.message.id, again.attempt) == (id, 0)


def test_leases_are_renewed_before_anything_else_on_return(remote: Remote, engine: SpoolEngine) -> None:
    put(engine)
    (leased,) = claim(engine, lease=30_000)
    remote.refuse()
    assert engine.renew("q", [leased.receipt], 30_000) == [Outcome.OK]
    remote.verbs.clear()
    put(engine)
    remote.answer()
    await_moved(engine)
    verbs = [verb for verb in remote.verbs if verb in ("renew", "settle", "put")]
    assert verbs[:2] == ["renew", "put"]


def test_what_was_settled_just_before_is_settled_again(remote: Remote, engine: SpoolEngine) -> None:
    put(engine)
    (leased,) = claim(engine)
    engine.settle("q", [Settlement(leased.receipt)])
    remote.refuse()
    put(engine)
    remote.verbs.clear()
    remote.answer()
    await_moved(engine)
    assert "settle" in remote.verbs


def test_what_redis_lost_meanwhile_is_said(
    remote: Remote, engine: SpoolEngine, caplog: pytest.LogCaptureFixture
) -> None:
    put(engine)
    (leased,) = claim(engine)
    remote.refuse()
    assert engine.settle("q", [Settlement(leased.receipt)]) == [Outcome.OK]
    remote.engine.settle("q", [Settlement(leased.receipt, Verb.RELEASE)])
    claim(remote.engine)
    remote.answer()
    eventually(lambda: "delivery.lost" in {record.__dict__.get("event") for record in caplog.records})


# --- queues ---------------------------------------------------------------------------------------


def test_a_policy_is_known_here_and_given_to_a_redis_that_was_not_there(quick: None) -> None:
    remote = Remote()
    remote.refuse()
    with opened(remote) as engine:
        policy = Policy(max_attempts=7)
        engine.declare("q", policy)
        assert engine.queues(["q"])[0].policy == policy
        remote.answer()
        eventually(lambda: remote.engine.queues(["q"]))
        assert remote.engine.queues(["q"])[0].policy == policy


def test_policy_and_pause_of_a_queue_hold_here_too(remote: Remote, engine: SpoolEngine) -> None:
    remote.engine.declare("q", Policy(max_attempts=1))
    remote.engine.pause("q", "repairs")
    assert engine.queues(["q"])[0].paused
    remote.refuse()
    put(engine)
    assert engine.claim("q", ClaimRequest()).blocked_by == "pause"
    remote.answer()
    eventually(lambda: engine.redis_active)
    engine.resume("q")
    remote.refuse()
    put(engine)
    (leased,) = claim(engine, n=1)
    assert leased.max_attempts == 1


# --- what people see ------------------------------------------------------------------------------


def test_each_switch_is_a_log_line_a_call_and_an_event(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    seen: list[Switch] = []
    with opened(remote, on_switch=seen.append) as engine:
        remote.refuse()
        put(engine)
        side = engine.side()
        assert (side.redis_active, side.reason, side.spooled) == (False, "connection refused", 1)
        remote.answer()
        await_moved(engine)
        eventually(lambda: [switch.redis_active for switch in seen] == [False, True])
        eventually(lambda: len(engine.read("spool", after="").entries) == 2)
        eventually(lambda: engine.side()[:4:3] == (True, 0))
    events = [record.__dict__["event"] for record in caplog.records if "event" in record.__dict__]
    assert events == ["spool.away", "spool.back"]


def test_stats_are_those_of_the_active_side(remote: Remote, engine: SpoolEngine) -> None:
    put(engine)
    put(engine)
    remote.refuse()
    put(engine)
    assert engine.stats("q").ready == 1
    remote.answer()
    await_moved(engine)
    assert engine.stats("q").ready == 3


def test_nothing_is_known_of_the_memory_of_a_redis_that_is_away(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote.engine, "memory", lambda: Memory(5, 10))
    assert engine.memory() == Memory(5, 10)
    remote.refuse()
    assert engine.memory() is None


def test_closing_while_redis_is_away_says_what_was_not_told(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(remote) as engine:
        put(engine)
        (leased,) = claim(engine)
        remote.refuse()
        engine.settle("q", [Settlement(leased.receipt)])
        engine.close()
    assert "spool.owed" in {record.__dict__.get("event") for record in caplog.records}
