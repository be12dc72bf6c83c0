"""A worker whose engine cannot be reached for a while: nothing is lost, nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from postroom import Delivery, Policy, Worker
from postroom.engines.memory import MemoryEngine
from postroom.model import Outcome, Settlement, State
from postroom.room import Room
from postroom.testing import ManualClock
from postroom.worker import worker as worker_module
from tests.door.staging import Hire, Wire, entries, eventually, room_on

RETRY_FIRST, RETRY_LAST = worker_module._RETRY_FIRST, worker_module._RETRY_LAST


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.worker.worker._RETRY_FIRST", 0.002)
    monkeypatch.setattr("postroom.worker.worker._RETRY_LAST", 0.02)


@pytest.mark.parametrize("prefetch", [None, 0, 64])
def test_settles_are_repeated_and_each_message_is_handled_once(
    wire: Wire, hire: Hire, prefetch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(200))
    handled: Counter[int] = Counter()
    lock = threading.Lock()

    def handler(delivery: Delivery) -> None:
        with lock:
            handled[delivery.body] += 1
            if sum(handled.values()) % 20 == 0:
                wire.fail(3, "turn")

    hire(room, {"q": handler}, concurrency=4, prefetch=prefetch, keeper=False)
    eventually(lambda: queue.stats().counters["acked"] == 200)
    assert handled == Counter(range(200))
    assert queue.stats().processing == 0
    assert any(record.__dict__.get("event") == "worker.engine_failed" for record in caplog.records)


def test_a_settle_whose_answer_was_lost_is_repeated_quietly(
    wire: Wire, hire: Hire, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(3))
    began: list[int] = []

    def handler(delivery: Delivery) -> None:
        began.append(delivery.body)
        gate.wait()

    hire(room, {"q": handler}, concurrency=3, keeper=False)
    eventually(lambda: len(began) == 3)
    wire.fail(2, "turn", arrived=True)
    gate.set()
    eventually(lambda: not wire.failing)
    eventually(lambda: queue.stats().processing == 0)
    queue.put("next")
    eventually(lambda: queue.stats().counters["acked"] == 4)
    assert "delivery.lost" not in {record.__dict__.get("event") for record in caplog.records}


def test_what_was_to_begin_is_kept_when_the_policy_cannot_be_read(
    wire: Wire, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.policies._AGE", -1.0)  # ask for it every time
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(200))
    seen: list[int] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if len(seen) % 10 == 0:
            wire.fail(2, "queues")

    hire(room, {"q": handler}, prefetch=50, keeper=False)
    eventually(lambda: queue.stats().counters["acked"] == 200)
    assert sorted(seen) == list(range(200))
    assert queue.stats().processing == 0


def test_an_outage_that_ends_finds_the_worker_at_work_again(
    wire: Wire, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    hire(room, {"q": lambda delivery: None})
    queue.put(1)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    wire.fail(40)
    room_on(wire._engine).queue("q").put(2)
    eventually(lambda: not wire.failing)
    eventually(lambda: queue.stats().counters["acked"] == 2)


def test_after_an_outage_a_worker_first_says_that_it_lives(
    wire: Wire, hire: Hire, gate: threading.Event
) -> None:
    room = room_on(wire)
    queue = room.queue("q", Policy(lease="1h"))
    queue.put_many(range(5))
    hire(room, {"q": lambda delivery: gate.wait()}, concurrency=2, prefetch=0, keeper=False)
    eventually(lambda: queue.stats().processing == 2)
    wire.calls.clear()
    wire.fail(3, "turn")
    gate.set()
    eventually(lambda: queue.stats().counters["acked"] == 5)
    verbs = [call.verb for call in wire.calls if call.verb in ("turn", "renew")]
    assert verbs[:6] == ["turn", "renew"] * 3, "after each failure, and long before the third of an hour"


def test_a_store_that_comes_back_finds_its_workers_alive(hire: Hire, gate: threading.Event) -> None:
    """Nobody is taken for dead because of an outage: promise 11, seen from a worker."""
    clock = ManualClock()
    wire = Wire(MemoryEngine(clock))
    room = room_on(wire)
    queue = room.queue("q", Policy(lease="300ms", ack_timeout="1h", keep_done="1h"))
    put = queue.put(1)
    hire(room, {"q": lambda delivery: gate.wait()}, keeper=False)
    eventually(lambda: queue.stats().processing == 1)
    wire.fail(5, "renew")
    clock.advance("10m")
    eventually(lambda: not wire.failing)
    beats = wire.count("renew")
    eventually(lambda: wire.count("renew") > beats + 1)  # so that the one before it is over
    clock.advance("150ms")
    room.engine.sweep("q")
    assert queue.get(put.id).state is State.PROCESSING
    gate.set()
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert queue.get(put.id).deliveries == 1


class Forgetful(Wire):
    """An engine that says yes to settles and loses them, like a store whose replica takes over."""

    forgets = False

    def send(self, verb: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if verb == "turn" and self.forgets and args[1]:
            answer = super().send(verb, call, args[0], (), *args[2:], **options)
            return answer._replace(settled=[Outcome.OK] * len(args[1]))
        return super().send(verb, call, *args, **options)


@pytest.mark.parametrize("failures", [1, 4], ids=["one outage", "one after the other"])
def test_a_store_that_lost_its_last_writes_gets_them_again(
    hire: Hire, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Those of the last moments before it went away, however long it stayed away."""
    monkeypatch.setattr("postroom.recent._SPAN", 1.0)
    wire = Forgetful(MemoryEngine())
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(3))
    began: list[int] = []

    def handler(delivery: Delivery) -> None:
        began.append(delivery.body)
        gate.wait()

    worker = hire(room, {"q": handler}, concurrency=3, keeper=False)
    eventually(lambda: len(began) == 3)
    wire.forgets = True
    gate.set()
    eventually(lambda: worker._dispatcher and not worker._dispatcher.busy)
    assert queue.stats().processing == 3, "the store has lost the acks"
    wire.forgets = False
    threading.Event().wait(1.1)
    wire.fail(1, "turn")
    wire.fail(failures, "settle")
    queue.put("next")
    eventually(lambda: queue.stats().counters["acked"] == 4)
    assert sorted(map(str, began)) == ["0", "1", "2", "next"]
    worker.stop()
    room.close()


