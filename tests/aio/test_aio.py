"""The asyncio door: the same promises, and a waiting task costs no thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import LeaseLost, Policy, Retry, aio
from postroom.engine import Capabilities
from postroom.engines.memory import MemoryEngine

Body = Callable[[aio.AsyncRoom], Coroutine[Any, Any, None]]


def in_room(body: Body) -> Callable[[], None]:
    """Run a coroutine test with a room of its own, and end it if it hangs."""

    async def main() -> None:
        async with aio.open("memory://") as room, asyncio.timeout(60):
            await body(room)

    def test() -> None:
        asyncio.run(main())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@in_room
async def test_a_message_goes_through(room: aio.AsyncRoom) -> None:
    queue = room.queue("emails")
    put = await queue.put({"to": "ada"}, priority="high")
    delivery = await queue.claim(timeout=0)
    assert delivery is not None
    async with delivery:
        assert (delivery.id, delivery.body, delivery.priority) == (put.id, {"to": "ada"}, 10)
    assert (await queue.stats()).counters["acked"] == 1


@in_room
async def test_nothing_within_the_timeout_is_none(room: aio.AsyncRoom) -> None:
    began = time.monotonic()
    assert await room.queue("empty").claim(timeout="50ms") is None
    assert time.monotonic() - began >= 0.05


@in_room
async def test_hundreds_of_waiting_tasks_need_no_thread(room: aio.AsyncRoom) -> None:
    queue = room.queue("work")
    threads = set(threading.enumerate())  # some of them may end meanwhile
    waiting = [asyncio.create_task(queue.claim(timeout=60)) for _ in range(200)]
    await asyncio.sleep(0)
    assert set(threading.enumerate()) - threads == set()
    await queue.put_many(range(200))
    deliveries = await asyncio.gather(*waiting)
    assert sorted(delivery.body for delivery in deliveries if delivery) == list(range(200))
    assert set(threading.enumerate()) - threads == set()


@in_room
async def test_a_put_from_another_thread_wakes_a_task(room: aio.AsyncRoom) -> None:
    queue = room.queue("work")
    waiting = asyncio.create_task(queue.claim(timeout=60))
    await asyncio.sleep(0)
    await asyncio.to_thread(partial(queue.queue.put, "now"))
    delivery = await waiting
    assert delivery is not None and delivery.body == "now"


@in_room
async def test_a_task_wakes_for_a_due_message_and_never_early(room: aio.AsyncRoom) -> None:
    queue = room.queue("later")
    put = await queue.put("x", delay="80ms")
    delivery = await queue.claim(timeout=60)
    assert delivery is not None and delivery.id == put.id
    assert time.time() * 1_000 >= delivery.delivery.message.due - 2  # by the clock of the store, in whole ms


@in_room
async def test_shutdown_wakes_whoever_waits(room: aio.AsyncRoom) -> None:
    waiting = [asyncio.create_task(room.queue("q").claim(timeout=None)) for _ in range(3)]
    await asyncio.sleep(0)
    room.shutdown()
    assert await asyncio.gather(*waiting) == [None, None, None]


@in_room
async def test_an_exception_is_a_retry_and_is_raised(room: aio.AsyncRoom) -> None:
    queue = room.queue("q", policy=Policy(backoff="1h", jitter=False))
    await queue.put("x")
    with pytest.raises(ZeroDivisionError):
        async with (await queue.claim_many(1))[0]:
            raise ZeroDivisionError
    stats = await queue.stats()
    assert (stats.scheduled, stats.counters["retried"]) == (1, 1)


@in_room
async def test_retry_says_when(room: aio.AsyncRoom) -> None:
    queue = room.queue("q")
    await queue.put("x")
    async with (await queue.claim_many(1))[0]:
        raise Retry(after=0)
    again = await queue.claim(timeout=60)
    assert again is not None and again.attempt == 1


@in_room
async def test_a_cancelled_task_hands_its_message_back(room: aio.AsyncRoom) -> None:
    queue = room.queue("q")
    await queue.put("x")
    begun = asyncio.Event()

    async def work() -> None:
        async with (await queue.claim_many(1))[0]:
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await queue.claim(timeout=0)
    assert again is not None and (again.attempt, again.deliveries) == (0, 2)


@in_room
async def test_a_cancelled_wait_takes_nothing_with_it(room: aio.AsyncRoom) -> None:
    queue = room.queue("q")
    waiting = asyncio.create_task(queue.claim(timeout=None))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await queue.put("x")
    assert await queue.claim(timeout=0) is not None


@pytest.mark.parametrize("ends", ["the task", "the loop"])
def test_a_claim_that_is_cancelled_in_its_thread_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The thread has the message already when nobody waits for it any longer."""
    room = aio.open(f"sqlite:///{tmp_path}/jobs.db")
    take, claimed, cancelled = room.room.take, threading.Event(), threading.Event()

    def held_up(*args: Any) -> Any:
        taken = take(*args)
        claimed.set()
        assert cancelled.wait(60)
        return taken

    async def wait() -> None:
        try:
            await room.queue("q").claim(timeout=None)
        finally:
            cancelled.set()

    async def main() -> None:
        await room.queue("q").put("x")
        waiting = asyncio.create_task(wait())
        await asyncio.to_thread(claimed.wait, 60)
        if ends == "the task":
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await room.close()

    monkeypatch.setattr(room.room, "take", held_up)
    asyncio.run(main())
    room.room.close()
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as after:
        again = after.queue("q").claim(timeout=0)
        assert again is not None and (again.attempt, again.deliveries) == (0, 2)


