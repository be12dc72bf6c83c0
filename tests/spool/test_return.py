"""When Redis is back: what moves over, how, and that nothing is lost or run twice on the way."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.engine import ClaimRequest
from postroom.engines.memory import MemoryEngine
from postroom.engines.spool import SpoolEngine, line, parcels, watch
from postroom.errors import BodyTooLarge, EngineUnavailable, QueueFull
from postroom.model import Failure, NewMessage, Settlement, State, Verb
from postroom.policy import Policy
from postroom.testing import ManualClock
from tests.spool.stage import (
    PATIENCE,
    Remote,
    await_away,
    await_back,
    await_moved,
    claim,
    eventually,
    ids,
    left,
    opened,
    put,
    sqlite,
)


def bodies(engine: SpoolEngine, queue: str = "q") -> list[bytes]:
    return [leased.message.body for leased in claim(engine, queue, n=1_000)]


# --- what is kept by a move -----------------------------------------------------------------------


def test_order_and_priority(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    for number in range(5):
        put(engine, body=b"normal %d" % number)
        put(engine, body=b"urgent %d" % number, priority=9)
    remote.answer()
    await_moved(engine)
    put(engine, body=b"after")
    expected = [b"urgent %d" % n for n in range(5)] + [b"normal %d" % n for n in range(5)] + [b"after"]
    assert bodies(engine) == expected


def test_what_one_thread_puts_stays_in_order_through_any_number_of_outages(
    quick: None, tmp_path: Path
) -> None:
    remote = Remote()
    with opened(remote, sqlite(tmp_path)) as engine:
        stop, count = threading.Event(), 0

        def produce() -> None:
            nonlocal count
            while not stop.is_set():
                put(engine, body=b"%06d" % count)
                count += 1

        def more(number: int) -> None:
            goal = count + number
            eventually(lambda: count > goal)

        producer = threading.Thread(target=produce)
        producer.start()
        for _ in range(4):
            remote.refuse()
            await_away(engine)
            more(20)
            remote.answer()
            await_back(engine)
        stop.set()
        producer.join()
        await_moved(engine)
        got: list[bytes] = []
        while some := bodies(engine):
            got += some
        assert got == [b"%06d" % number for number in range(count)]


@pytest.mark.parametrize("uncertain", [False, True], ids=["local", "held"])
def test_every_field(quick: None, uncertain: bool) -> None:
    clock = ManualClock()
    remote = Remote(MemoryEngine(clock))
    fields: dict[str, Any] = {
        "body": b"\x00\xff",
        "kind": "mail",
        "content_type": "text/plain",
        "headers": {"a": "ü"},
        "priority": 200,
        "ack_timeout": 7_000,
        "max_attempts": 9,
        "correlation_id": "order:17",
    }
    with opened(remote, MemoryEngine(clock), clock=clock) as engine:
        remote.refuse()
        if uncertain:
            engine._line._uncertain = lambda error: True
        put(engine, **fields, delay=60_000, ttl=120_000)
        clock.advance("10s")
        remote.answer()
        await_moved(engine)
        (entry,) = engine.find("q", State.SCHEDULED).entries
    assert {name: getattr(entry.message, name) for name in fields} == fields
    assert entry.due - clock() == 50_000, "from the put, not from the move"
    assert entry.message.expires is not None
    assert entry.message.expires - clock() == 110_000
    assert entry.message.remember == 24 * 3_600_000


def test_due_times_hold_here_too(quick: None) -> None:
    clock = ManualClock()
    remote = Remote(MemoryEngine(clock))
    with opened(remote, MemoryEngine(clock), clock=clock) as engine:
        remote.refuse()
        id = put(engine, delay=5_000)
        assert claim(engine) == []
        clock.advance("5s")
        assert ids(claim(engine)) == [id]


def test_attempts_made_here_count(remote: Remote, engine: SpoolEngine) -> None:
    engine.declare("q", Policy(max_attempts=5))
    remote.refuse()
    put(engine)
    for _ in range(2):
        (leased,) = claim(engine)
        engine.settle("q", [Settlement(leased.receipt, Verb.RETRY)])
    remote.answer()
    await_moved(engine)
    (leased,) = claim(engine)
    assert (leased.attempt, leased.max_attempts) == (0, 3)


def test_a_dead_letter_stays_one_with_its_failure(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    id = put(engine, kind="mail")
    failure = Failure(type="ValueError", text="no such address", traceback="…")
    (leased,) = claim(engine, consumer="host:7")
    engine.settle("q", [Settlement(leased.receipt, Verb.BURY, failure=failure)])
    put(engine, failure=failure)
    remote.answer()
    await_moved(engine)
    dead = engine.find("q", State.DEAD).entries
    assert id in [entry.id for entry in dead]
    assert [entry.failure.text for entry in dead if entry.failure] == ["no such address"] * 2
    moved = next(entry for entry in dead if entry.id == id)
    assert (moved.attempt, [each.error for each in moved.attempts]) == (1, ["ValueError: no such address"])
    assert moved.attempts[0].consumer == "host:7"
    assert moved.message.put_at <= moved.attempts[0].started_at <= (moved.failed_at or 0)
    assert claim(engine) == []


@pytest.mark.parametrize("on_expire", ["dead", "drop"])
@pytest.mark.parametrize("early_acked", [False, True], ids=["local", "held"])
def test_a_dead_letter_keeps_its_failure_also_when_it_would_have_expired(
    quick: None, on_expire: Any, early_acked: bool
) -> None:
    clock, failure = ManualClock(), Failure(type="CardDeclined", text="no money")
    remote = Remote(MemoryEngine(clock))
    with opened(remote, MemoryEngine(clock), clock=clock) as engine:
        engine.declare("q", Policy(on_expire=on_expire))
        remote.refuse()
        if early_acked:
            engine._line._uncertain = lambda error: True
            put(engine, ttl=1_000, failure=failure)
        else:
            put(engine, ttl=1_000)
            (leased,) = claim(engine)
            engine.settle("q", [Settlement(leased.receipt, Verb.BURY, failure=failure)])
        clock.advance("1h")
        remote.answer()
        await_moved(engine)
        (letter,) = engine.find("q", State.DEAD).entries
        assert letter.failure
        assert letter.failure.type == "CardDeclined"


@pytest.mark.parametrize(("on_expire", "dead"), [("dead", 1), ("drop", 0)])
@pytest.mark.parametrize("uncertain", [False, True], ids=["local", "held"])
def test_what_expired_meanwhile_is_not_lost_silently(
    quick: None, on_expire: Any, dead: int, uncertain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    remote = Remote(MemoryEngine(clock))
    with opened(remote, MemoryEngine(clock), clock=clock) as engine:
        engine.declare("q", Policy(on_expire=on_expire))
        remote.refuse()
        if uncertain:
            engine._line._uncertain = lambda error: True
        put(engine, ttl=1_000)
        clock.advance("1h")
        remote.answer()
        await_moved(engine)
        alive = put(engine)
        assert ids(claim(engine)) == [alive]
        assert len(engine.find("q", State.DEAD).entries) == dead
        if uncertain:
            assert "spool.expired" in {record.__dict__.get("event") for record in caplog.records}


# --- what does not move ---------------------------------------------------------------------------


def test_what_is_in_hand_is_finished_here(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    put(engine)
    (leased,) = claim(engine)
    other = put(engine)
    remote.answer()
    await_back(engine)
    eventually(lambda: remote.engine.get("q", [other])[0])
    assert remote.engine.get("q", [leased.message.id]) == [None]
    engine.settle("q", [Settlement(leased.receipt, Verb.RETRY, delay=60_000)])
    await_moved(engine)
    assert remote.engine.stats("q").scheduled == 1, "with its backoff"


def test_what_a_dead_process_held_moves_when_its_lease_is_over(quick: None, tmp_path: Path) -> None:
    remote = Remote()
    with opened(remote, sqlite(tmp_path)) as engine:
        engine.declare("q", Policy(lease="1s", ack_timeout="1s"))
        remote.refuse()
        id = put(engine)
        assert ids(claim(engine)) == [id]
        remote.answer()
        await_moved(engine)
        (leased,) = claim(engine)
        assert leased.message.id == id


def test_a_queue_that_is_full_there_waits_here(remote: Remote, engine: SpoolEngine) -> None:
    engine.declare("q", Policy(capacity=10))
    remote.refuse()
    expected = [put(engine) for _ in range(10)]
    put(engine, "other")
    remote.engine.put("q", [NewMessage(id=expected[0]), *(NewMessage() for _ in range(6))])
    remote.answer()
    eventually(lambda: remote.engine.stats("other").ready == 1)
    await_back(engine)
    # As many as there was room for: the first is there already, and takes none.
    eventually(lambda: remote.engine.stats("q").ready == 10)
    eventually(lambda: left(engine) == 6)
    for leased in claim(engine):
        engine.settle("q", [Settlement(leased.receipt)])
    await_moved(engine)
    assert ids(claim(engine)) == expected[4:], "in their order"


def test_a_message_that_redis_refuses_for_good_stays_and_holds_nobody_up(
    remote: Remote, engine: SpoolEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.refuse()
    put(engine, body=bytes(100))
    small = put(engine)
    remote.engine.max_body = 10
    remote.answer()
    eventually(lambda: remote.engine.get("q", [small])[0])
    await_back(engine)
    eventually(lambda: "spool.refused" in {record.__dict__.get("event") for record in caplog.records})
    assert left(engine) == 1
    with pytest.raises(BodyTooLarge):
        put(engine, body=bytes(100))


# --- returning ------------------------------------------------------------------------------------


def test_a_redis_that_only_reads_is_not_back(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    put(engine)
    remote.refuse("put", "records.put", "turn", "declare")
    before = len(remote.verbs)
    eventually(lambda: remote.verbs[before:].count("records.put") > 3)
    assert not engine.redis_active


def test_a_redis_that_takes_no_messages_is_not_back(remote: Remote, engine: SpoolEngine) -> None:
    """As a cluster of which one part is away: whoever has something for that part stays."""
    remote.refuse()
    put(engine)
    remote.refuse("put")
    before = len(remote.verbs)
    eventually(lambda: remote.verbs[before:].count("put") > 2)
    assert not engine.redis_active


def test_a_return_that_does_not_last_makes_the_next_one_wait(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "HOLD_LAST", 0.3)
    spans = []
    for _ in range(6):
        began = time.monotonic()  # before it goes away: a pause here makes the span longer, never shorter
        remote.refuse()
        put(engine)
        remote.answer()
        await_back(engine)
        spans.append(time.monotonic() - began)
    assert spans[-1] >= 0.25, spans
    assert engine._line._hold == 0.3
    monkeypatch.setattr(line, "CALM", 0.0)
    remote.refuse()
    put(engine)
    assert engine._line._hold == line.HOLD_FIRST


def test_a_long_backlog_does_not_hold_up_the_return_for_ever(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_CATCH_UP", 0.0)
    remote = Remote()
    with opened(remote, sqlite(tmp_path)) as engine:
        remote.refuse()
        for _ in range(3):
            engine.put("q", [NewMessage() for _ in range(1_000)])
        remote.answer()
        await_moved(engine)
        assert engine.stats("q").ready == 3_000


def test_an_empty_redis_gets_its_policies_back(remote: Remote, engine: SpoolEngine) -> None:
    engine.declare("q", Policy(max_attempts=7))
    remote.refuse()
    put(engine)
    remote.engine.drop("q", force=True)
    remote.answer()
    await_moved(engine)
    assert remote.engine.queues(["q"])[0].policy.max_attempts == 7


def test_at_the_start(quick: None) -> None:
    remote = Remote()
    remote.refuse()
    with opened(remote) as engine:
        assert not engine.redis_active
        id = put(engine)
        assert ids(claim(engine, n=1)) == [id]
        later = put(engine)
        remote.answer()
        await_back(engine)
        eventually(lambda: remote.engine.get("q", [later])[0])


def test_at_the_start_a_redis_that_hangs_is_not_waited_for(quick: None) -> None:
    remote = Remote()
    remote.hang()
    began = time.monotonic()
    with opened(remote, timeout=1_000) as engine:
        assert time.monotonic() - began < PATIENCE / 2
        put(engine)
        remote.answer()
        await_moved(engine)
        assert engine.stats("q").ready == 1


def test_purge_and_drop_mean_both_sides(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    put(engine)
    (leased,) = claim(engine)
    remote.answer()
    await_back(engine)
    put(engine)
    with pytest.raises(Exception, match="spool"):
        engine.drop("q")
    assert engine.purge("q") == 1
    assert engine.drop("q", force=True) == 1
    assert engine.settle("q", [Settlement(leased.receipt)]) == ["gone"]


def test_what_is_put_after_a_drop_stays(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis goes away when it has dropped the queue, before the spool has."""

    def drop(queue: str, **options: Any) -> int:
        dropped = real(queue, **options)
        remote.refuse()
        engine.put("q", [message])
        return dropped

    engine.declare("q", Policy())
    real, message = remote.engine.drop, NewMessage()
    monkeypatch.setattr(remote.engine, "drop", drop)
    engine.drop("q")
    remote.answer()
    await_moved(engine)
    assert ids(claim(engine)) == [message.id]


