"""Breakers: when they open, whom they let through, what they cost, and what a worker makes of them."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Iterator

import pytest

from postroom import Delivery, Handlers, Policy, Retry, audit, breaker, standing
from postroom.breaker import Breaker, Breakers, Change
from postroom.engines.memory import MemoryEngine
from postroom.errors import BreakerOpen as Refused
from postroom.errors import Bury, InvalidInput
from postroom.room import Room
from postroom.standing import KIND, Standing, State, standings
from postroom.testing import ManualClock
from tests.door.staging import PATIENCE, Hire, Wire, eventually, room_on


class Time:
    """Stands where the module `time` stands in `postroom.breaker`; only the test moves it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def advance(self, seconds: float) -> None:
        self.now += seconds


class RateLimit(Exception):
    """What a provider says to too many calls."""


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(breaker, "time", time)
    monkeypatch.setattr(standing, "time", time)
    return time


@pytest.fixture(params=["here", "shared"])
def psp(request: pytest.FixtureRequest, time: Time, room: Room) -> Breaker:
    return Breaker(
        "psp", threshold=3, window="60s", cooldown="30s", room=room if request.param == "shared" else None
    )


def fail(guard: Breaker, times: int = 1, error: type[BaseException] = ConnectionError) -> None:
    for _ in range(times):
        with pytest.raises(error), guard:
            raise error("it is down")


def state(guard: Breaker) -> State:
    """As a call: mypy takes an attribute for what it was before."""
    return guard.state


def claims(wire: Wire, queue: str) -> int:
    return sum(call.verb == "turn" and call.args[0] == queue and bool(call.args[3]) for call in wire.calls)


def refused(guard: Breaker) -> Refused:
    with pytest.raises(Refused) as raised, guard:
        pytest.fail("it was called")
    return raised.value


# --- states --------------------------------------------------------------------------------------


def test_it_opens_at_the_threshold_and_not_before(psp: Breaker) -> None:
    fail(psp, 2)
    assert (psp.state, psp.limit()) == (State.CLOSED, None)
    fail(psp)
    assert (psp.state, psp.limit()) == (State.OPEN, 0)
    assert refused(psp).retry_after == pytest.approx(30)


def test_one_success_forgets_the_failures(psp: Breaker) -> None:
    fail(psp, 2)
    with psp:
        pass
    fail(psp, 2)
    assert state(psp) is State.CLOSED


def test_failures_outside_the_window_do_not_count(psp: Breaker, time: Time) -> None:
    fail(psp, 2)
    time.advance(61)
    fail(psp, 2)
    assert state(psp) is State.CLOSED
    fail(psp)
    assert state(psp) is State.OPEN


def test_a_rate_limit_counts(psp: Breaker) -> None:
    fail(psp, 3, RateLimit)
    assert state(psp) is State.OPEN


def test_the_cause_of_a_verdict_counts_and_a_verdict_alone_does_not(psp: Breaker) -> None:
    for _ in range(5):
        with pytest.raises(Bury), psp:
            raise Bury("the data is wrong, the provider is fine")
    assert state(psp) is State.CLOSED
    for _ in range(3):
        with pytest.raises(Retry), psp:
            raise Retry(after="1m") from RateLimit("slow down")
    assert state(psp) is State.OPEN


def test_a_stop_of_the_program_says_nothing(psp: Breaker) -> None:
    fail(psp, 5, KeyboardInterrupt)
    assert state(psp) is State.CLOSED


def test_only_what_counts_counts(time: Time) -> None:
    guard = Breaker("psp", threshold=1, counts=lambda error: not isinstance(error, KeyError))
    fail(guard, 5, KeyError)
    assert state(guard) is State.CLOSED
    fail(guard)
    assert state(guard) is State.OPEN


def test_after_the_cooldown_one_probe_passes_and_its_success_closes(psp: Breaker, time: Time) -> None:
    fail(psp, 3)
    time.advance(29)
    refused(psp)
    time.advance(1.5)
    assert psp.limit() == 1
    with psp:
        assert state(psp) is State.HALF_OPEN
        refused(psp)
    assert state(psp) is State.CLOSED
    with psp, psp:
        pass


