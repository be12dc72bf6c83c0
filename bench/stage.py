"""What a trial stands on: an engine, a queue for it alone, and bodies of 200 bytes."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import postroom
from bench.goals import GOALS
from bench.measure import Figure
from bench.server import redis_server
from postroom.model import NewMessage
from postroom.queue import Queue
from postroom.room import Room


class Kind(NamedTuple):
    """An engine by its URL, in which {file} stands for a new file in the folder of the run, and {port} for
    that of a new Redis server."""

    url: str
    #: A change waits for the disk, so that fewer of them take as long.
    durable: bool = False
    #: Several processes can open it.
    shared: bool = False
    #: A call takes longer than in memory, so that so many times fewer of them are made.
    slow: int = 1


#: What can be measured. A new engine is one line here, and its goals in `goals`.
ENGINES = {
    "memory": Kind("memory://"),
    "sqlite": Kind("sqlite:///{file}", durable=True, shared=True, slow=10),
    "redis": Kind("redis://127.0.0.1:{port}/0", shared=True, slow=4),
}

_FRAME = {"to": "ada@example.org", "subject": "the news of the day", "text": ""}
#: Exactly 200 bytes when written as compact JSON, which is what a queue makes of it.
BODY = _FRAME | {"text": "x" * (200 - len(json.dumps(_FRAME, separators=(",", ":"))))}
DATA = json.dumps(BODY, separators=(",", ":")).encode()


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class Stage:
    """What to measure on, and whether it should be quick rather than exact."""

    engine: str
    folder: Path
    quick: bool = False
    #: Seconds for which what may grow is watched; 0: as long as the group thinks fit.
    soak: int = 0
    say: Callable[[str], None] = _silent
    #: What trials share until the last round is over.
    kept: ExitStack = field(default_factory=ExitStack)

    @property
    def kind(self) -> Kind:
        return ENGINES[self.engine]

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def calls(self, full: int, quick: int) -> int:
        """How many calls to make of one message each."""
        return self.size(full, quick) // self.kind.slow

    def figure(self, name: str, unit: str, **options: Any) -> Figure:
        """A figure with what this engine should reach."""
        return Figure(name, unit, GOALS[self.engine].get(name), **options)

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """An empty folder on the disk that is measured, gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)

    @contextmanager
    def url(self) -> Iterator[str]:
        """Where an engine opens that nobody has used."""
        with self.new_folder() as folder:
            if "{port}" not in self.kind.url:
                yield self.kind.url.format(file=folder / "room.db")
                return
            with redis_server(folder) as port:
                yield self.kind.url.format(port=port)

    @contextmanager
    def queue(self) -> Iterator[Queue]:
        """A new queue in a room of its own; both are gone afterwards."""
        with self.url() as url, queue_at(url) as queue:
            if self.kind.durable:
                _warm_up(queue.room)
            yield queue


def _warm_up(room: Room) -> None:
    """Have the log grow to its full size once: a store that is in use writes over it from then on."""
    warm = room.queue("warm-up")
    for _ in range(24):
        warm.put(b"x" * 2**20)
    warm.drop(force=True)


@contextmanager
def queue_at(url: str) -> Iterator[Queue]:
    """A new queue in the room behind this URL."""
    with postroom.open(url) as room:
        yield room.queue(f"bench-{secrets.token_hex(8)}")


def fill(queue: Queue, count: int, say: Callable[[str], None] = _silent) -> None:
    """Put so many messages, in calls as large as the contract allows."""
    for done in range(0, count, 1_000):
        if done and done % 100_000 == 0:
            say(f"{done:,} of {count:,} are there")
        queue.room.engine.put(queue.name, [NewMessage(body=DATA) for _ in range(min(count - done, 1_000))])
