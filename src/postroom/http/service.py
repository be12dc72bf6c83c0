"""What all requests share (the room, the threads, the lines of waiting clients), and one request's desk."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency

from postroom import audit
from postroom.http.redaction import Redaction
from postroom.http.waiting import Lines
from postroom.jobs import Runner
from postroom.queue import Queue
from postroom.room import Room

P = ParamSpec("P")
T = TypeVar("T")

#: Calls of the store at once. More would not be faster; those beyond wait for their turn.
_THREADS = 32


class Service:
    """A room as it is served over HTTP."""

    def __init__(self, room: Room, redaction: Redaction) -> None:
        self.room = room
        self.redaction = redaction
        self.lines = Lines(room, self.call)
        self.runner = Runner(room)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="postroom-http")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of the room, in a thread only if it may block."""
        if not self.room.engine.capabilities.blocking:
            return function(*args, **kwargs)
        return await self.work(function, *args, **kwargs)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that takes its time, such as a search: always in a thread."""
        bound = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, bound)

    def close(self) -> None:
        self.lines.close()
        self._pool.shutdown(wait=True)


class Desk:
    """Where one request is served: the room, and in whose name things are done."""

    def __init__(self, service: Service, actor: str) -> None:
        self.service = service
        self.room = service.room
        self.redaction = service.redaction
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
    return Desk(request.app.state.service, actor_of(request))
