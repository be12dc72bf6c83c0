"""Many clients that wait for messages: one bell a queue, nobody in a thread of their own.

Whoever asks first is served first. A queue has one waiter of the engine for all who wait here, and one task
that claims for the first in line whenever it rings or time demands; a client that left gets nothing, and what
was claimed for it meanwhile goes back to its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from postroom.engine import ClaimRequest
from postroom.errors import EngineUnavailable, PostroomError
from postroom.model import Leased, Settlement, Verb
from postroom.room import Room
from postroom.waiter import Waiter

log: logging.Logger = logging.getLogger(__name__)

#: Clients that may wait at once, in all: each holds a connection.
MOST = 10_000
#: Looked at again after this long even when nothing rang (seconds).
_NET = 5.0
#: Read, connection lost, request told, we told; and one to spare.
_TURNS = 5

Call = Callable[..., Awaitable[Any]]


class _Place:
    """One client in line: how much it wants, under which name, and what it is given."""

    def __init__(self, n: int, consumer: str) -> None:
        self.n = n
        self.consumer = consumer
        self.given: asyncio.Future[list[Leased]] = asyncio.get_running_loop().create_future()


class Lines:
    """The lines of all queues. `close` answers everybody at once, with nothing."""

    def __init__(self, room: Room, call: Call) -> None:
        self._room = room
        self._call = call
        self._lines: dict[str, _Line] = {}
        self.closed: bool = False

    @property
    def waiting(self) -> int:
        return sum(len(line.places) for line in self._lines.values())

    async def claim(
        self, queue: str, n: int, consumer: str, wait: float, gone: Callable[[], Awaitable[None]]
    ) -> list[Leased]:
        """Up to `n` messages; waits up to `wait` seconds for one, unless `gone` ends before.

        Raises EngineUnavailable when as many wait as may.
        What was claimed for somebody who has left by then goes back to its place, and does not count.
        """
        left: asyncio.Future[Any] = asyncio.ensure_future(gone())
        try:
            leased = await self._claim(queue, _Place(n, consumer), wait, left)
            if leased and await _has_left(left):
                await self._give_back(queue, leased)
                return []
            return leased
        finally:
            left.cancel()

    async def _claim(self, queue: str, place: _Place, wait: float, left: asyncio.Future[Any]) -> list[Leased]:
        line = self._lines.get(queue)
        if line is None or not line.places:
            leased = await self._now(queue, place)
            if leased or wait <= 0 or self.closed:
                return leased
        if wait <= 0 or self.closed:
            return []
        if self.waiting >= MOST:  # an empty answer at once would have it ask again at once
            raise EngineUnavailable(f"{MOST:,} clients wait here already: try again later")
        return await self._in_line(queue, place, wait, left)

    async def _now(self, queue: str, place: _Place) -> list[Leased]:
        request = ClaimRequest(n=place.n, consumer=place.consumer)
        claimed = await self._call(self._room.engine.claim, queue, request)
        found: list[Leased] = claimed.deliveries
        return found

    async def _in_line(
        self, queue: str, place: _Place, wait: float, left: asyncio.Future[Any]
    ) -> list[Leased]:
        line = self._lines.get(queue) or self._open(queue)
        line.join(place)
        try:
            both: set[asyncio.Future[Any]] = {place.given, left}
            await asyncio.wait(both, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            line.leave(place)
        return [] if place.given.cancelled() else place.given.result()

    async def _give_back(self, queue: str, leased: list[Leased]) -> None:
        """Back to their places: they were for somebody who is not there."""
        released = [Settlement(each.receipt, Verb.RELEASE) for each in leased]
        await self._call(self._room.engine.settle, queue, released)

    def _open(self, queue: str) -> _Line:
        line = self._lines[queue] = _Line(self._room, queue, self._call, self._forget, self._give_back)
        return line

    def _forget(self, queue: str) -> None:
        self._lines.pop(queue, None)

    def close(self) -> None:
        self.closed = True
        for line in list(self._lines.values()):
            line.dismiss()


async def _has_left(left: asyncio.Future[Any]) -> bool:
    """Whether the client has hung up by now.

    That it did may wait unread in its socket: so many turns of the loop bring it through the transport and
    the server to us.
    """
    for _ in range(_TURNS):
        if left.done():
            return True
        await asyncio.sleep(0)
    return left.done()


class _Line:
    """Those who wait for one queue, and the task that serves them; it ends with the last of them."""

    def __init__(
        self,
        room: Room,
        queue: str,
        call: Call,
        forget: Callable[[str], None],
        give_back: Callable[[str, list[Leased]], Awaitable[None]],
    ) -> None:
        self.places: deque[_Place] = deque()
        self._room = room
        self._queue = queue
        self._call = call
        self._forget = forget
        self._give_back = give_back
        self._rung = asyncio.Event()
        self._task = asyncio.ensure_future(self._serve())

    def join(self, place: _Place) -> None:
        self.places.append(place)

    def leave(self, place: _Place) -> None:
        with contextlib.suppress(ValueError):
            self.places.remove(place)
        if not place.given.done():
            place.given.cancel()
        if not self.places:
            self._rung.set()

    def dismiss(self) -> None:
        """Nobody waits any longer."""
        for place in list(self.places):
            if not place.given.done():
                place.given.set_result([])
        self._rung.set()

    # --- the task ---------------------------------------------------------------------------

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        waiter: Waiter | None = None
        try:
            waiter = self._room.waiter([self._queue])
            loop.add_reader(waiter.fileno(), self._rung.set)
            # Armed first, asked then: what comes in between rings.
            await self._call(waiter.arm)
            while place := self._first():
                await self._attend(place, waiter)
        except Exception as error:
            self._refuse(error)
        finally:
            self._forget(self._queue)
            if waiter:
                loop.remove_reader(waiter.fileno())
                await self._call(waiter.close)

    def _first(self) -> _Place | None:
        while self.places and self.places[0].given.done():
            self.places.popleft()
        return self.places[0] if self.places else None

    async def _attend(self, place: _Place, waiter: Waiter) -> None:
        """Claim for the first in line; when there is nothing, sleep until there may be."""
        self._rung.clear()
        waiter.clear()
        request = ClaimRequest(n=place.n, consumer=place.consumer, waiter=waiter)
        claimed = await self._call(self._room.engine.claim, self._queue, request)
        if not claimed.deliveries:
            await self._sleep(claimed.next_wake / 1_000)
        elif place.given.done():  # it left, or its time was over, while we asked
            await self._give_back(self._queue, claimed.deliveries)
        else:
            place.given.set_result(claimed.deliveries)

    async def _sleep(self, wake: float) -> None:
        span = max(0.0, min(wake, _NET, self._room.config.poll_timeout / 1_000))
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), span)
        if time.monotonic() - began < 0.001:
            await asyncio.sleep(0.001)  # never in a tight circle, whatever a queue answers

    def _refuse(self, error: Exception) -> None:
        if not isinstance(error, PostroomError):
            log.error("a line failed", exc_info=error, extra={"event": "http.line_failed"})
        for place in self.places:
            if not place.given.done():
                place.given.set_exception(error)