def test_what_a_turn_claimed_there_is_handed_back_when_the_spool_fails(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise EngineUnavailable("no space left")

    engine.declare("q", Policy(ack_timeout="1h"))
    remote.refuse()
    put(engine)
    (here,) = claim(engine)
    remote.answer()
    await_back(engine)
    id = put(engine)
    with monkeypatch.context() as broken, pytest.raises(EngineUnavailable, match="no space left"):
        broken.setattr(engine.spool, "turn", full)
        engine.turn("q", [Settlement(here.receipt)], (), ClaimRequest(lease=3_600_000))
    eventually(lambda: ids(claim(engine)) == [id])


def test_a_full_spool_store_is_said_to_who_puts(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = MemoryEngine()
    with opened(remote, spool) as engine:
        remote.refuse()

        def full(*args: object) -> None:
            raise EngineUnavailable("no space left")

        monkeypatch.setattr(spool, "put", full)
        with pytest.raises(EngineUnavailable, match="no space left"):
            put(engine)
        monkeypatch.undo()
        put(engine)


def test_a_spool_that_fails_keeps_nobody_away(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = MemoryEngine()
    with opened(remote, spool) as engine:
        remote.refuse()
        put(engine)

        def corrupt(*args: object, **options: object) -> None:
            raise EngineUnavailable("the store is damaged")

        for verb in ("put", "queues", "find", "stats", "move"):
            monkeypatch.setattr(spool, verb, corrupt)
        remote.answer()
        await_back(engine)
        put(engine)
        assert "spool.failed" in {record.__dict__.get("event") for record in caplog.records}
        monkeypatch.undo()
        await_moved(engine)
        assert engine.stats("q").ready == 2


def test_a_held_message_that_nobody_can_read_holds_nobody_up(
    remote: Remote, engine: SpoolEngine, caplog: pytest.LogCaptureFixture
) -> None:
    remote.refuse()
    engine.spool.put(
        "q", [NewMessage(body=b"from a newer release", content_type=parcels.HELD, due=parcels.PARKED)]
    )
    other = put(engine)
    remote.answer()
    await_back(engine)
    assert ids(claim(engine)) == [other]
    assert "spool.refused" in {record.__dict__.get("event") for record in caplog.records}
    assert left(engine) == 1


def test_memory_full_is_an_answer(
    remote: Remote, engine: SpoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise QueueFull("maxmemory", reason="memory")

    monkeypatch.setattr(remote.engine, "put", full)
    with pytest.raises(QueueFull):
        put(engine)
    assert engine.redis_active
    assert left(engine) == 0
