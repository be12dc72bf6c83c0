"""A thin client for programs that reach a room over HTTP: the words of the Python door, sync and async.

    with Client("http://127.0.0.1:8025") as room:
        room.put("emails", {"to": "ada@example.org"}, priority="high")
        for delivery in room.claim("emails", n=10, wait="30s"):
            send(delivery.body)
            room.ack(delivery)

Errors are those of the Python door, by their codes: `QueueFull`, `LeaseLost`, `NotFound` … What the server
cannot be asked is EngineUnavailable. A put that got no answer may be repeated with the same `key`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, TypeVar, Unpack

import httpx

from postroom.draft import PutOptions
from postroom.duration import Duration, Instant
from postroom.http import calls
from postroom.http.views import DeliveryView, MessageView, Page, Put, QueueView
from postroom.stats import QueueStats

T = TypeVar("T")


class Client:
    """A room over HTTP. Threads may share it; close it, or use it with `with`."""

    def __init__(self, url: str, *, token: str | None = None, **options: Any) -> None:
        """`options` are those of httpx.Client, such as `verify`."""
        self._http = httpx.Client(**calls.options(url, token), **options)

    def _do(self, call: calls.Call[T]) -> T:
        try:
            return call.read(self._http.request(**call.request))
        except httpx.TransportError as error:
            raise calls.away(error) from error

    def put(self, queue: str, body: Any, *, key: str | None = None, **options: Unpack[PutOptions]) -> Put:
        """Keep a message; when this returns it is safe. The same `key` again is the same message.

        Raises Conflict for a key that was used for another body.
        """
        return self._do(calls.put(queue, body, key, options))

    def put_many(
        self, queue: str, bodies: Iterable[Any], *, key: str | None = None, **options: Unpack[PutOptions]
    ) -> list[Put]:
        """Keep up to 1,000 messages, all or none."""
        return self._do(calls.put_many(queue, bodies, key, options))

    def claim(self, queue: str, n: int = 1, *, wait: Duration = 0, consumer: str = "") -> list[DeliveryView]:
        """Up to `n` messages; waits up to `wait` for the first, five minutes at most."""
        return self._do(calls.claim(queue, n, wait, consumer))

    def ack(self, delivery: DeliveryView | str) -> None:
        """The work is done. Raises LeaseLost if this delivery no longer holds the message."""
        self._do(calls.settle(delivery, "ack"))

    def retry(
        self,
        delivery: DeliveryView | str,
        error: str = "",
        *,
        after: Duration | None = None,
        at: Instant | None = None,
    ) -> None:
        """The work failed: again later, by the queue's backoff unless told when."""
        self._do(calls.settle(delivery, "retry", error=error, after=after, at=at))

    def release(self, delivery: DeliveryView | str, delay: Duration = 0) -> None:
        """Hand it back to its place; does not count."""
        self._do(calls.settle(delivery, "release", delay=delay))

    def bury(self, delivery: DeliveryView | str, reason: str = "") -> None:
        """Keep it as a dead letter now."""
        self._do(calls.settle(delivery, "bury", reason=reason))

    def extend(
        self, delivery: DeliveryView | str, span: Duration | None = None, *, checkpoint: Any = None
    ) -> None:
        """The work may take this long from now."""
        self._do(calls.settle(delivery, "extend", span=span, checkpoint=checkpoint))

    def get(self, queue: str, id: str, *, raw: bool = False) -> MessageView:
        """One message, and where it stands; without secrets, unless `raw`, which is a right and audited."""
        return self._do(calls.get(queue, id, raw))

    def find(self, queue: str, state: str = "ready", **narrow: Any) -> Page:
        """A page of one state; `cursor` and `limit` go on. `raw=True` as for `get`."""
        return self._do(calls.find(queue, state, narrow))

    def cancel(self, queue: str, id: str, *, processing: bool = False) -> None:
        """Take a waiting message out; with `processing`, also from whoever works on it."""
        self._do(calls.operate(queue, id, "cancel", processing=processing))

    def reschedule(
        self, queue: str, id: str, *, delay: Duration | None = None, at: Instant | None = None
    ) -> None:
        """Give a waiting message another due time."""
        self._do(calls.reschedule(queue, id, delay=delay, at=at))

    def run_now(self, queue: str, id: str) -> None:
        """Make a scheduled message ready."""
        self._do(calls.operate(queue, id, "run-now"))

    def queues(self) -> list[QueueView]:
        """All queues."""
        found, after = list[QueueView](), ""
        while True:
            page = self._do(calls.queues(after))
            found += page.queues
            if page.cursor is None:
                return found
            after = page.cursor

    def stats(self, queue: str) -> QueueStats:
        """How a queue stands."""
        return self._do(calls.stats(queue))

    def declare(self, queue: str, **policy: Any) -> QueueView:
        """Create a queue or give it this policy, as a whole."""
        return self._do(calls.declare(queue, policy))

    def pause(self, queue: str, reason: str = "", span: Duration | None = None) -> None:
        """Stop claims; with a span, for so long."""
        self._do(calls.pause(queue, reason, span))

    def resume(self, queue: str) -> None:
        """Allow claims again."""
        self._do(calls.resume(queue))

    def purge(self, queue: str) -> int:
        """Drop what waits; how many."""
        return self._do(calls.purge(queue))

    def drop(self, queue: str, *, force: bool = False) -> int:
        """Remove a queue, with what is in it if forced; how many that were."""
        return self._do(calls.drop(queue, force))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncClient:
    """The same for coroutines: every verb of `Client`, to be awaited."""

    def __init__(self, url: str, *, token: str | None = None, **options: Any) -> None:
        """`options` are those of httpx.AsyncClient, such as `limits`."""
        self._http = httpx.AsyncClient(**calls.options(url, token), **options)

    async def _do(self, call: calls.Call[T]) -> T:
        try:
            return call.read(await self._http.request(**call.request))
        except httpx.TransportError as error:
            raise calls.away(error) from error

    async def put(
        self, queue: str, body: Any, *, key: str | None = None, **options: Unpack[PutOptions]
    ) -> Put:
        return await self._do(calls.put(queue, body, key, options))

    async def put_many(
        self, queue: str, bodies: Iterable[Any], *, key: str | None = None, **options: Unpack[PutOptions]
    ) -> list[Put]:
        return await self._do(calls.put_many(queue, bodies, key, options))

    async def claim(
        self, queue: str, n: int = 1, *, wait: Duration = 0, consumer: str = ""
    ) -> list[DeliveryView]:
        return await self._do(calls.claim(queue, n, wait, consumer))

    async def ack(self, delivery: DeliveryView | str) -> None:
        await self._do(calls.settle(delivery, "ack"))

    async def retry(
        self,
        delivery: DeliveryView | str,
        error: str = "",
        *,
        after: Duration | None = None,
        at: Instant | None = None,
    ) -> None:
        await self._do(calls.settle(delivery, "retry", error=error, after=after, at=at))

    async def release(self, delivery: DeliveryView | str, delay: Duration = 0) -> None:
        await self._do(calls.settle(delivery, "release", delay=delay))

    async def bury(self, delivery: DeliveryView | str, reason: str = "") -> None:
        await self._do(calls.settle(delivery, "bury", reason=reason))

    async def extend(
        self, delivery: DeliveryView | str, span: Duration | None = None, *, checkpoint: Any = None
    ) -> None:
        await self._do(calls.settle(delivery, "extend", span=span, checkpoint=checkpoint))

    async def get(self, queue: str, id: str, *, raw: bool = False) -> MessageView:
        return await self._do(calls.get(queue, id, raw))

    async def find(self, queue: str, state: str = "ready", **narrow: Any) -> Page:
        return await self._do(calls.find(queue, state, narrow))

    async def cancel(self, queue: str, id: str, *, processing: bool = False) -> None:
        await self._do(calls.operate(queue, id, "cancel", processing=processing))

    async def reschedule(
        self, queue: str, id: str, *, delay: Duration | None = None, at: Instant | None = None
    ) -> None:
        await self._do(calls.reschedule(queue, id, delay=delay, at=at))

    async def run_now(self, queue: str, id: str) -> None:
        await self._do(calls.operate(queue, id, "run-now"))

    async def queues(self) -> list[QueueView]:
        found, after = list[QueueView](), ""
        while True:
            page = await self._do(calls.queues(after))
            found += page.queues
            if page.cursor is None:
                return found
            after = page.cursor

    async def stats(self, queue: str) -> QueueStats:
        return await self._do(calls.stats(queue))

    async def declare(self, queue: str, **policy: Any) -> QueueView:
        return await self._do(calls.declare(queue, policy))

    async def pause(self, queue: str, reason: str = "", span: Duration | None = None) -> None:
        await self._do(calls.pause(queue, reason, span))

    async def resume(self, queue: str) -> None:
        await self._do(calls.resume(queue))

    async def purge(self, queue: str) -> int:
        return await self._do(calls.purge(queue))

    async def drop(self, queue: str, *, force: bool = False) -> int:
        return await self._do(calls.drop(queue, force))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
