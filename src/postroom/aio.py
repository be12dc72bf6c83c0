"""The Python door for asyncio: the same engine, the same words, nothing waits in a thread.

    room = postroom.aio.open("sqlite:///jobs.db")
    await room.queue("emails").put({"to": "ada@example.org"})
    async for delivery in room.queue("emails").consume():
        async with delivery:
            await send(delivery.body)

A task that waits for a message sleeps on the waiter's file descriptor. Calls of an engine that may
block (a disk, a network) run in a thread each; those of the memory engine run where they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from postroom import room as rooms
from postroom.delivery import Delivery
from postroom.draft import PutOptions
from postroom.duration import Duration, Instant
from postroom.engine import ClaimRequest
from postroom.errors import PostroomError
from postroom.model import Claimed, Put
from postroom.policy import Policy
from postroom.queue import Queue, Unset
from postroom.room import Room, RoomStats
from postroom.stats import QueueStats
from postroom.waiter import Waiter

P = ParamSpec("P")
T = TypeVar("T")


def open(url: str | None = None, **settings: Any) -> AsyncRoom:
    """Open the room behind a URL for use from coroutines; see `postroom.open`."""
    return AsyncRoom(rooms.open(url, **settings))


class AsyncRoom:
    """A room whose calls do not hold up the event loop."""

    def __init__(self, room: Room) -> None:
        self.room = room
        #: What brings back the messages of claims that were cancelled.
        self._returns: set[asyncio.Future[None]] = set()

    def queue(self, name: str, policy: Policy | None = None) -> AsyncQueue:
        return AsyncQueue(self, self.room.queue(name, policy))

    async def stats(self) -> RoomStats:
        return await self.call(self.room.stats)

    def shutdown(self) -> None:
        """Take no more messages, and wake every task that waits for one."""
        self.room.shutdown()

    async def close(self) -> None:
        """Shut down and give up the engine, once what cancelled claims brought is back in its place."""
        while self._returns:
            await asyncio.wait(self._returns)
        await self.call(self.room.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of the sync door, in a thread only if it may block."""
        if self.room.engine.capabilities.blocking:
            return await asyncio.to_thread(function, *args, **kwargs)
        return function(*args, **kwargs)

    async def take(self, queue: str, request: ClaimRequest) -> tuple[list[Delivery], Claimed]:
        """`Room.take`. Cancelled, it takes nothing: a thread goes on, and what it brings goes back."""
        taking = _Taking(lambda: self.room.take(queue, request))
        try:
            return await self.call(taking)
        except asyncio.CancelledError:
            # No task: a loop that ends cancels those, but waits for the threads.
            back = asyncio.get_running_loop().run_in_executor(None, taking.give_back)
            self._returns.add(back)
            back.add_done_callback(self._returns.discard)
            raise


class AsyncQueue:
    """One queue by name. What is not here is on `queue`, the sync one: use it with `room.call`."""

    def __init__(self, room: AsyncRoom, queue: Queue) -> None:
        self.room = room
        self.queue = queue

    async def put(self, body: Any, *, rate_key: str | None = None, **options: Unpack[PutOptions]) -> Put:
        return await self.room.call(self.queue.put, body, rate_key=rate_key, **options)

    async def put_many(
        self, bodies: Iterable[Any], *, rate_key: str | None = None, **options: Unpack[PutOptions]
    ) -> list[Put]:
        return await self.room.call(self.queue.put_many, bodies, rate_key=rate_key, **options)

    async def stats(self) -> QueueStats:
        return await self.room.call(self.queue.stats)

    async def claim(self, timeout: Duration | Unset | None = "configured") -> AsyncDelivery | None:
        """The next message, as `Queue.claim` gives it; other tasks run while this one waits."""
        deliveries = await self.claim_many(1, timeout)
        return deliveries[0] if deliveries else None

    async def claim_many(
        self, n: int, timeout: Duration | Unset | None = "configured"
    ) -> list[AsyncDelivery]:
        """The next up to `n` messages; waits until there is at least one."""
        room = self.room.room
        end = room.end_of(timeout)
        async with contextlib.AsyncExitStack() as stack:
            bell: _Bell | None = None
            while True:
                closing = room.is_shutdown  # asked before the claim: what was put before is still given out
                deliveries, wake = await self._take(n, bell)
                left = float("inf") if end is None else end - time.monotonic()
                if deliveries or left <= 0 or closing:
                    return deliveries
                if bell is None:
                    # Armed first, asked again then: what comes in between rings.
                    bell = stack.enter_context(_Bell(room.waiter([self.queue.name])))
                else:
                    await bell.wait(min(left, wake / 1_000, room.config.poll_timeout / 1_000))

    async def consume(self, timeout: Duration | Unset | None = None) -> AsyncIterator[AsyncDelivery]:
        """Delivery after delivery, until none came for `timeout` or the room is shut down and empty."""
        while delivery := await self.claim(timeout):
            yield delivery

    async def _take(self, n: int, bell: _Bell | None) -> tuple[list[AsyncDelivery], int]:
        request = ClaimRequest(
            n=n, consumer=f"{self.room.room.consumer}/aio", waiter=bell.waiter if bell else None
        )
        deliveries, claimed = await self.room.take(self.queue.name, request)
        return [AsyncDelivery(self.room, delivery) for delivery in deliveries], claimed.next_wake


class AsyncDelivery:
    """A delivery whose settling does not hold up the loop; all else is read from `delivery`."""

    def __init__(self, room: AsyncRoom, delivery: Delivery) -> None:
        self._room = room
        self.delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self.delivery, name)

    async def ack(self) -> None:
        await self._room.call(self.delivery.ack)

    async def fail(
        self,
        error: BaseException | str | None = None,
        *,
        after: Duration | None = None,
        at: Instant | None = None,
    ) -> None:
        await self._room.call(self.delivery.fail, error, after=after, at=at)

    async def release(self) -> None:
        await self._room.call(self.delivery.release)

    async def bury(self, reason: BaseException | str = "") -> None:
        await self._room.call(self.delivery.bury, reason)

    async def extend(self, span: Duration | None = None) -> None:
        await self._room.call(self.delivery.extend, span)

    async def checkpoint(self, data: Any) -> None:
        await self._room.call(self.delivery.checkpoint, data)

    async def __aenter__(self) -> Self:
        self.delivery.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.delivery.end()
        return await self._room.call(self.delivery.conclude, error)


class _Taking:
    """A claim that may outlive whoever waits for it."""

    def __init__(self, take: Callable[[], tuple[list[Delivery], Claimed]]) -> None:
        self._take = take
        self._taken: list[Delivery] = []
        self._given_up = False
        #: Held while it claims, for who gives back what that brings.
        self._lock = threading.Lock()

    def __call__(self) -> tuple[list[Delivery], Claimed]:
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError  # before it began
            taken = self._take()
            self._taken = taken[0]
            return taken

    def give_back(self) -> None:
        """Nobody waits any longer: what it brought, or will have brought, goes back to its place."""
        with self._lock:
            self._given_up = True
        for delivery in self._taken:
            # One that the store does not take back now comes again when its ack_timeout is over.
            with contextlib.suppress(PostroomError):
                delivery.release()


class _Bell:
    """A waiter on the event loop."""

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._loop.add_reader(self.waiter.fileno(), self._rung.set)
        self.waiter.arm()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.remove_reader(self.waiter.fileno())
        self.waiter.close()

    async def wait(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), timeout)
        self.waiter.clear()
        self._rung.clear()
