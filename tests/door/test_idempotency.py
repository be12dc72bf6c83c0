"""The same work once: claimed by a delivery, then done; crashes, duplicates, and what an outage does."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from postroom import Delivery, Policy, Retry, Worker
from postroom.delivery import in_hand, working_on
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import EngineUnavailable, InProgress, InvalidInput, Later
from postroom.idempotency import KIND, idempotent
from postroom.limits import MAX_RECORD
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import Hire, Wire, entries, eventually, let_pass, room_on, taken


class Ledger:
    """Whom was paid what, as the provider sees it."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def pay(self, delivery: Delivery) -> dict[str, str]:
        self.paid.append(delivery.body)
        return {"receipt": f"R-{delivery.body}"}


Pay = Callable[[Delivery], Any]


def by_body(delivery: Delivery) -> str:
    return str(delivery.body)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def pay(ledger: Ledger) -> Pay:
    return idempotent(by_body, ttl="24h")(ledger.pay)


@pytest.fixture
def payouts(room: Room) -> Queue:
    return room.queue("payouts")


def test_a_duplicate_of_done_work_gets_the_stored_result(payouts: Queue, pay: Pay, ledger: Ledger) -> None:
    payouts.put_many(["INV-1", "INV-1"])
    results = []
    for _ in range(2):
        with taken(payouts) as delivery:
            results.append(pay(delivery))
    assert results == [{"receipt": "R-INV-1"}] * 2
    assert ledger.paid == ["INV-1"]


def test_other_keys_and_other_functions_do_not_meet(payouts: Queue, pay: Pay, ledger: Ledger) -> None:
    also: list[str] = []
    other = idempotent(by_body)(lambda delivery: also.append(delivery.body))
    payouts.put_many(["INV-1", "INV-2"])
    for _ in range(2):
        with taken(payouts) as delivery:
            pay(delivery)
            other(delivery)
    assert ledger.paid == also == ["INV-1", "INV-2"]


def test_done_is_known_for_its_time(
    payouts: Queue, clock: ManualClock, pay: Pay, ledger: Ledger, room: Room
) -> None:
    for span in ("23h", "2h"):
        payouts.put("INV-1")
        with taken(payouts) as delivery:
            pay(delivery)
        clock.advance(span)
    payouts.put("INV-1")
    with taken(payouts) as delivery:
        pay(delivery)
    assert ledger.paid == ["INV-1", "INV-1"]


def test_work_that_failed_is_not_done(payouts: Queue, clock: ManualClock) -> None:
    answers = [ConnectionError("down"), Retry(after=1), Later(), KeyboardInterrupt(), None]
    runs: list[int] = []

    @idempotent(by_body)
    def pay(delivery: Delivery) -> str:
        runs.append(delivery.attempt)
        if answer := answers[len(runs) - 1]:
            raise answer
        return "paid"

    payouts.put("INV-1")
    for answer in answers[:-1]:
        try:
            with taken(payouts) as delivery:
                pay(delivery)
        except BaseException as error:
            assert error is answer
        clock.advance("10s")
    assert pay_in(taken(payouts), pay) == "paid"
    assert len(runs) == 5


def test_a_handler_that_hands_its_message_back_itself_is_not_done(payouts: Queue) -> None:
    runs: list[str] = []

    @idempotent(by_body)
    def pay(delivery: Delivery) -> None:
        runs.append(delivery.body)
        if len(runs) == 1:
            delivery.release()

    payouts.put("INV-1")
    for _ in range(2):
        with taken(payouts) as delivery:
            pay(delivery)
    assert runs == ["INV-1", "INV-1"]


def test_it_costs_two_calls_and_a_duplicate_no_more(pay: Pay) -> None:
    wire = Wire(MemoryEngine())
    payouts = room_on(wire).queue("payouts")
    payouts.put_many(["INV-1", "INV-1"])
    first, second = taken(payouts), taken(payouts)
    verbs = []
    for delivery in (first, second):
        wire.calls.clear()
        with working_on(delivery):
            pay(delivery)
        verbs.append([call.verb for call in wire.calls])
    assert verbs == [["records.put", "records.put"], ["records.put", "records.get"]]