def test_a_failed_probe_opens_it_for_another_cooldown(psp: Breaker, time: Time) -> None:
    fail(psp, 3)
    time.advance(31)
    fail(psp)
    assert state(psp) is State.OPEN
    assert refused(psp).retry_after == pytest.approx(30)


def test_as_many_probes_as_it_says(time: Time) -> None:
    guard = Breaker("psp", threshold=1, cooldown="30s", probes=2)
    fail(guard)
    time.advance(31)
    with guard, guard:
        refused(guard)


def test_a_probe_that_says_nothing_makes_room_for_another(psp: Breaker, time: Time) -> None:
    fail(psp, 3)
    time.advance(31)
    fail(psp, 1, KeyboardInterrupt)
    assert state(psp) is State.HALF_OPEN
    with psp:
        pass
    assert state(psp) is State.CLOSED


@pytest.mark.parametrize("began", ["while it was closed", "as a probe that was given up"])
def test_a_call_from_before_gives_no_place_of_a_probe_back(psp: Breaker, time: Time, began: str) -> None:
    elsewhere = contextvars.copy_context()  # another thread or task
    if began == "while it was closed":
        elsewhere.run(psp.__enter__)
    fail(psp, 3)
    time.advance(31)
    if began != "while it was closed":
        elsewhere.run(psp.__enter__)
        time.advance(31)
    with psp:
        elsewhere.run(psp.__exit__, KeyboardInterrupt, KeyboardInterrupt(), None)
        refused(psp)


def test_a_probe_that_is_not_heard_of_again_is_given_up(psp: Breaker, time: Time) -> None:
    fail(psp, 3)
    time.advance(31)
    psp.__enter__()  # and never comes back
    refused(psp)
    time.advance(31)
    with psp:
        pass
    assert state(psp) is State.CLOSED


def test_a_late_success_does_not_close_an_open_one(psp: Breaker) -> None:
    with psp:
        fail(psp, 3)
    assert state(psp) is State.OPEN


def test_opened_by_hand_it_stays_open_until_closed_by_hand(psp: Breaker, time: Time) -> None:
    psp.open("maintenance")
    time.advance(3_600)
    assert "maintenance" in str(refused(psp))
    psp.close()
    with psp:
        pass


