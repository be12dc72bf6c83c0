"""The worker: which code runs on which message, and what becomes of the message."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from postroom import Bury, Delivery, Policy, Retry, Worker
from postroom.errors import InvalidInput
from postroom.limits import JSON
from postroom.model import NewMessage, State
from postroom.room import Room
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, put_raw, room_on


def nothing(delivery: Delivery) -> None:
    pass


def drain(room: Room, handlers: dict[str, Any] | None = None, **options: Any) -> Worker:
    worker = Worker(room, handlers, **options)
    worker.run(drain=True)
    return worker


# ---- Running --------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_message_is_handled_once_and_acked(live: Room, concurrency: int) -> None:
    queue = live.queue("q")
    queue.put_many(range(2_000))
    seen: list[int] = []
    drain(live, {"q": lambda delivery: seen.append(delivery.body)}, concurrency=concurrency)
    assert sorted(seen) == list(range(2_000))
    stats = queue.stats()
    assert (stats.depth, stats.processing, stats.dead) == (0, 0, 0)
    assert (stats.counters["acked"], stats.counters["claimed"]) == (2_000, 2_000)


def test_one_hand_works_in_order(live: Room) -> None:
    live.queue("q").put_many(range(300))
    live.queue("q").put("urgent", priority="high")
    seen: list[Any] = []
    drain(live, {"q": lambda delivery: seen.append(delivery.body)})
    assert seen == ["urgent", *range(300)]


def test_handlers_really_run_at_the_same_time(live: Room) -> None:
    live.queue("q").put_many(range(4))
    barrier = threading.Barrier(4, timeout=PATIENCE)
    worker = drain(live, {"q": lambda delivery: barrier.wait()}, concurrency=4)
    assert not worker.last_exceptions


def test_never_more_than_the_concurrency_at_once(live: Room, hire: Hire) -> None:
    live.queue("q").put_many(range(60))
    lock = threading.Lock()
    at_once = most = 0

    def handler(delivery: Delivery) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.003)
        with lock:
            at_once -= 1

    drain(live, {"q": handler}, concurrency=3)
    assert most == 3


def test_a_drain_ends_when_nothing_is_ready(live: Room) -> None:
    queue = live.queue("q")
    queue.put("now")
    queue.put("later", delay="1h")
    drain(live, {"q": nothing})
    assert (queue.stats().ready, queue.stats().scheduled) == (0, 1)


@pytest.mark.parametrize("policy", [Policy(rate="1/h"), Policy(max_in_flight=1)], ids=["rate", "in flight"])
def test_a_drain_does_not_wait_for_a_limit_when_nothing_is_ready(live: Room, policy: Policy) -> None:
    queue = live.queue("q", policy)
    queue.put(1)
    if policy.rate:
        drain(live, {"q": nothing})
    else:
        held = queue.claim(timeout=0)
        began = time.monotonic()
        drain(live, {"q": nothing})
        assert time.monotonic() - began < 20, "it would wait for the other's ack_timeout"
        assert held
    assert queue.stats().depth == 0


def test_a_drain_does_not_wait_for_a_paused_queue(live: Room) -> None:
    queue = live.queue("q")
    queue.put(1)
    queue.pause()
    drain(live, {"q": nothing})
    assert queue.stats().ready == 1


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_drain_includes_what_the_handlers_put(live: Room, concurrency: int) -> None:
    """From queue to queue, also to one that had nothing when it was asked."""
    names = [f"step-{n}" for n in range(4)]

    def hand_on(delivery: Delivery) -> None:
        step = names.index(delivery.queue)
        if step < 3:
            live.queue(names[step + 1]).put(delivery.body)

    for round_ in range(15):
        live.queue(names[0]).put(round_)
        drain(live, dict.fromkeys(names, hand_on), concurrency=concurrency, keeper=False)
        assert [live.queue(name).stats().depth for name in names] == [0, 0, 0, 0]


def test_start_works_in_the_background_until_stop(live: Room) -> None:
    queue = live.queue("q")
    worker = Worker(live, {"q": nothing})
    assert worker.start() is worker
    queue.put(1)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    worker.stop()
    queue.put(2)
    assert queue.claim(timeout=0.1) is not None, "a stopped worker takes nothing"


def test_its_threads_do_not_keep_a_process_alive(live: Room, hire: Hire) -> None:
    before = set(threading.enumerate())
    hire(live, {"q": nothing}, concurrency=2)
    eventually(
        lambda: len(set(threading.enumerate()) - before) == 6
    )  # two hands, heart, attendance, keeper, itself
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)


def test_a_worker_can_be_used_with_with_and_started_again(live: Room) -> None:
    queue = live.queue("q")
    worker = Worker(live, {"q": nothing})
    for n in range(1, 4):
        with worker as given:
            assert given is worker
            queue.put(n)
            eventually(lambda n=n: queue.stats().counters["acked"] == n)  # type: ignore[misc]
    queue.put(4)
    worker.run(drain=True)
    assert queue.stats().counters["acked"] == 4


def test_a_stopped_worker_leaves_no_thread_behind(live: Room) -> None:
    before = set(threading.enumerate())  # some of them may end meanwhile
    with Worker(live, {"q": nothing}, concurrency=5):
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) - before == set()


def test_it_runs_once_at_a_time(live: Room, hire: Hire) -> None:
    worker = hire(live, {"q": nothing})
    with pytest.raises(InvalidInput, match="runs already"):
        worker.start()
    with pytest.raises(InvalidInput, match="runs already"):
        worker.run(drain=True)


def test_a_stop_before_the_run_is_heard(live: Room) -> None:
    live.queue("q").put(1)
    worker = Worker(live, {"q": nothing})
    worker.stop()
    worker.run()
    assert live.queue("q").stats().ready == 1


def test_a_handler_may_stop_its_worker(live: Room) -> None:
    queue = live.queue("q")
    queue.put_many(range(100))
    worker = Worker(live, {"q": lambda delivery: worker.stop()})
    worker.start()
    eventually(lambda: not worker._running.locked())
    stats = queue.stats()
    assert stats.processing == 0
    assert stats.counters["acked"] >= 1
    assert stats.counters["acked"] + stats.ready == 100


def test_a_worker_waits_without_asking_all_the_time(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    queue = room.queue("q")
    hire(room, {"q": nothing}, keeper=False)
    queue.put(1)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    wire.calls.clear()
    threading.Event().wait(0.3)
    assert wire.count("turn") <= 2


def test_the_policies_of_its_queues_come_together(live: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"q{number}" for number in range(30)]
    asked, queues, done = list[int](), live.engine.queues, list[str]()

    def counted(wanted: Any = None) -> Any:
        asked.append(len(wanted))
        return queues(wanted)

    for name in names[:20]:  # some are not there yet, and promise the usual
        live.engine.put(name, [NewMessage(body=b"1")])
    monkeypatch.setattr(live.engine, "queues", counted)
    handlers = dict.fromkeys(names, lambda delivery: done.append(delivery.queue))
    Worker(live, handlers, keeper=False).run(drain=True)
    assert sorted(done) == sorted(names[:20])
    assert asked == [30]


def test_a_delayed_message_is_handled_when_it_is_due(live: Room, hire: Hire) -> None:
    queue = live.queue("q", Policy(keep_done="1h"))
    hire(live, {"q": nothing})
    put = queue.put(1, delay="150ms")
    eventually(lambda: queue.stats().counters["acked"] == 1)
    assert queue.get(put.id).deliveries == 1


# ---- Which code -----------------------------------------------------------------------------------


def test_the_closest_registration_wins(live: Room) -> None:
    seen: list[str] = []
    worker = Worker(live, {"a": lambda delivery: seen.append("queue a")}, queues=["a", "b"])
    worker.handle("a", "kind")(lambda delivery: seen.append("kind of a"))
    worker.handle(kind="kind")(lambda delivery: seen.append("kind anywhere"))

    @worker.handle(queue="b", kind="own")
    def own(delivery: Delivery) -> None:
        seen.append("own of b")

    for queue, kind, expected in [
        ("a", "kind", "kind of a"),
        ("a", "other", "queue a"),
        ("a", "", "queue a"),
        ("b", "kind", "kind anywhere"),
        ("b", "own", "own of b"),
    ]:
        live.queue(queue).put(1, kind=kind)
        worker.run(drain=True)
        assert seen.pop() == expected
        assert seen == []


@pytest.mark.parametrize(
    "kind", ["unknown", "os.system", "os:system", "__import__('os').system", "builtins.exec", ""]
)
def test_no_message_can_name_code(live: Room, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    queue = live.queue("q")
    put = queue.put("touch /tmp/pwned", kind=kind)
    worker = Worker(live, queues=["q"])
    worker.handle("q", "known")(nothing)
    modules = set(sys.modules)
    worker.run(drain=True)
    entry = queue.get(put.id)
    assert (entry.state, entry.attempt) == (State.DEAD, 1)
    assert entry.failure and entry.failure.type == "NoHandler"
    assert repr(kind) in entry.failure.text
    assert set(sys.modules) == modules
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.__dict__["message_id"] == put.id


async def coroutine(delivery: Delivery) -> None:
    pass


async def async_generator(delivery: Delivery) -> AsyncIterator[int]:
    yield 1


def generator(delivery: Delivery) -> Iterator[int]:
    yield 1


class Awaitable:
    async def __call__(self, delivery: Delivery) -> None:
        pass


@pytest.mark.parametrize(
    "handler",
    [coroutine, functools.partial(coroutine), Awaitable(), async_generator, generator, "os.system", None, 5],
    ids=["coroutine", "partial", "async call", "async generator", "generator", "text", "None", "number"],
)
def test_only_a_plain_function_is_a_handler(live: Room, handler: Any) -> None:
    with pytest.raises(InvalidInput, match="not a plain function"):
        Worker(live, {"q": handler})
    with pytest.raises(InvalidInput, match="not a plain function"):
        Worker(live).handle("q")(handler)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, delivery: Delivery) -> None:
        self.count += 1

    def method(self, delivery: Delivery) -> None:
        self.count += 1


def test_anything_else_that_can_be_called_is_one_too(live: Room) -> None:
    counter = Counter()
    for name, handler in {"a": counter, "b": counter.method, "c": functools.partial(counter)}.items():
        live.queue(name).put(1)
        drain(live, {name: handler})
    assert counter.count == 3


def test_registering_twice_is_refused(live: Room) -> None:
    worker = Worker(live, {"q": nothing})
    worker.handle("q", "kind")(nothing)
    worker.handle(kind="kind")(nothing)
    for queue, kind in [("q", None), ("q", "kind"), (None, "kind")]:
        with pytest.raises(InvalidInput, match="already"):
            worker.handle(queue, kind)(nothing)


def test_a_handler_needs_a_queue_or_a_kind(live: Room) -> None:
    with pytest.raises(InvalidInput):
        Worker(live).handle()(nothing)


@pytest.mark.parametrize("names", [("a{b", None), ("", None), ("q", "a\0"), (None, "")])
def test_a_handler_is_registered_for_names_that_can_exist(live: Room, names: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInput):
        Worker(live).handle(*names)(nothing)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": 1_001},
        {"prefetch": -1},
        {"prefetch": 1_001},
        {"stop_timeout": -1},
        {"stop_timeout": "soon"},
        {"order": "random"},
        {"queues": "text"},
        {"weights": {"q": 0}, "order": "weighted"},
        {"queues": ["a{b"]},
    ],
    ids=repr,
)
def test_options_that_make_no_sense_are_refused_where_they_are_seen(live: Room, options: Any) -> None:
    with pytest.raises(InvalidInput):
        Worker(live, {"q": nothing}, **options).start()


def test_a_worker_without_a_queue_is_refused_where_it_is_started(live: Room) -> None:
    worker = Worker(live)
    worker.handle(kind="kind")(nothing)
    with pytest.raises(InvalidInput, match="queues"):
        worker.start()
    worker.handle("q")(nothing)
    with worker:
        pass


# ---- What becomes of the message ------------------------------------------------------------------


def test_a_failure_is_tried_again_with_backoff_until_it_is_dead(live: Room) -> None:
    queue = live.queue("q", Policy(backoff="1ms", max_attempts=3))
    put = queue.put({"n": 1}, kind="count", correlation_id="request-7")
    attempts: list[int] = []

    def handler(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise LookupError(f"attempt {delivery.attempt}")

    worker = Worker(live, {"q": handler})
    with worker:
        eventually(lambda: queue.stats().dead == 1)
    assert attempts == [0, 1, 2]
    entry = queue.get(put.id)
    assert [attempt.error for attempt in entry.attempts] == [f"LookupError: attempt {n}" for n in range(3)]
    assert {attempt.consumer for attempt in entry.attempts} == {worker.name}
    assert list(worker.last_exceptions) == [
        {
            "id": put.id,
            "queue": "q",
            "kind": "count",
            "correlation_id": "request-7",
            "type": "LookupError",
            "error": f"attempt {n}",
        }
        for n in range(3)
    ]


def test_the_newest_hundred_errors_are_kept(live: Room) -> None:
    live.queue("q", Policy(max_attempts=1)).put_many(range(150))
    raised: list[str] = []  # on a machine that stands still for a second, not quite in their order

    def handler(delivery: Delivery) -> None:
        raised.append(str(delivery.body))
        raise ValueError(delivery.body)

    worker = drain(live, {"q": handler})
    assert len(raised) == 150
    assert [error["error"] for error in worker.last_exceptions] == raised[50:]


def test_retry_and_bury_are_obeyed(live: Room) -> None:
    queue = live.queue("q")

    def handler(delivery: Delivery) -> None:
        if delivery.body == "retry":
            raise Retry(after="1h")
        raise Bury("enough")

    retried, buried = queue.put("retry"), queue.put("bury")
    drain(live, {"q": handler})
    entry = queue.get(retried.id)
    assert entry.state is State.SCHEDULED
    assert 3_590_000 < entry.due - entry.message.put_at < 3_610_000
    assert queue.get(buried.id).last_error == "Bury: enough"


def test_a_retry_at_no_sensible_time_harms_nobody_else(live: Room) -> None:
    queue = live.queue("q", Policy(backoff="1h", jitter=False))

    def handler(delivery: Delivery) -> None:
        if delivery.body == "mad":
            raise Retry(at=10**12)
        if delivery.body == "madder":
            raise Retry(after=-1)

    queue.put_many(["mad", "madder", "sane"])
    drain(live, {"q": handler})
    assert (queue.stats().scheduled, queue.stats().counters["acked"]) == (2, 1)


def test_a_handler_may_settle_by_itself(live: Room) -> None:
    queue = live.queue("q")

    def handler(delivery: Delivery) -> None:
        getattr(delivery, delivery.body)()

    for verb in ("ack", "fail", "bury"):
        queue.put(verb)
    worker = drain(live, {"q": handler})
    stats = queue.stats()
    assert (stats.ready, stats.scheduled, stats.dead, stats.processing) == (0, 1, 1, 0)
    assert not worker.last_exceptions


def test_a_handler_may_use_its_delivery_with_with(live: Room) -> None:
    queue = live.queue("q", Policy(max_attempts=1))

    def handler(delivery: Delivery) -> None:
        with delivery:
            if delivery.body == "fail":
                raise LookupError("inside")

    queue.put_many(["fine", "fail"])
    worker = drain(live, {"q": handler})
    assert (queue.stats().dead, queue.stats().counters["acked"]) == (1, 1)
    assert [error["error"] for error in worker.last_exceptions] == ["inside"]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"{", JSON), (b"cos\nsystem\n(S'true'\ntR.", "application/x-python-serialize")],
)
def test_an_undecodable_body_is_buried_without_retries(live: Room, body: bytes, content_type: str) -> None:
    id = put_raw(live, "q", body, content_type)
    worker = drain(live, {"q": lambda delivery: delivery.body})
    entry = live.queue("q").get(id)
    assert (entry.state, entry.deliveries) == (State.DEAD, 1)
    assert entry.failure and entry.failure.type == "Undecodable"
    assert [error["type"] for error in worker.last_exceptions] == ["Undecodable"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Unprintable(), BaseException("base")],
    ids=repr,
)
def test_no_error_takes_a_hand_down(live: Room, error: BaseException) -> None:
    queue = live.queue("q", Policy(max_attempts=1))

    def handler(delivery: Delivery) -> None:
        if delivery.body == "fail":
            raise error

    failed = queue.put("fail")
    queue.put_many(range(5))
    drain(live, {"q": handler})
    assert queue.stats().counters["acked"] == 5
    entry = queue.get(failed.id)
    assert entry.state is State.DEAD
    assert entry.failure is not None
    if not isinstance(error, Unprintable):
        assert type(error).__name__ in entry.failure.text


def test_what_a_handler_puts_inherits_the_correlation_id(live: Room) -> None:
    live.queue("a").put(1, correlation_id="request-7")
    seen: list[str] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.correlation_id)
        if delivery.queue == "a":
            live.queue("b").put(2)

    drain(live, {"a": handler, "b": handler})
    assert seen == ["request-7", "request-7"]
    assert live.queue("a").message(1).correlation_id is None, "outside of a handler there is none"


def test_the_log_of_a_failure_carries_everything(live: Room, caplog: pytest.LogCaptureFixture) -> None:
    put = live.queue("q", Policy(max_attempts=1)).put(1, kind="count", correlation_id="request-7")

    def handler(delivery: Delivery) -> None:
        raise LookupError("no such number")

    drain(live, {"q": handler})
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    fields = ("levelname", "event", "error", "queue", "message_id", "kind", "attempt", "correlation_id")
    assert [record.__dict__[field] for field in fields] == [
        "ERROR",
        "handler.failed",
        "LookupError: no such number",
        "q",
        put.id,
        "count",
        0,
        "request-7",
    ]
    assert record.exc_info


def test_a_verdict_is_no_error_in_the_log(live: Room, caplog: pytest.LogCaptureFixture) -> None:
    live.queue("q").put(1)

    def handler(delivery: Delivery) -> None:
        raise Bury("as planned")

    drain(live, {"q": handler})
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_checkpoint_of_one_worker_helps_the_next(live: Room) -> None:
    queue = live.queue("q", Policy(backoff="1ms"))
    queue.put(1)
    seen: list[Any] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.last_checkpoint)
        delivery.checkpoint({"page": delivery.attempt})
        if delivery.attempt < 2:
            raise LookupError

    with Worker(live, {"q": handler}):
        eventually(lambda: queue.stats().counters["acked"] == 1)
    assert seen == [None, {"page": 0}, {"page": 1}]


# ---- Around every job -----------------------------------------------------------------------------


class Session:
    def __init__(self) -> None:
        self.ended: BaseException | str | None = None


def test_every_job_has_its_surroundings(live: Room) -> None:
    sessions: list[Session] = []

    @contextlib.contextmanager
    def session(delivery: Delivery) -> Iterator[Session]:
        sessions.append(opened := Session())
        try:
            yield opened
        except BaseException as error:
            opened.ended = error
            raise
        else:
            opened.ended = "commit"

    def handler(delivery: Delivery) -> None:
        assert delivery.context is sessions[-1]
        assert delivery.context.ended is None
        if delivery.body == "fail":
            raise LookupError

    queue = live.queue("q", Policy(max_attempts=1))
    queue.put_many(["fine", "fail", "fine"])
    drain(live, {"q": handler}, around=session)
    assert [repr(session.ended) for session in sessions] == ["'commit'", "LookupError()", "'commit'"]
    assert (queue.stats().dead, queue.stats().counters["acked"]) == (1, 2)


@contextlib.contextmanager
def fails_to_open(delivery: Delivery) -> Iterator[None]:
    if delivery.attempt == 0:
        raise ConnectionError("no database")
    yield


@contextlib.contextmanager
def fails_to_close(delivery: Delivery) -> Iterator[None]:
    yield
    raise ConnectionError("commit failed")


def fails_to_be_made(delivery: Delivery) -> contextlib.AbstractContextManager[None]:
    raise ConnectionError("no pool")


@pytest.mark.parametrize("around", [fails_to_open, fails_to_close, fails_to_be_made])
def test_an_error_of_the_surroundings_is_a_failure(live: Room, around: Any) -> None:
    queue = live.queue("q", Policy(max_attempts=1))
    put = queue.put(1)
    handled: list[int] = []
    worker = drain(live, {"q": lambda delivery: handled.append(1)}, around=around)
    failure = queue.get(put.id).failure
    assert failure and failure.type == "ConnectionError"
    assert worker.last_exceptions[0]["type"] == "ConnectionError"
    assert handled == ([1] if around is fails_to_close else [])


# ---- Pausing, limits ------------------------------------------------------------------------------


def test_a_pause_stops_a_worker_and_a_resume_wakes_it(live: Room, hire: Hire) -> None:
    queue = live.queue("q")
    hire(live, {"q": nothing})
    queue.put(1)
    eventually(lambda: queue.stats().counters["acked"] == 1)
    queue.pause()
    queue.put_many(range(10))
    threading.Event().wait(0.1)
    assert queue.stats().counters["acked"] == 1
    queue.resume()
    eventually(lambda: queue.stats().counters["acked"] == 11)


def test_max_in_flight_holds_for_a_worker_too(live: Room) -> None:
    queue = live.queue("q", Policy(max_in_flight=2))
    queue.put_many(range(30))
    most: list[int] = []

    def handler(delivery: Delivery) -> None:
        most.append(queue.stats().processing)

    drain(live, {"q": handler}, concurrency=4, prefetch=16)
    assert len(most) == 30
    assert max(most) == 2


def test_the_rate_holds_for_a_worker_too(live: Room) -> None:
    queue = live.queue("q", Policy(rate="20/s"))
    queue.put_many(range(24))
    times: list[int] = []

    def handler(delivery: Delivery) -> None:
        times.append(queue.get(delivery.id).started_at or 0)

    drain(live, {"q": handler}, concurrency=4, prefetch=16)
    assert len(times) == 24
    assert max(times) - min(times) >= 150, "twenty at once, then one every 50 ms"


def test_per_message_limits_hold_for_a_worker(live: Room) -> None:
    queue = live.queue("q", Policy(backoff="1ms"))
    put = queue.put(1, max_attempts=5)
    seen: list[int] = []

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.max_attempts)
        raise LookupError

    with Worker(live, {"q": handler}):
        eventually(lambda: queue.stats().dead == 1)
    assert seen == [5] * 5
    assert queue.get(put.id).attempt == 5


def test_a_worker_says_who_it_is(live: Room, hire: Hire, gate: threading.Event) -> None:
    queue = live.queue("q")
    queue.put(1)
    hire(live, {"q": lambda delivery: gate.wait()}, name="the-one")
    eventually(lambda: queue.stats().processing == 1)
    assert [entry.consumer for entry in entries(queue, State.PROCESSING)] == ["the-one"]
    assert str(os.getpid()) in Worker(live).name


def test_a_room_of_any_policy_serves_a_worker() -> None:
    with room_on(max_attempts=2, backoff="1ms") as room:
        queue = room.queue("q")
        put = queue.put(1)

        def handler(delivery: Delivery) -> None:
            raise LookupError

        with Worker(room, {"q": handler}):
            eventually(lambda: queue.stats().dead == 1)
        assert queue.get(put.id).attempt == 2
