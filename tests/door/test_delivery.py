"""A delivery in the hands of its consumer: how it ends, how it is held on to, and when it is too late."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom import Bury, Delivery, LeaseLost, Policy, Retry
from postroom.engine import ClaimRequest
from postroom.errors import EngineUnavailable, InvalidInput, Undecodable
from postroom.limits import JSON
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import Wire, entries, let_pass, put_raw, room_on, taken


@pytest.fixture
def queue(room: Room) -> Queue:
    return room.queue("q", Policy(jitter=False))


@pytest.fixture
def delivery(queue: Queue) -> Delivery:
    queue.put({"n": 1}, kind="count")
    return taken(queue)


def state(queue: Queue, delivery: Delivery) -> State | None:
    (entry,) = queue.room.engine.get(queue.name, [delivery.id])
    return entry.state if entry else None


# ---- With -----------------------------------------------------------------------------------------


def test_the_end_of_the_block_is_an_ack(queue: Queue, delivery: Delivery) -> None:
    with delivery as given:
        assert given is delivery
        assert queue.stats().processing == 1
    assert delivery.settled == "ack"
    assert state(queue, delivery) is None
    assert queue.stats().counters["acked"] == 1


def test_an_exception_is_a_retry_with_backoff_and_goes_on(
    queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    for wait in (5_000, 10_000):
        with pytest.raises(LookupError, match="no such number"), delivery:
            raise LookupError("no such number")
        entry = queue.get(delivery.id)
        assert (entry.state, entry.due - clock()) == (State.SCHEDULED, wait)
        assert entry.attempts[-1].error == "LookupError: no such number"
        clock.advance(wait / 1_000)
        delivery = taken(queue)
    assert delivery.attempt == 2
    with pytest.raises(LookupError), delivery:
        raise LookupError("no such number 3")
    entry = queue.get(delivery.id)
    assert (entry.state, entry.attempt, entry.last_error) == (State.DEAD, 3, "LookupError: no such number 3")
    assert entry.failure and "raise LookupError" in entry.failure.traceback
    assert entry.failed_at == clock()


def test_full_jitter_waits_between_nothing_and_the_backoff(room: Room, clock: ManualClock) -> None:
    queue = room.queue("q", Policy(backoff="10s"))
    queue.put_many(range(60))
    for delivery in queue.claim_many(60, timeout=0):
        delivery.fail("again")
    waits = [entry.due - clock() for entry in entries(queue, State.SCHEDULED)]
    assert len(waits) > 50
    assert 0 <= min(waits) < 3_000
    assert 7_000 < max(waits) <= 10_000


@pytest.mark.parametrize(
    "verdict",
    [
        Retry(after=60),
        Retry(after="1m"),
        Retry(timedelta(minutes=1), reason="busy"),
        Retry(at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC)),
        Retry(at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()),
    ],
)
def test_a_retry_is_swallowed_and_obeyed(
    queue: Queue, delivery: Delivery, clock: ManualClock, verdict: Retry
) -> None:
    with delivery:
        raise verdict
    entry = queue.get(delivery.id)
    assert (entry.state, entry.due - clock(), entry.attempt) == (State.SCHEDULED, 60_000, 1)


def test_a_retry_without_a_time_goes_by_the_backoff(
    queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    with delivery:
        raise Retry
    assert queue.get(delivery.id).due - clock() == 5_000


def test_the_cause_of_a_retry_is_kept(queue: Queue, delivery: Delivery) -> None:
    with delivery:
        raise Retry(after=1) from TimeoutError("the bank does not answer")
    assert queue.get(delivery.id).attempts[-1].error == "TimeoutError: the bank does not answer"


@pytest.mark.parametrize(
    "verdict",
    [
        Retry(after=-1),
        Retry(after="soon"),
        Retry(at=datetime(2100, 1, 1, tzinfo=UTC)),
        Retry(at=datetime(2026, 1, 1)),  # noqa: DTZ001  # a naive one is what is wrong here
    ],
    ids=lambda verdict: f"{verdict.after}-{verdict.at}",
)
def test_a_retry_at_a_time_that_makes_no_sense_is_a_failure_like_any_other(
    queue: Queue, delivery: Delivery, clock: ManualClock, verdict: Retry
) -> None:
    with delivery:
        raise verdict
    entry = queue.get(delivery.id)
    assert (entry.state, entry.due - clock()) == (State.SCHEDULED, 5_000)
    assert entry.attempts[-1].error.startswith("InvalidInput: ")


def test_a_retry_is_after_or_at() -> None:
    with pytest.raises(InvalidInput):
        Retry(after=1, at=datetime(2026, 1, 1, tzinfo=UTC))


def test_a_burial_is_swallowed_and_obeyed(queue: Queue, delivery: Delivery) -> None:
    with delivery:
        raise Bury("the customer is gone") from KeyError("customer 7")
    entry = queue.get(delivery.id)
    assert (entry.state, entry.last_error) == (State.DEAD, "Bury: the customer is gone")
    assert entry.failure and "customer 7" in entry.failure.traceback


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_hands_the_message_back_and_does_not_count(
    queue: Queue, delivery: Delivery, interruption: type[BaseException]
) -> None:
    with pytest.raises(interruption), delivery:
        raise interruption
    entry = queue.get(delivery.id)
    assert (entry.state, entry.attempt, entry.attempts) == (State.READY, 0, ())
    assert taken(queue).attempt == 0


def test_what_was_settled_inside_the_block_stays_as_it_was(queue: Queue, delivery: Delivery) -> None:
    with delivery:
        delivery.bury("seen enough")
    assert queue.get(delivery.id).last_error == "Rejected: seen enough"


def test_an_error_after_the_ack_goes_on_and_changes_nothing(queue: Queue, delivery: Delivery) -> None:
    with pytest.raises(LookupError), delivery:
        delivery.ack()
        raise LookupError
    assert state(queue, delivery) is None


def test_the_error_of_the_work_matters_more_than_a_lost_lease(
    room: Room, queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    with pytest.raises(LookupError, match="the real reason"), delivery:
        let_pass(room, clock, 31)
        raise LookupError("the real reason")
    assert queue.get(delivery.id).attempt == 1


def test_a_lease_lost_by_another_delivery_is_an_error_of_this_work(
    room: Room, queue: Queue, delivery: Delivery
) -> None:
    queue.put("other")
    other = taken(queue)
    other.release()
    with pytest.raises(LeaseLost), delivery:
        other.ack()
    assert queue.get(delivery.id).state is State.SCHEDULED


# ---- Settling by hand -----------------------------------------------------------------------------


def test_ack(queue: Queue, delivery: Delivery) -> None:
    delivery.ack()
    assert state(queue, delivery) is None


def test_fail_by_the_backoff_or_when_told(queue: Queue, clock: ManualClock) -> None:
    for options, wait in [
        ({}, 5_000),
        ({"after": "2s"}, 2_000),
        ({"at": datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC)}, 9_000),
        ({"after": 0}, None),
    ]:
        put = queue.put(1)
        taken(queue).fail("not now", **options)  # type: ignore[arg-type]
        entry = queue.get(put.id)
        assert entry.due - clock() == (wait or 0)
        assert entry.state is (State.SCHEDULED if wait else State.READY)
        assert (entry.attempt, entry.attempts[-1].error) == (1, "Failed: not now")
        queue.cancel(put.id)


@pytest.mark.parametrize(
    "options",
    [{"after": -1}, {"at": datetime(2100, 1, 1, tzinfo=UTC)}, {"after": 1, "at": 1}, {"after": "soon"}],
    ids=repr,
)
def test_a_time_that_makes_no_sense_is_refused_and_nothing_is_settled(
    queue: Queue, delivery: Delivery, options: Any
) -> None:
    with pytest.raises(InvalidInput):
        delivery.fail(**options)
    assert state(queue, delivery) is State.PROCESSING
    delivery.ack()


def test_the_last_attempt_that_fails_makes_a_dead_letter(room: Room) -> None:
    queue = room.queue("q", Policy(retries=0))
    queue.put(1)
    delivery = taken(queue)
    delivery.fail(ValueError("broken"))
    entry = queue.get(delivery.id)
    assert (entry.state, entry.last_error) == (State.DEAD, "ValueError: broken")


def test_release_gives_it_back_to_its_place(queue: Queue) -> None:
    queue.put_many(["first", "second"])
    first = taken(queue)
    first.release()
    again = taken(queue)
    assert (again.body, again.attempt, again.deliveries) == ("first", 0, 2)


def test_bury(queue: Queue, delivery: Delivery) -> None:
    delivery.bury()
    assert queue.get(delivery.id).last_error == "Rejected: buried by its consumer"


# ---- Too late -------------------------------------------------------------------------------------


def test_a_stale_ack_is_told_that_somebody_else_has_it(
    room: Room, queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    let_pass(room, clock, 31)
    again = taken(queue)
    assert again.id == delivery.id
    with pytest.raises(LeaseLost) as caught:
        delivery.ack()
    assert (caught.value.code, caught.value.outcome) == ("lease_lost", "lost")
    assert state(queue, delivery) is State.PROCESSING
    again.ack()


def test_or_that_it_is_gone(room: Room, queue: Queue, delivery: Delivery, clock: ManualClock) -> None:
    let_pass(room, clock, 31)
    taken(queue).ack()
    with pytest.raises(LeaseLost) as caught:
        delivery.ack()
    assert caught.value.outcome == "gone"


def test_a_block_whose_lease_was_lost_says_so(room: Room, delivery: Delivery, clock: ManualClock) -> None:
    with pytest.raises(LeaseLost), delivery:
        let_pass(room, clock, 31)


def test_what_is_overdue_can_be_settled_until_it_is_reclaimed(
    queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    clock.advance("5m")
    assert queue.stats().overdue == 1
    delivery.ack()
    assert state(queue, delivery) is None


@pytest.mark.parametrize("verb", ["ack", "fail", "release", "bury", "extend"])
def test_a_receipt_from_before_a_release_is_refused(queue: Queue, delivery: Delivery, verb: str) -> None:
    room_on(queue.room.engine).engine.settle("q", [delivery.settlement(KeyboardInterrupt())])
    assert state(queue, delivery) is State.READY
    for _ in ("nobody has it", "somebody else has it"):
        with pytest.raises(LeaseLost) as caught:
            getattr(delivery, verb)()
        assert caught.value.outcome == "lost"
        current = queue.claim(timeout=0)
    assert current is None, "it was claimed in the first round and is still held"
    assert state(queue, delivery) is State.PROCESSING


def test_the_same_settling_twice_is_quiet(queue: Queue) -> None:
    for verb in ("ack", "fail", "release", "bury"):
        queue.put(1)
        delivery = taken(queue)
        getattr(delivery, verb)()
        getattr(delivery, verb)()
        queue.drop(force=True)


@pytest.mark.parametrize("second", ["ack", "release", "bury"])
def test_another_settling_afterwards_is_not(queue: Queue, delivery: Delivery, second: str) -> None:
    delivery.fail("first")
    with pytest.raises(LeaseLost, match="settled before, by retry"):
        getattr(delivery, second)()
    assert state(queue, delivery) is State.SCHEDULED


def test_a_repeated_ack_whose_first_answer_was_lost_is_quiet(wire: Wire) -> None:
    queue = room_on(wire).queue("q")
    queue.put(1)
    delivery = taken(queue)
    wire.fail(1, "settle", arrived=True)
    with pytest.raises(EngineUnavailable):
        delivery.ack()
    delivery.ack()
    assert delivery.settled == "ack"
    assert queue.stats().counters["acked"] == 1


def test_a_repeated_ack_that_had_not_arrived_acks(wire: Wire) -> None:
    queue = room_on(wire).queue("q")
    queue.put(1)
    delivery = taken(queue)
    wire.fail(1, "settle")
    with pytest.raises(EngineUnavailable):
        delivery.ack()
    assert queue.stats().processing == 1
    delivery.ack()
    assert queue.stats().processing == 0


# ---- Holding on -----------------------------------------------------------------------------------


def test_extend_allows_the_ack_timeout_once_more(
    room: Room, queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    for _ in range(3):
        let_pass(room, clock, 20)
        delivery.extend()
    assert queue.get(delivery.id).deadline == clock() + 30_000
    let_pass(room, clock, 31)
    assert state(queue, delivery) is State.READY


def test_or_a_given_span(room: Room, queue: Queue, delivery: Delivery, clock: ManualClock) -> None:
    delivery.extend("5m")
    let_pass(room, clock, 299)
    delivery.ack()
    assert state(queue, delivery) is None


@pytest.mark.parametrize("span", [-1, 0, "soon"])
def test_a_span_that_makes_no_sense_is_refused(delivery: Delivery, span: Any) -> None:
    with pytest.raises(InvalidInput):
        delivery.extend(span)
    delivery.ack()


def test_a_stale_extend_is_told(room: Room, delivery: Delivery, clock: ManualClock) -> None:
    let_pass(room, clock, 31)
    with pytest.raises(LeaseLost):
        delivery.extend()
    assert delivery.lost


def test_the_next_attempt_reads_the_checkpoint(queue: Queue, delivery: Delivery, clock: ManualClock) -> None:
    assert delivery.last_checkpoint is None
    delivery.checkpoint({"page": 3})
    delivery.checkpoint({"page": 4})
    assert delivery.last_checkpoint is None, "what an earlier attempt saved, not this one"
    delivery.fail("later", after=1)
    clock.advance("1s")
    again = taken(queue)
    assert again.last_checkpoint == {"page": 4}
    again.release()
    assert taken(queue).last_checkpoint == {"page": 4}


def test_a_checkpoint_survives_the_death_of_its_consumer(
    room: Room, queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    delivery.checkpoint([1, 2])
    let_pass(room, clock, 31)
    assert taken(queue).last_checkpoint == [1, 2]


def test_a_checkpoint_also_extends(queue: Queue, delivery: Delivery, clock: ManualClock) -> None:
    clock.advance("20s")
    delivery.checkpoint(1)
    assert queue.get(delivery.id).deadline == clock() + 30_000


def test_a_stale_delivery_cannot_save(
    room: Room, queue: Queue, delivery: Delivery, clock: ManualClock
) -> None:
    delivery.checkpoint("mine")
    let_pass(room, clock, 31)
    again = taken(queue)
    with pytest.raises(LeaseLost) as caught:
        delivery.checkpoint("too late")
    assert caught.value.outcome == "lost"
    again.release()
    assert taken(queue).last_checkpoint == "mine"


@pytest.mark.parametrize("data", [object(), "x" * 70_000, "\ud800"], ids=["object", "large", "surrogate"])
def test_a_checkpoint_is_json_of_at_most_64_kb(queue: Queue, delivery: Delivery, data: Any) -> None:
    with pytest.raises(InvalidInput, match="checkpoint"):
        delivery.checkpoint(data)
    assert state(queue, delivery) is State.PROCESSING


# ---- What ties messages together ------------------------------------------------------------------


def test_a_correlation_id_is_given_or_the_id(queue: Queue) -> None:
    plain, tied = queue.put(1), queue.put(2, correlation_id="request-7")
    assert taken(queue).correlation_id == plain.id
    delivery = taken(queue)
    assert (delivery.id, delivery.correlation_id) == (tied.id, "request-7")


def test_what_is_put_inside_a_block_inherits_it(queue: Queue) -> None:
    queue.put("outer", correlation_id="request-7")
    with taken(queue):
        queue.put("one")
        queue.put_many(["two"])
        queue.put_many([queue.message("three")])
        queue.put("own", correlation_id="request-8")
    queue.put("outside")
    got = {delivery.body: delivery for delivery in queue.claim_many(9, timeout=0)}
    assert [got[body].correlation_id for body in ("one", "two", "three")] == ["request-7"] * 3
    assert got["own"].correlation_id == "request-8"
    assert got["outside"].correlation_id == got["outside"].id


def test_and_hands_it_on_for_ever(queue: Queue) -> None:
    first = queue.put("first")
    for _ in range(3):
        with taken(queue):
            queue.put("next")
    assert taken(queue).correlation_id == first.id


def test_blocks_inside_blocks(queue: Queue) -> None:
    outer, inner = queue.put("outer"), queue.put("inner")
    with taken(queue), taken(queue):
        queue.put("in the inner one")
    with pytest.raises(LookupError), taken(queue):
        raise LookupError
    queue.put("outside")
    assert taken(queue).correlation_id not in (outer.id, inner.id)
    assert entries(queue, State.SCHEDULED)[0].message.correlation_id == inner.id


def test_it_is_in_the_log_of_a_failure(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "postroom")
    put = queue.put(1, kind="count", correlation_id="request-7")
    with pytest.raises(LookupError), taken(queue):
        raise LookupError("no such number")
    (record,) = caplog.records
    fields = {name: getattr(record, name) for name in ("event", "queue", "kind", "message_id", "attempt")}
    assert fields == {
        "event": "delivery.failed",
        "queue": "q",
        "kind": "count",
        "message_id": put.id,
        "attempt": 0,
    }
    assert record.__dict__["correlation_id"] == "request-7"
    assert record.exc_info


# ---- Bodies that cannot be decoded ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", JSON),
        (b"\xff\xfe\xfa", JSON),
        (b"", JSON),
        (b"[" * 100_000, JSON),
        (b"{]", "application/vnd.api+json"),
        (b"\xff", "text/plain"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_undecodable(room: Room, body: bytes, content_type: str) -> None:
    put_raw(room, "q", body, content_type)
    delivery = taken(room.queue("q"))
    with pytest.raises(Undecodable) as caught:
        delivery.body  # noqa: B018
    assert caught.value.code == "undecodable"
    assert delivery.data == body


@pytest.mark.parametrize(
    "content_type", ["application/x-python-serialize", "application/x-pickle; v=4", "X/PICKLE"]
)
def test_a_pickle_is_never_opened(room: Room, content_type: str) -> None:
    put_raw(room, "q", b"cos\nsystem\n(S'true'\ntR.", content_type)
    with pytest.raises(Undecodable, match="runs code"):
        taken(room.queue("q")).body  # noqa: B018


def test_an_undecodable_body_is_a_dead_letter_without_retries(room: Room, queue: Queue) -> None:
    put_raw(room, "q", b"{", JSON)
    delivery = taken(queue)
    with pytest.raises(Undecodable), delivery:
        delivery.body  # noqa: B018
    entry = queue.get(delivery.id)
    assert (entry.state, entry.attempt) == (State.DEAD, 1)
    assert entry.failure and entry.failure.type == "Undecodable"


@pytest.mark.parametrize(("body", "value"), [(b'{"a": NaN}', "nan"), (b'"\\ud800"', "'\\ud800'")])
def test_what_other_producers_write_can_be_read(room: Room, body: bytes, value: str) -> None:
    put_raw(room, "q", body, JSON)
    assert value in repr(taken(room.queue("q")).body)


def test_a_body_is_decoded_once(queue: Queue, delivery: Delivery) -> None:
    assert delivery.body is delivery.body


def test_a_delivery_says_what_it_is(delivery: Delivery) -> None:
    assert repr(delivery) == f"<Delivery {delivery.id} of 'q', attempt 0, open>"
    delivery.ack()
    assert "ack" in repr(delivery)


def test_started_ahead_or_not_a_delivery_knows_its_receipt(room: Room) -> None:
    room.queue("q").put(1)
    (delivery,), claimed = room.take("q", ClaimRequest(start=0, lease=1_000))
    assert delivery.receipt == claimed.deliveries[0].receipt
    assert delivery.receipt.queue == "q"