def test_a_worker_asks_again_at_once_and_then_every_second(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the store was away, its return is noticed soon."""
    monkeypatch.setattr("postroom.worker.worker._RETRY_FIRST", RETRY_FIRST)
    monkeypatch.setattr("postroom.worker.worker._RETRY_LAST", RETRY_LAST)
    pauses: list[float] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return self.is_set()

    room = room_on(wire)
    room.queue("q").put("x")
    wire.fail(12, "turn")
    worker = Worker(room, {"q": lambda delivery: None}, keeper=False)
    worker._stopping = Watched()
    worker.run(drain=True)
    assert room.queue("q").stats().counters["acked"] == 1
    assert len(pauses) == 12
    assert 0 < pauses[0] <= 0.1
    assert pauses[-3:] == [1.0] * 3


def test_a_drain_outlasts_an_outage(wire: Wire) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(20))
    wire.fail(10, "turn")
    Worker(room, {"q": lambda delivery: None}, keeper=False).run(drain=True)
    assert queue.stats().counters["acked"] == 20


def test_a_stop_during_an_outage_still_settles(wire: Wire, gate: threading.Event) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    queue.put_many(range(6))
    began: list[int] = []

    def handler(delivery: Delivery) -> None:
        began.append(delivery.body)
        gate.wait()

    worker = Worker(room, {"q": handler}, prefetch=3, keeper=False).start()
    eventually(lambda: began and queue.stats().processing == 4)
    wire.fail(5, "turn")
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    gate.set()
    stopper.join()
    stats = queue.stats()
    assert stats.processing == 0
    assert (stats.counters["acked"], stats.ready) == (1, 5)


def test_a_closed_room_ends_its_worker(live: Room, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(live, {"q": lambda delivery: None}).start()
    live.close()
    eventually(lambda: not worker._running.locked())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_urgency_of_the_queues_may_be_unknown_for_a_while(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    names = ["a", "b"]
    for name in names:
        room.queue(name).put_many(range(30))
    seen: list[Any] = []

    def handler(delivery: Delivery) -> None:
        seen.append((delivery.queue, delivery.body))
        if len(seen) % 7 == 0:
            wire.fail(2, "stats")

    hire(room, dict.fromkeys(names, handler), order="priority", prefetch=5, keeper=False)
    eventually(lambda: len(seen) == 60 and not wire.failing)
    assert len(set(seen)) == 60
    eventually(lambda: not any(room.queue(name).stats().processing for name in names))
    assert [entries(room.queue(name), State.DEAD) for name in names] == [[], []]


def test_what_was_settled_just_before_an_outage_is_settled_again(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    put = queue.put(1)
    hire(room, {"q": lambda delivery: None}, keeper=False)
    eventually(lambda: wire.count("turn") and queue.stats().counters["acked"] == 1)
    wire.fail(3, "turn")
    queue.put(2)  # wakes the worker, which finds its engine gone
    eventually(lambda: queue.stats().counters["acked"] == 2)
    assert put.id in {settlement.receipt.id for settlement in repeated(wire)}


def repeated(wire: Wire) -> list[Settlement]:
    """What was settled by calls of its own; a worker otherwise settles with its turns."""
    return [settlement for call in wire.calls if call.verb == "settle" for settlement in call.args[1]]


def test_an_engine_that_breaks_its_word_does_not_end_a_worker(
    wire: Wire, hire: Hire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    breaks = iter([UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")] * 2)
    real = wire.send

    def send(verb: str, *args: Any, **options: Any) -> Any:
        if verb == "turn" and (error := next(breaks, None)):
            raise error
        return real(verb, *args, **options)

    monkeypatch.setattr(wire, "send", send)
    hire(room, {"q": lambda delivery: None}, keeper=False)
    queue.put(1)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert any(record.exc_info for record in caplog.records)
