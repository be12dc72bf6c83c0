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
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Column, Engine, MetaData, Table, Text, create_engine, event, insert, text
from sqlalchemy.pool import NullPool

from postroom import sqlguard
from tests.chaos.ledger import Ledger

QUEUES = ("north", "south", "west")
#: Silent for so long, a worker is taken for dead (seconds); it has to outlast a pause of a busy machine.
LEASE = 8.0

#: Nothing in this table keeps a second row away: that is the guard's work.
effects = Table("effects", MetaData(), Column("label", Text, nullable=False))

#: A worker looks so often whether it gets any time, and what is too long (seconds).
_BEAT, SLOW = 0.01, 0.02


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
    _engines: dict[int, Engine] = field(default_factory=dict)

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
                self._take_effect(label)
            time.sleep(seconds / 2)  # who is killed here has had its effect, and will be asked for it again
        except Exception:
            self.note("failed", label)
            raise
        self.note("end", label)

    def _take_effect(self, label: str) -> None:
        pid = os.getpid()
        if pid not in self._engines:
            self._engines[pid] = open_book(self.book)
        with self._engines[pid].begin() as connection:
            entry = sqlguard.enter(connection, "work", label)
            if not entry.done:
                connection.execute(insert(effects).values(label=label))
                entry.finish(None)


def open_book(url: str) -> Engine:
    # Not a pool: a forked child must not use its parent's connections, and a file opens fast.
    engine = create_engine(url, connect_args={"timeout": 30}, poolclass=NullPool)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    return engine


def make_book(url: str) -> None:
    """Whoever is killed is a process, not the machine: nothing is synced."""
    engine = open_book(url)
    with engine.begin() as connection:
        connection.execute(text("PRAGMA journal_mode = WAL"))
        sqlguard.processing_log.metadata.create_all(connection)
        effects.metadata.create_all(connection)


def read_book(url: str) -> Counter[str]:
    """How often each label has had its effect."""
    with open_book(url).connect() as connection:
        rows = connection.execute(text("SELECT label, count(*) FROM effects GROUP BY label"))
        return Counter(dict(rows.tuples().all()))
