"""What is worked on in the battle, and what a worker of any kind writes down about it.

A ledger a process, in the folder of the leg (`tests.chaos.ledger`): plain words, no knowledge of Postroom.
    intend label due     a producer, before the call; `due`: the earliest moment at which it may begin
    accepted label       the call returned
    unsure label         the call failed; the same is sent again, so that it may be there twice
    ready                a worker takes work
    begin label          its work begins
    failed label         its work raised, and will be tried again
    end label            its work is done; whatever the worker tells its store, it tells after this line
    slow - since         a moment's sleep of this worker took far longer: the machine has no time for it
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.chaos.ledger import Ledger

QUEUES = ("north", "south", "west")
#: On RabbitMQ each of them gets every job, as an event, and has a label of its own for it.
SERVICES = ("billing", "mailing")
#: Silent for so long, a worker is taken for dead (seconds); it has to outlast a pause of a busy machine.
LEASE = 8.0

#: A worker looks so often whether it gets any time, and what is too long (seconds).
_BEAT, SLOW = 0.005, 0.01


class Job(NamedTuple):
    """One piece of work: how long it takes, and how much later than it is sent it may begin (seconds)."""

    label: str
    queue: str
    seconds: float
    later: float
    priority: int


def job(label: str, chance: random.Random, longest: float) -> Job:
    """One in a hundred takes long, so that a worker that is asked to stop is not done at once."""
    seconds = chance.uniform(0.5, 2.0) if chance.random() < 0.01 else chance.uniform(0, longest)
    later = chance.uniform(0.1, 2.0) if chance.random() < 0.1 else 0.0
    return Job(label, chance.choice(QUEUES), round(seconds, 4), later, chance.randrange(10))


@dataclass
class Bench:
    """Where a worker works; a pool's children write a file each. `book`: has an effect there, guarded."""

    folder: Path
    name: str
    book: str = ""
    _ledgers: dict[int, Ledger] = field(default_factory=dict)

    @classmethod
    def here(cls) -> Bench:
        """As the battle told this process by its environment."""
        given = os.environ
        return cls(Path(given["BATTLE_FOLDER"]), given["BATTLE_NAME"], given.get("BATTLE_BOOK", ""))

    def note(self, *words: object) -> None:
        pid = os.getpid()
        if pid not in self._ledgers:
            self._ledgers[pid] = Ledger(self.folder / f"{self.name}-{pid}.ledger")
        self._ledgers[pid].note(*words)

    def watch(self) -> None:
        """Note from now on when this process gets no time: what it has to say then is said too late.

        And keep the last moment in which it had some, for those who end it.
        """
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    def _beat(self) -> None:
        with (self.folder / f"{self.name}.beat").open("wb", buffering=0) as last:
            while True:
                began = time.monotonic()
                os.pwrite(last.fileno(), f"{began:.6f}\n".encode(), 0)
                time.sleep(_BEAT)
                if time.monotonic() - began > SLOW:
                    self.note("slow", "-", began)

    def work(self, label: str, seconds: float) -> None:
        self.note("begin", label)
        try:
            time.sleep(seconds / 2)
            if self.book:
                _take_effect(self.book, label)
            time.sleep(seconds / 2)  # who is killed here has had its effect, and will be asked for it again
        except Exception:
            self.note("failed", label)
            raise
        self.note("end", label)


def _take_effect(book: str, label: str) -> None:
    from tests.battle.book import take_effect  # not where there is no SQLAlchemy

    take_effect(book, label)