@in_room
async def test_every_way_to_settle_and_hold_on(room: aio.AsyncRoom) -> None:
    queue = room.queue("q", policy=Policy(backoff="0s"))
    await queue.put("x")
    first = (await queue.claim_many(1))[0]
    await first.extend("1m")
    await first.checkpoint({"page": 3})
    await first.fail("not yet")
    second = (await queue.claim_many(1))[0]
    assert second.last_checkpoint == {"page": 3}
    await second.release()
    third = (await queue.claim_many(1))[0]
    with pytest.raises(LeaseLost):
        await second.ack()
    await third.bury("never")
    assert (await queue.stats()).dead == 1


@in_room
async def test_consume_ends_when_nothing_comes(room: aio.AsyncRoom) -> None:
    queue = room.queue("q")
    await queue.put_many("abc")
    seen = []
    async for delivery in queue.consume(timeout="20ms"):
        async with delivery:
            seen.append(delivery.body)
    assert seen == ["a", "b", "c"]


@in_room
async def test_correlation_ids_are_inherited_per_task(room: aio.AsyncRoom) -> None:
    queue, more = room.queue("q"), room.queue("more")
    await queue.put("a", correlation_id="request-a")
    await queue.put("b", correlation_id="request-b")

    async def work() -> None:
        async with (await queue.claim_many(1))[0] as delivery:
            await asyncio.sleep(0.01)
            await more.put(delivery.body)

    await asyncio.gather(work(), work())
    found = {d.body: d.correlation_id for d in await more.claim_many(2)}
    assert found == {"a": "request-a", "b": "request-b"}


def test_calls_of_a_blocking_engine_leave_the_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = Capabilities(durable=False, shared=False, blocking=True)
    monkeypatch.setattr(MemoryEngine, "capabilities", blocking)

    async def main() -> None:
        async with aio.open("memory://") as room:
            callers: list[int] = []
            room.room.before_put(lambda message, queue: callers.append(threading.get_ident()))
            await room.queue("q").put("x")
            async with (await room.queue("q").claim_many(1))[0] as delivery:
                assert delivery.body == "x"
            assert callers != [threading.get_ident()]

    asyncio.run(main())