@pytest.mark.parametrize("rules", [{"threshold": 0}, {"probes": 0}, {"window": 0}, {"cooldown": "0s"}])
def test_rules_that_make_no_sense_are_refused(rules: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        Breaker("psp", **rules)  # type: ignore[arg-type]  # several types in one table


# --- ways to use it ------------------------------------------------------------------------------


def test_as_a_decorator_also_of_a_coroutine(time: Time) -> None:
    guard = Breaker("psp", threshold=2)

    @guard
    def charge(amount: int) -> int:
        """Charges."""
        return amount * 2

    @guard
    async def charge_soon() -> None:
        raise ConnectionError

    assert (charge(4), charge.__doc__) == (8, "Charges.")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            asyncio.run(charge_soon())
    with pytest.raises(Refused):
        charge(4)


def test_every_change_is_told_to_a_hook_and_the_log(
    psp: Breaker, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Change] = []
    psp.on_change.append(told.append)
    fail(psp, 3)
    time.advance(31)
    with psp:
        pass
    assert [(change.before.value, change.after.value) for change in told] == [
        ("closed", "open"), ("open", "half_open"), ("half_open", "closed"),
    ]  # fmt: skip
    assert told[0].reason == "ConnectionError: it is down"
    assert [getattr(record, "event", "") for record in caplog.records].count("breaker.changed") == 2


def test_a_hook_that_fails_fails_no_call(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    guard = Breaker("psp", threshold=1, cooldown="30s", on_change=lambda change: 1 // 0)
    fail(guard)
    time.advance(31)
    with guard:
        pass
    assert state(guard) is State.CLOSED
    assert "breaker.hook_failed" in [getattr(record, "event", "") for record in caplog.records]


def test_a_hook_may_make_a_guarded_call_at_every_change(psp: Breaker, time: Time) -> None:
    """Such as to tell somebody by the gateway that is guarded."""
    met: list[State] = []

    def tell(change: Change) -> None:
        met.append(change.after)
        if change.after is not State.CLOSED:
            refused(psp)

    def recover() -> None:
        with psp:
            pass

    psp.on_change.append(tell)
    fail(psp, 3)
    time.advance(31)
    thread = threading.Thread(target=recover, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert met == [State.OPEN, State.HALF_OPEN, State.CLOSED]


def test_by_name_there_is_one_for_each(time: Time) -> None:
    breakers = Breakers(threshold=1)
    fail(breakers["shop-a"])
    assert breakers["shop-a"] is breakers["shop-a"]
    assert {guard.name: guard.state.value for guard in breakers} == {"shop-a": "open"}
    assert breakers["shop-b"].state is State.CLOSED


# --- shared --------------------------------------------------------------------------------------


@pytest.fixture
def pair(time: Time, room: Room) -> tuple[Breaker, Breaker]:
    """The same breaker as two processes have it."""
    first, second = (Breaker("psp", threshold=3, cooldown="30s", room=room) for _ in range(2))
    return first, second


def test_failures_of_two_processes_count_together(pair: tuple[Breaker, Breaker], time: Time) -> None:
    first, second = pair
    fail(first)
    fail(second)
    fail(first)
    assert state(first) is State.OPEN
    time.advance(1.1)
    refused(second)


def test_a_success_of_one_resets_what_both_counted(pair: tuple[Breaker, Breaker], time: Time) -> None:
    first, second = pair
    fail(first, 2)
    time.advance(1.1)
    with second:
        pass
    fail(first, 2)
    assert state(first) is State.CLOSED


def test_of_two_processes_one_probes(pair: tuple[Breaker, Breaker], time: Time) -> None:
    first, second = pair
    fail(first, 3)
    time.advance(1.1)
    assert state(second) is State.OPEN
    time.advance(31)
    assert (first.limit(), second.limit()) == (1, 1)
    with first:
        refused(second)
    time.advance(1.1)
    assert second.limit() is None


def test_who_would_probe_what_another_has_closed_just_passes(
    pair: tuple[Breaker, Breaker], time: Time
) -> None:
    first, second = pair
    fail(first, 3)
    time.advance(1.1)
    assert state(second) is State.OPEN
    time.advance(31)
    assert second.limit() == 1  # and its knowledge is fresh for a second
    with first:
        pass
    with second, second:
        assert state(second) is State.CLOSED


def test_a_prober_that_died_is_replaced(pair: tuple[Breaker, Breaker], time: Time) -> None:
    first, second = pair
    fail(first, 3)
    time.advance(31)
    first.__enter__()
    time.advance(1.1)
    refused(second)
    time.advance(31)
    with second:
        pass
    time.advance(1.1)
    assert state(first) is State.CLOSED


def test_a_persons_word_is_not_forgotten(room: Room, clock: ManualClock, time: Time) -> None:
    Breaker("psp", room=room).open("fraud")
    fail(Breaker("other", room=room))
    clock.advance("365d")
    assert {name: each.reason for name, each in standings(room).items()} == {"psp": "fraud"}


def test_its_changes_are_events_of_a_topic(room: Room, time: Time) -> None:
    fail(Breaker("psp", threshold=1, room=room))
    (entry,) = room.engine.read(breaker.TOPIC, after="").entries
    event = json.loads(entry.data)
    assert (event["name"], event["before"], event["after"]) == ("psp", "closed", "open")


def test_a_process_asks_the_store_at_most_once_a_second(time: Time) -> None:
    wire = Wire(MemoryEngine())
    guard = Breaker("psp", room=room_on(wire))
    with guard:
        pass
    wire.calls.clear()
    for _ in range(100):
        with guard:
            pass
    assert wire.calls == []
    time.advance(1.1)
    for _ in range(100):
        with guard:
            pass
    assert [call.verb for call in wire.calls] == ["records.get"]


def test_a_store_that_is_away_never_fails_a_call(time: Time) -> None:
    wire = Wire(MemoryEngine())
    guard = Breaker("psp", threshold=2, cooldown="30s", room=room_on(wire))
    wire.fail(1_000)
    with guard:
        pass
    fail(guard, 2)
    assert state(guard) is State.OPEN
    time.advance(31)
    with guard:
        pass
    assert state(guard) is State.CLOSED


def test_what_a_newer_release_wrote_lets_calls_pass(room: Room, time: Time) -> None:
    room.engine.records.put(KIND, "psp", b'{"state": "smouldering"}')
    with Breaker("psp", room=room):
        pass


def test_many_threads_that_fail_at_once_all_count(room: Room) -> None:
    guards = [Breaker("psp", threshold=8, window="1h", cooldown="1h", room=room) for _ in range(8)]
    threads = [threading.Thread(target=fail, args=(guard,)) for guard in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert standings(room)["psp"].state is State.OPEN


# --- workers -------------------------------------------------------------------------------------


class Provider:
    """Fails while it is down, and knows how often it was called."""

    def __init__(self) -> None:
        self.down = threading.Event()
        self.calls = 0
        self.paid: list[int] = []

    def pay(self, delivery: Delivery) -> None:
        self.calls += 1
        if self.down.is_set():
            raise ConnectionError("it is down")
        self.paid.append(delivery.body)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def wired(wire: Wire) -> Iterator[Room]:
    with room_on(wire) as room:
        yield room


def test_a_worker_claims_nothing_while_its_breaker_is_open(
    wired: Room, wire: Wire, hire: Hire, provider: Provider
) -> None:
    guard = Breaker("psp", threshold=2, cooldown="1h")
    payouts = wired.queue("payouts", Policy(max_attempts=3, backoff="1ms", jitter=False))
    other = wired.queue("other")
    provider.down.set()
    payouts.put_many(range(20))
    worked = threading.Event()
    handlers = {"payouts": guard(provider.pay), "other": lambda delivery: worked.set()}
    hire(wired, handlers, breakers={"payouts": guard}, concurrency=4)
    eventually(lambda: state(guard) is State.OPEN and payouts.stats().processing == 0)
    calls = provider.calls
    other.put(1)  # the worker goes on with everything else
    assert worked.wait(PATIENCE)
    eventually(lambda: other.stats().processing == 0)
    assert provider.calls == calls <= 8
    stats = payouts.stats()
    assert (stats.ready + stats.scheduled, stats.dead) == (20, 0)
    claims = [
        call for call in wire.calls if call.verb == "turn" and call.args[0] == "payouts" and call.args[3]
    ]
    other.put(2)
    eventually(lambda: other.stats().ready == 0)
    again = [
        call for call in wire.calls if call.verb == "turn" and call.args[0] == "payouts" and call.args[3]
    ]
    assert len(again) == len(claims)


def test_handlers_know_the_breakers_of_their_queues(wired: Room, wire: Wire, hire: Hire) -> None:
    guard = Breaker("psp", cooldown="1h")
    guard.open("maintenance")
    worked = threading.Event()
    handlers = Handlers({"payouts": print, "refunds": print, "other": lambda delivery: worked.set()})
    handlers.tie("payouts", guard)
    handlers.tie("refunds", lambda: guard)
    handlers.tie("elsewhere", lambda: pytest.fail("no queue of this worker"))
    for queue in ("payouts", "refunds", "other"):
        wired.queue(queue).put(1)
    hire(wired, handlers)
    assert worked.wait(PATIENCE)
    eventually(lambda: claims(wire, "other") > 1)
    assert (claims(wire, "payouts"), claims(wire, "refunds")) == (0, 0)


def test_a_worker_probes_by_a_timer_and_goes_on_with_everything(
    live: Room, hire: Hire, provider: Provider
) -> None:
    guard = Breaker("psp", threshold=2, cooldown="50ms")
    payouts = live.queue("payouts", Policy(max_attempts=5, backoff="1ms", jitter=False))
    provider.down.set()
    payouts.put_many(range(20))
    hire(live, {"payouts": guard(provider.pay)}, breakers={"payouts": guard}, concurrency=2)
    eventually(lambda: state(guard) is not State.CLOSED)
    provider.down.clear()
    eventually(lambda: len(provider.paid) == 20)
    assert sorted(provider.paid) == list(range(20))
    assert state(guard) is State.CLOSED
    assert payouts.stats().dead == 0


def test_a_half_open_breaker_gets_its_probes_and_no_more(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    guard = Breaker("psp", threshold=1, cooldown="20ms")
    payouts = live.queue("payouts", Policy(backoff="1ms", jitter=False))
    opened, probing = threading.Event(), threading.Event()
    guard.on_change.append(lambda change: opened.set())
    begun: list[int] = []

    def pay(delivery: Delivery) -> None:
        begun.append(delivery.deliveries)
        with guard:
            if not opened.is_set():
                raise ConnectionError("it is down")
            probing.set()
            gate.wait(60)

    payouts.put("the first, alone")
    hire(live, {"payouts": pay}, breakers={"payouts": guard}, concurrency=4)
    assert opened.wait(30)
    payouts.put_many(range(8))
    assert probing.wait(30)
    stats = payouts.stats()
    assert (len(begun), stats.processing, stats.depth) == (2, 1, 8)
    gate.set()
    eventually(lambda: payouts.stats().processing == payouts.stats().depth == 0)


def test_what_was_claimed_ahead_is_handed_back_when_the_breaker_opens(live: Room, hire: Hire) -> None:
    guard = Breaker("psp", threshold=1, cooldown="1h")
    payouts = live.queue("payouts")
    payouts.put_many(range(10))
    began, go = threading.Event(), threading.Event()

    def pay(delivery: Delivery) -> None:
        began.set()
        go.wait(30)
        with guard:
            raise ConnectionError("it is down")

    hire(live, {"payouts": pay}, breakers={"payouts": guard}, prefetch=9)
    assert began.wait(PATIENCE)
    eventually(lambda: payouts.stats().processing == 10)
    go.set()
    eventually(lambda: payouts.stats().processing == 0)
    stats = payouts.stats()
    assert (stats.ready, stats.scheduled) == (9, 1)
    assert sum(entry.attempt for entry in payouts.find("ready").entries) == 0


def test_a_breaker_of_a_queue_that_the_worker_has_not_is_refused(live: Room, hire: Hire) -> None:
    with pytest.raises(InvalidInput, match="payouts"):
        hire(live, {"other": lambda delivery: None}, breakers={"payouts": Breaker("psp")})


# --- opened for a while ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "shared"])
def test_what_is_opened_for_a_while_closes_by_itself(
    time: Time, room: Room, clock: ManualClock, where: str
) -> None:
    told: list[Change] = []
    shared = room if where == "shared" else None
    guard = Breaker("psp", cooldown="1s", room=shared, on_change=told.append)
    with guard:
        pass
    guard.open("maintenance", expires="10m")
    assert (guard.standing.forced, guard.standing.until - guard.standing.since) == (True, 600_000)
    for _ in range(2):
        time.advance(299)
        clock.advance("299s")
        assert guard.limit() == 0, "no cooldown ends it"
        refused(guard)
    time.advance(2)
    clock.advance("2s")
    with guard:
        pass
    assert (guard.standing.state, guard.standing.forced) == (State.CLOSED, False)
    assert [(each.before, each.after) for each in told] == [
        (State.CLOSED, State.OPEN),
        (State.OPEN, State.CLOSED),
    ]
    if shared:
        assert [each.after for each in breaker.changes(room.engine, "psp")] == [State.OPEN, State.CLOSED]
        (act,) = audit.read(room.engine).acts
        assert (act.event, act.info["lasts"]) == ("open_breaker", 600_000)


def test_of_several_processes_one_tells_that_the_time_is_over(
    time: Time, room: Room, clock: ManualClock
) -> None:
    guards = [Breaker("psp", room=room) for _ in range(3)]
    guards[0].open("maintenance", expires="1m")
    time.advance(2)
    assert {state(guard) for guard in guards} == {State.OPEN}
    time.advance(60)
    clock.advance("1m")
    assert {state(guard) for guard in guards} == {State.CLOSED}
    assert [each.after for each in breaker.changes(room.engine, "psp")] == [State.OPEN, State.CLOSED]


def test_who_closes_it_sooner_has_the_last_word(time: Time, room: Room, clock: ManualClock) -> None:
    guard = Breaker("psp", room=room)
    guard.open("maintenance", expires="1m")
    guard.close("done")
    guard.open("again, until somebody closes it")
    time.advance(3_600)
    clock.advance("1h")
    assert state(guard) is State.OPEN


def test_no_time_at_all_is_refused(room: Room) -> None:
    with pytest.raises(InvalidInput, match="expires"):
        Breaker("psp", room=room).open("x", expires=0)


# --- the last calls --------------------------------------------------------------------------------


def outcomes(found: Standing) -> list[str]:
    return [call.outcome.value for call in found.calls]


def test_who_changes_a_breaker_tells_the_calls_that_led_there(room: Room, time: Time) -> None:
    ours, theirs = (Breaker("psp", threshold=2, window="60s", cooldown="30s", room=room) for _ in range(2))
    for guard in (ours, ours, theirs):
        time.advance(1)
        with guard:
            pass
    time.advance(1)
    fail(ours)
    assert outcomes(standings(room)["psp"]) == ["ok", "ok", "failure"], "what theirs saw, nobody has told"
    time.advance(1)
    fail(theirs)
    told = standings(room)["psp"]
    assert outcomes(told) == ["ok", "ok", "ok", "failure", "failure"]
    assert [call.at for call in told.calls] == sorted(call.at for call in told.calls)
    assert told.calls[-1].text == "ConnectionError: it is down"
    for _ in range(50):
        time.advance(0.1)
        refused(theirs)
    time.advance(30)
    with theirs:
        pass
    assert outcomes(standings(room)["psp"]) == [*outcomes(told), "refused", "ok"], "refusals in a row are one"
    ours.doubt()
    ours.open("maintenance")
    assert len(standings(room)["psp"].calls) == 7, "nor does a person forget them"


def test_twenty_calls_are_kept(room: Room, time: Time) -> None:
    guard = Breaker("psp", threshold=5, room=room)
    for _ in range(30):
        time.advance(1)
        with guard:
            pass
    fail(guard)
    assert outcomes(standings(room)["psp"]) == ["ok"] * 19 + ["failure"]


def test_a_call_that_changes_nothing_costs_no_round_trip(time: Time) -> None:
    wire = Wire(MemoryEngine())
    with room_on(wire) as room:
        guard = Breaker("psp", room=room)
        with guard:
            pass
        before = len(wire.calls)
        for _ in range(100):
            with guard:
                pass
        assert len(wire.calls) == before


def test_a_standing_is_small(room: Room, time: Time) -> None:
    guard = Breaker("psp", threshold=1_000, window="1h", room=room)
    fail(guard, 999)
    record = room.engine.records.get(KIND, "psp")
    assert record is not None
    assert len(record.value) < 20_000
    assert guard.standing == standings(room)["psp"] != Standing()


def test_who_doubts_what_it_knows_asks_the_store(room: Room) -> None:
    ours, theirs = Breaker("psp", room=room), Breaker("psp", room=room)
    assert ours.state is State.CLOSED
    theirs.open("maintenance")
    ours.doubt()
    assert (ours.state, ours.limit()) == (State.OPEN, 0)
    Breaker("alone").doubt()


def test_what_shared_breakers_went_through_is_told(room: Room) -> None:
    psp = Breaker("psp", room=room, threshold=2, cooldown="1m")
    psp.failed("no answer")
    assert (psp.standing.threshold, len(psp.standing.failures), psp.standing.until) == (2, 1, 0)
    psp.failed("no answer")
    assert psp.standing.until == psp.standing.since + 60_000
    psp.close("they called")
    Breaker("bank", room=room).open("a test")
    room.engine.publish(breaker.TOPIC, [b"whatever", b'{"name": 7}'])
    told = breaker.changes(room.engine)
    shown = [(each.name, each.before, each.after, each.reason) for each in told]
    assert shown == [
        ("psp", "closed", "open", "no answer"),
        ("psp", "open", "closed", "they called"),
        ("bank", "closed", "open", "a test"),
    ]
    assert breaker.changes(room.engine, "bank") == told[2:]
    assert breaker.changes(room.engine, limit=1) == told[2:]