# --- somebody else is at it ----------------------------------------------------------------------


def test_a_duplicate_of_work_in_progress_is_told_and_burns_no_attempt(payouts: Queue, pay: Pay) -> None:
    payouts.put_many(["INV-1", "INV-1"])

    @idempotent(by_body, name=name_of(pay))
    def slow(delivery: Delivery) -> None:
        with taken(payouts) as duplicate:
            pay(duplicate)
            pytest.fail("it ran")

    with taken(payouts) as delivery:
        slow(delivery)
    assert [entry.attempt for entry in entries(payouts, "scheduled")] == [0]


def name_of(function: Pay) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def pay_in(delivery: Delivery, pay: Pay) -> Any:
    """Pay as another process would, for this delivery."""
    with working_on(delivery):
        return pay(delivery)


def test_in_a_worker_a_duplicate_comes_again_until_the_first_is_done(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    payouts = live.queue("payouts", Policy(max_attempts=1))
    paid: list[str] = []

    @idempotent(by_body)
    def pay(delivery: Delivery) -> None:
        assert gate.wait(60)
        paid.append(delivery.body)

    payouts.put_many(["INV-1"] * 3)
    hire(live, {"payouts": pay}, concurrency=3)
    eventually(lambda: payouts.stats().scheduled == 2)  # told, and handed back for a moment
    gate.set()
    eventually(lambda: payouts.stats().counters["acked"] == 3)
    assert paid == ["INV-1"]
    assert payouts.stats().dead == 0


def test_a_duplicate_may_wait_for_the_result(live: Room, gate: threading.Event) -> None:
    payouts = live.queue("payouts")
    payouts.put_many(["INV-1", "INV-1"])
    began = threading.Event()
    results: list[str] = []

    @idempotent(by_body, wait="60s")
    def pay(delivery: Delivery) -> str:
        began.set()
        assert gate.wait(60)
        return "R-1"

    def work() -> None:
        with taken(payouts) as delivery:
            results.append(pay(delivery))

    threads = [threading.Thread(target=work) for _ in range(2)]
    threads[0].start()
    assert began.wait(30)
    began.clear()
    threads[1].start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert results == ["R-1", "R-1"]
    assert not began.is_set(), "it ran twice"


def test_of_many_at_once_one_runs(live: Room) -> None:
    runs: list[int] = []
    pay = idempotent(lambda number: "INV-1", room=live, wait="60s")(runs.append)
    threads = [threading.Thread(target=pay, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1


# --- crashes -------------------------------------------------------------------------------------


class Died(BaseException):
    """Stands for kill -9: nothing of the process runs after it."""


def die_in(payouts: Queue, pay: Callable[[Delivery], object]) -> Delivery:
    """Claim the work and be gone: neither phase two nor the giving up reaches the store."""
    delivery = taken(payouts)
    records = payouts.room.engine.records
    real = records.delete

    def pass_away(*args: object, **options: object) -> bool:
        raise EngineUnavailable

    records.delete = pass_away  # type: ignore[method-assign]  # a process that is dead deletes nothing
    try:
        with working_on(delivery), pytest.raises(Died):
            pay(delivery)
    finally:
        records.delete = real  # type: ignore[method-assign]  # alive again
    return delivery


@pytest.fixture
def deadly(pay: Pay) -> Pay:
    """The same work in a process that dies while it does it."""

    @idempotent(by_body, name=name_of(pay))
    def die(delivery: Delivery) -> None:
        raise Died

    return die


def test_a_redelivery_takes_over_at_once(
    room: Room, clock: ManualClock, payouts: Queue, pay: Pay, deadly: Pay, ledger: Ledger
) -> None:
    payouts.put("INV-1")
    die_in(payouts, deadly)
    let_pass(room, clock, 31)
    with taken(payouts) as delivery:
        assert delivery.attempt == 1
        pay(delivery)
    assert ledger.paid == ["INV-1"]


def test_a_duplicate_waits_for_as_long_as_the_dead_one_could_be_alive(
    room: Room, clock: ManualClock, payouts: Queue, pay: Pay, deadly: Pay, ledger: Ledger
) -> None:
    payouts.put("INV-1", ack_timeout="30s")
    die_in(payouts, deadly)
    payouts.put("INV-1", ack_timeout="10m", priority=9)
    duplicate = taken(payouts)
    with pytest.raises(InProgress):
        pay_in(duplicate, pay)
    let_pass(room, clock, 31)  # now the first is reclaimed: nobody works on it
    assert pay_in(duplicate, pay) == {"receipt": "R-INV-1"}
    assert pay_in(taken(payouts), pay) == {"receipt": "R-INV-1"}
    assert ledger.paid == ["INV-1"]


def test_the_claim_of_an_earlier_delivery_is_void_although_the_message_is_in_work_again(
    room: Room, clock: ManualClock, payouts: Queue, pay: Pay, deadly: Pay, ledger: Ledger
) -> None:
    payouts.put("INV-1")
    die_in(payouts, deadly)
    let_pass(room, clock, 31)
    again = taken(payouts)  # but it has not come to the guard yet
    payouts.put("INV-1")
    pay_in(taken(payouts), pay)
    pay_in(again, pay)
    assert ledger.paid == ["INV-1"]


def test_an_earlier_delivery_does_not_take_over_from_the_one_that_holds_the_message(
    room: Room, clock: ManualClock, payouts: Queue
) -> None:
    runs: list[int] = []

    @idempotent(by_body)
    def pay(delivery: Delivery) -> None:
        runs.append(delivery.deliveries)
        if delivery is second:  # the first was only slow to begin
            with pytest.raises(InProgress):
                pay_in(first, pay)

    payouts.put("INV-1")
    first = taken(payouts)
    let_pass(room, clock, 31)
    second = taken(payouts)
    pay_in(second, pay)
    assert runs == [2]


def test_one_delivery_may_try_again_what_it_could_not_give_up(
    payouts: Queue, pay: Pay, deadly: Pay, ledger: Ledger
) -> None:
    payouts.put("INV-1")
    pay_in(die_in(payouts, deadly), pay)
    assert ledger.paid == ["INV-1"]


@pytest.mark.parametrize("end", ["dead", "gone"])
def test_the_claim_of_a_message_that_is_dead_or_gone_is_void(
    payouts: Queue, pay: Pay, deadly: Pay, ledger: Ledger, end: str
) -> None:
    payouts.put("INV-1")
    first = die_in(payouts, deadly)
    first.bury("no more") if end == "dead" else payouts.drop(force=True)
    payouts.put("INV-1")
    with taken(payouts) as delivery:
        pay(delivery)
    assert ledger.paid == ["INV-1"]


def test_who_was_taken_over_cannot_say_that_it_is_done(
    room: Room, clock: ManualClock, payouts: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []

    @idempotent(by_body)
    def pay(delivery: Delivery) -> str:
        runs.append(delivery.body)
        if len(runs) == 1:  # too slow: redelivered while it still works
            let_pass(room, clock, 31)
            assert pay_in(taken(payouts), pay) == "second"
            return "first"
        return "second"

    payouts.put_many(["INV-1", "INV-1"])
    assert pay_in(taken(payouts), pay) == "first"
    assert pay_in(taken(payouts), pay) == "second", "the result is that of who held the message"
    assert "idempotency.lost" in [getattr(record, "event", "") for record in caplog.records]


def test_a_caller_without_a_delivery_gives_up_its_claim_when_it_fails(room: Room) -> None:
    answers = [ConnectionError("down"), None]

    @idempotent(str, room=room)
    def pay(number: int) -> str:
        if answer := answers.pop(0):
            raise answer
        return "paid"

    with pytest.raises(ConnectionError):
        pay(7)
    assert [pay(7), pay(7)] == ["paid", "paid"]


def test_a_caller_without_a_delivery_holds_its_claim_for_a_lease(room: Room, clock: ManualClock) -> None:
    runs: list[int] = []

    def pay(number: int) -> None:
        runs.append(number)
        raise Died

    guarded = functools.partial(idempotent, str, room=room, lease="5m", name="pay")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr(room.engine.records, "delete", lambda *args, **options: False)
        guarded()(pay)(7)
    with pytest.raises(InProgress):
        guarded()(runs.append)(7)
    clock.advance("5m")
    guarded()(runs.append)(7)
    assert runs == [7, 7]


# --- the store is away ---------------------------------------------------------------------------


@pytest.fixture
def cut_off(wire: Wire) -> Queue:
    payouts = room_on(wire).queue("payouts", Policy(max_attempts=1))
    payouts.put_many(["INV-1", "INV-1"])
    return payouts


def test_a_store_that_is_away_before_the_work_burns_no_attempt(
    wire: Wire, cut_off: Queue, pay: Pay, ledger: Ledger
) -> None:
    with taken(cut_off) as delivery:
        wire.fail(1, "records.put")
        pay(delivery)
    assert [entry.attempt for entry in entries(cut_off, "scheduled")] == [0]
    assert ledger.paid == []


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_after_the_work_is_asked_for_again(
    wire: Wire, cut_off: Queue, pay: Pay, ledger: Ledger, arrived: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = taken(cut_off), taken(cut_off)

    def pay_and_fail(delivery: Delivery) -> object:
        wire.fail(1, "records.put", arrived=arrived)
        return ledger.pay(delivery)

    assert pay_in(first, idempotent(by_body, name=name_of(pay))(pay_and_fail)) == {"receipt": "R-INV-1"}
    assert pay_in(second, pay) == {"receipt": "R-INV-1"}
    assert ledger.paid == ["INV-1"]
    assert caplog.records == []


def test_done_that_cannot_be_written_down_is_not_an_error_of_the_work(
    wire: Wire, cut_off: Queue, pay: Pay, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.idempotency._PAUSES", (0.0, 0.0, 0.0))

    def pay_and_fail(delivery: Delivery) -> object:
        wire.fail(4, "records.put")
        return ledger.pay(delivery)

    with taken(cut_off) as delivery:
        assert idempotent(by_body)(pay_and_fail)(delivery) == {"receipt": "R-INV-1"}
    assert cut_off.stats().counters["acked"] == 1


# --- keys, results, and the rest -----------------------------------------------------------------


def test_without_a_key_the_delivery_names_the_work(payouts: Queue, ledger: Ledger) -> None:
    pay = idempotent()(ledger.pay)
    header = {"idempotency-key": "INV-1"}
    payouts.put("a", headers=header)
    payouts.put("b", headers=header)
    payouts.put("c")
    for key in ("INV-1", "INV-1", None):
        with taken(payouts) as delivery:
            assert delivery.idempotency_key == (key or delivery.id)
            pay(delivery)
    assert ledger.paid == ["a", "c"]


@pytest.mark.parametrize("result", [object(), "x" * MAX_RECORD], ids=["not JSON", "too large"])
def test_a_result_that_cannot_be_kept_is_none_for_duplicates(payouts: Queue, result: object) -> None:
    pay = idempotent(by_body)(lambda delivery: result)
    payouts.put_many(["INV-1", "INV-1"])
    answers = []
    for _ in range(2):
        with taken(payouts) as delivery:
            answers.append(pay(delivery))
    assert answers == [result, None]


@pytest.mark.parametrize("key", ["", None, True, 1.5, "x" * 2_000])
def test_a_key_that_names_nothing_runs_nothing(payouts: Queue, ledger: Ledger, key: Any) -> None:
    payouts.put("INV-1")
    with pytest.raises(InvalidInput), taken(payouts) as delivery:
        idempotent(lambda delivery: key)(ledger.pay)(delivery)
    assert ledger.paid == []


def test_outside_of_a_delivery_it_needs_a_room_and_a_key(room: Room) -> None:
    with pytest.raises(InvalidInput, match="room"):
        idempotent(str)(print)(7)
    with pytest.raises(InvalidInput, match="key"):
        idempotent(room=room)(print)(7)


def test_what_cannot_be_guarded_is_refused_when_it_is_decorated() -> None:
    async def pay(delivery: Delivery) -> None: ...

    with pytest.raises(InvalidInput):
        idempotent()(pay)
    with pytest.raises(InvalidInput):
        idempotent(ttl=0)
    with pytest.raises(InvalidInput):
        idempotent("INV-1")  # type: ignore[arg-type]  # what people may write


def test_a_mark_of_a_newer_release_runs_nothing(room: Room, payouts: Queue, pay: Pay, ledger: Ledger) -> None:
    payouts.put("INV-1")
    room.engine.records.put(KIND, f"{name_of(pay)}:INV-1", b'{"done": "by the seventh phase"}')
    with pytest.raises(InProgress):
        pay_in(taken(payouts), pay)
    assert ledger.paid == []


class TaskOfAnotherDoor(NamedTuple):
    engine: Engine
    queue: str
    id: str
    deliveries: int
    idempotency_key: str
    is_held: bool = True


def test_another_door_can_say_what_is_in_hand(room: Room, ledger: Ledger) -> None:
    runs: list[str] = []
    task = TaskOfAnotherDoor(room.engine, "celery", "task", 1, "INV-1")
    for _ in range(2):
        with working_on(task):
            assert in_hand() is task
            idempotent()(runs.append)("paid")
    assert runs == ["paid"]
    assert in_hand() is None


def test_a_claim_by_a_delivery_that_is_settled_lives_by_its_lease(payouts: Queue) -> None:
    """Nothing in the store tells that work from a dead worker's: its message is gone."""
    payouts.put_many(["first", "second"])
    first, second = taken(payouts), taken(payouts)
    paid: list[str] = []

    @idempotent(key=lambda delivery: "INV-1")
    def pay(delivery: Delivery) -> None:
        paid.append(delivery.body)
        if delivery is first:
            with pytest.raises(InProgress):
                pay_in(second, pay)

    first.ack()
    pay_in(first, pay)
    assert paid == ["first"]


# --- every task ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("every_task", "expected"), [(True, [1]), (False, [1, 2])])
def test_with_every_task_a_message_that_comes_again_runs_no_handler(
    clock: ManualClock, every_task: bool, expected: list[int]
) -> None:
    room = room_on(MemoryEngine(clock), idempotency_every_task=every_task)
    jobs, runs = room.queue("jobs"), list[int]()
    jobs.put("once")
    handlers = Worker(room, {"jobs": lambda delivery: runs.append(delivery.deliveries)})._handlers
    handle = handlers.find("jobs", "")
    assert handle is not None
    pay_in(taken(jobs), handle)  # and the process dies before the ack
    let_pass(room, clock, 31)
    pay_in(taken(jobs), handle)
    assert runs == expected


def test_every_task_leaves_a_handler_that_is_guarded_alone(live: Room, pay: Pay) -> None:
    room = room_on(idempotency_every_task=True)
    worker = Worker(room, {"payouts": pay})
    assert worker._handlers.find("payouts", "") is pay


def test_every_task_works_in_a_running_worker(hire: Hire) -> None:
    room = room_on(idempotency_every_task=True)
    jobs, runs = room.queue("jobs"), list[int]()
    hire(room, {"jobs": lambda delivery: runs.append(delivery.body)}, concurrency=2)
    jobs.put_many(range(20))
    eventually(lambda: jobs.stats().counters.get("acked") == 20)
    assert sorted(runs) == list(range(20))
    assert len(room.engine.records.list(KIND)) == 20
