"""What is asked of everybody who is measured: put jobs, and work on them.

A system is opened where it puts and, in a process of its own, where it works. Its jobs do nothing but tell
a `Watch` that they began, and wait for as long as it holds them.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from bench.stage import BODY

Body = dict[str, Any]

#: How often a job that is held looks whether it still is (seconds).
_LOOK = 0.02


class Watch(Protocol):
    """Whom a job tells that it began."""

    def begin(self, body: Body) -> None: ...

    def is_held(self, body: Body) -> bool:
        """Whether the job must not end yet."""
        ...


class Nobody:
    """For those who only put."""

    def begin(self, body: Body) -> None:
        pass

    def is_held(self, body: Body) -> bool:
        return False


@dataclass(frozen=True)
class Terms:
    """On which terms a system is measured; None: as its authors chose."""

    #: How many jobs at once, in one process.
    hands: int | None = None
    #: How long a silent worker is trusted (seconds), for those who can be told.
    lease: float | None = None
    #: Whether some jobs are more urgent than others.
    priorities: bool = False


class Unable(Exception):
    """It has no such thing."""


class System(ABC):
    """One of them, with a job that does nothing."""

    def __init__(self, url: str, watch: Watch, terms: Terms = Terms()) -> None:
        self._url = url
        self._watch = watch
        self._terms = terms
        #: What must be closed again.
        self._kept = ExitStack()
        self._open()

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        """These jobs, one by one, each known to be kept when the next is sent."""

    def send_many(self, bodies: Sequence[Body]) -> None:
        """These jobs in as few calls as it takes."""
        raise Unable("it has no call for many")

    def put(self, count: int) -> None:
        """So many jobs, one by one."""
        self.send([BODY] * count)

    def fill(self, count: int) -> None:
        """So many jobs for a drain, however they get there."""
        try:
            for done in range(0, count, 1_000):
                self.send_many([BODY] * min(1_000, count - done))
        except Unable:
            self.put(count)

    @abstractmethod
    def work(self) -> None:
        """Work on them until the process ends."""

    def close(self) -> None:
        self._kept.close()

    def _run(self, body: Body) -> None:
        """The job."""
        self._watch.begin(body)
        while self._watch.is_held(body):
            time.sleep(_LOOK)


class Asynchronous(System):
    """Lives in an event loop; a new client, because none may outlive its loop, has a loop of its own."""

    def __init__(self, url: str, watch: Watch, terms: Terms = Terms()) -> None:
        self._runner = asyncio.Runner()
        super().__init__(url, watch, terms)

    def close(self) -> None:
        super().close()
        self._runner.close()

    def send(self, bodies: Iterable[Body], delay: float = 0, urgent: bool = False) -> None:
        self._runner.run(self._send(bodies, delay, urgent))

    @abstractmethod
    async def _send(self, bodies: Iterable[Body], delay: float, urgent: bool) -> None: ...

    async def _job(self, body: Body) -> None:
        """The job, which leaves the loop to others while it is held."""
        self._watch.begin(body)
        while self._watch.is_held(body):
            await asyncio.sleep(_LOOK)
