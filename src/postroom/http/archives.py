"""The archives of services of events, as requests see them: each looked at once for all who ask at a time.

To look at an archive on RabbitMQ is to take all of it for a moment, one reader at a time. So what was read
serves everybody for some seconds, and is forgotten as soon as anything here has worked on it. Calls of a
broker have threads of their own: those of the store must not wait for a RabbitMQ that is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from postroom.jobs import Runner
from postroom.room import Room
from postroom.services import EventService, ServiceLetters, Standing, by_name, find

T = TypeVar("T")

#: How old may be what a request is shown (seconds): how a service stands, and its letters.
_STANDING, _LETTERS = 2.0, 5.0
_THREADS = 4
#: How long the end of the server waits for a step of a job (seconds).
_PATIENCE = 5.0


class Recent(Generic[T]):
    """What was found out a moment ago; those who ask at the same time find it out together."""

    def __init__(self, make: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._make, self._seconds = make, seconds
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(self._made())
            task.add_done_callback(self._ended)
        return await asyncio.shield(task)  # who hangs up takes it from nobody else

    def forget(self) -> None:
        """From any thread."""
        self._task = None

    async def _made(self) -> T:
        return await self._make()

    def _ended(self, task: asyncio.Task[T]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed:
            self._drop(task)
        else:
            asyncio.get_running_loop().call_later(self._seconds, self._drop, task)

    def _drop(self, task: asyncio.Task[T]) -> None:
        if self._task is task:
            self._task = None


class Visited:
    """One service; what was seen of it is forgotten when anybody here has worked on its letters."""

    def __init__(self, service: EventService, room: Room, pool: ThreadPoolExecutor) -> None:
        self._inner, self._room, self._pool = service, room, pool
        self.service: str = service.service
        self.keeps_letters: bool = service.keeps_letters
        self.on_rabbitmq: bool = service.on_rabbitmq
        #: One look at a time: letters that are being read are not counted.
        self._turn = asyncio.Lock()
        self._standing = Recent(lambda: self._alone(service.standing), _STANDING)
        self._letters = Recent(lambda: self._alone(self._read), _LETTERS)

    def standing(self) -> Standing:
        return self._inner.standing()

    @contextlib.contextmanager
    def letters(self, store: Room) -> Iterator[ServiceLetters]:
        """To work on; see `EventService.letters`."""
        try:
            with self._inner.letters(store) as letters:
                yield letters
        finally:
            self._standing.forget()
            self._letters.forget()

    async def stand(self) -> Standing:
        """How it stands, or stood a moment ago."""
        return await self._standing.get()

    async def seen(self) -> ServiceLetters:
        """Its letters to look at: on an engine as they are, on RabbitMQ as they were a moment ago."""
        return await self._letters.get() if self.on_rabbitmq else await self.work(self._read)

    async def act(self, function: Callable[[ServiceLetters], T]) -> T:
        """Do something with its letters, which are in these hands meanwhile."""

        def acting() -> T:
            with self.letters(self._room) as letters:
                return function(letters)

        return await self.work(acting)

    async def work(self, function: Callable[[], T]) -> T:
        """Ask its broker."""
        bound = functools.partial(contextvars.copy_context().run, function)
        return await asyncio.get_running_loop().run_in_executor(self._pool, bound)

    async def _alone(self, function: Callable[[], T]) -> T:
        async with self._turn:
            return await self.work(function)

    def _read(self) -> ServiceLetters:
        with self._inner.letters(self._room) as letters:
            return letters


class Archives:
    """The services that are served, and who works on their letters."""

    def __init__(self, room: Room, services: Iterable[EventService]) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="postroom-archives")
        self.services: dict[str, Visited] = {
            name: Visited(service, room, self._pool) for name, service in by_name(services).items()
        }
        self.runner: Runner = Runner(room, self.services)

    def __getitem__(self, name: str) -> Visited:
        """Raises NotFound."""
        return find(self.services, name)

    def start(self) -> None:
        if self.services:
            self.runner.start()

    def stop(self) -> None:
        """A call that waits for a broker is not waited for: what it held goes back with its connection."""
        self.runner.stop(_PATIENCE)
        self._pool.shutdown(wait=False, cancel_futures=True)
