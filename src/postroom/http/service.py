"""What all requests share (the room, the threads, the lines of waiting clients), and one request's desk."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency

from postroom import audit
from postroom.http.archives import Archives
from postroom.http.auth import COOKIE
from postroom.http.guardrails import Pace
from postroom.http.redaction import Redaction
from postroom.http.waiting import Lines
from postroom.jobs import Runner
from postroom.policy import Rate
from postroom.queue import Queue
from postroom.room import Room
from postroom.services import EventService

#: Why: a header, because it fits every request. What is not ASCII is sent as in a URL ("f%C3%BCr").
REASON = "x-postroom-reason"

P = ParamSpec("P")
T = TypeVar("T")

#: What of the traffic is noted of one who makes it by hand: beyond that it is a program.
_BY_HAND = Rate.parse("60/h"), 60
#: Calls of the store at once. More would not be faster; those beyond wait for their turn.
_THREADS = 32
#: And of what takes its time, apart from them: who searches must not hold up who puts and claims.
_SLOW_THREADS = 8


class Service:
    """A room as it is served over HTTP."""

    def __init__(self, room: Room, redaction: Redaction, services: Iterable[EventService] = ()) -> None:
        self.room = room
        self.redaction = redaction
        self.lines: Lines = Lines(room, self.call)
        self.runner: Runner = Runner(room)
        self.archives: Archives = Archives(room, services)
        self.by_hand: Pace = Pace(*_BY_HAND)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="postroom-http")
        self._slow = ThreadPoolExecutor(_SLOW_THREADS, thread_name_prefix="postroom-http-slow")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of the room, in a thread only if it may block."""
        if not self.room.engine.capabilities.blocking:
            return function(*args, **kwargs)
        return await _in(self._pool, function, *args, **kwargs)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that takes its time, such as a search: always in a thread, and one of few."""
        return await _in(self._slow, function, *args, **kwargs)

    def close(self) -> None:
        self.lines.close()
        for pool in (self._pool, self._slow):
            pool.shutdown(wait=True, cancel_futures=True)  # nobody waits for what has not begun


async def _in(pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a thread, in whose name and why the caller acts."""
    bound = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(pool, bound)


class Desk:
    """Where one request is served: the room, and in whose name things are done.

    `by_hand`: it comes from a browser, or says why; what is put or published so is an act, and noted.
    """

    def __init__(self, service: Service, actor: str, by_hand: bool = False) -> None:
        self._by_hand = by_hand
        self.service = service
        self.room: Room = service.room
        self.redaction: Redaction = service.redaction
        self.actor = actor

    def queue(self, raw: str) -> Queue:
        """The queue of a name in a path."""
        return self.room.queue(named(raw))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with audit.acting(self.actor):
            return await self.service.call(function, *args, **kwargs)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with audit.acting(self.actor):
            return await self.service.work(function, *args, **kwargs)

    async def traffic(self, event: str, queue: str, count: int, **info: Any) -> None:
        """Messages came in: noted if somebody did it by hand, and bounded, so that it hides no other act."""
        if self._by_hand and not self.service.by_hand.take(self.actor):
            note = functools.partial(audit.note, self.room.engine, event, queue, count, **info)
            await self.call(note)


#: How a route asks for its desk.
AtDesk = NamedDependency[Desk]


def named(raw: str) -> str:
    """A name in a path as it was meant: see `paths`, which keeps a slash inside a name apart."""
    return unquote(raw)


def actor_of(request: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Who acts: whoever the authentication found (`scope["user"]`), else the address that asks."""
    user = request.scope.get("user")
    if user is not None:
        return str(getattr(user, "name", user))
    client = request.scope.get("client")
    return f"http:{client[0]}" if client else "http"


async def provide_desk(request: Request[Any, Any, Any]) -> Desk:
    return Desk(request.app.state.service, actor_of(request), _is_by_hand(request))


def _is_by_hand(request: Request[Any, Any, Any]) -> bool:
    headers = request.headers
    return "sec-fetch-site" in headers or REASON in headers or COOKIE in headers.get("cookie", "")
