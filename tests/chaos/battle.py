"""The battle: producers and workers on one file, and somebody who kills and stops them at random moments.

The one who kills looks at nothing but the ledgers, the sizes of files and the kernel's list of locks.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import postroom
from postroom.errors import EngineUnavailable, QueueFull
from postroom.ids import new_id
from postroom.limits import LOG_LIMIT
from postroom.logs import LogEntry
from postroom.model import State
from postroom.policy import Policy
from postroom.queue import Queue
from postroom.stats import QueueStats
from tests.chaos.ledger import Ledger, Line, read
from tests.chaos.load import LEASE, POISON_ATTEMPTS, POLICY, QUEUES, Work, body_with
from tests.chaos.outside import PATIENCE, REPO, url_of
from tests.chaos.verdict import Fate, History, Told

#: How often the sizes are looked at (seconds).
_LOOK = 0.02


class Fighter:
    """One process: what it is, what it wrote down, and what was done to it."""

    def __init__(
        self,
        folder: Path,
        url: str,
        role: str,
        number: int,
        argument: int,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.role = role
        self.name = f"{role}-{number}"
        self.ledger = folder / f"{self.name}.ledger"
        self.log = folder / f"{self.name}.log"
        #: Whether its end has been taken note of.
        self.over = False
        #: When it was killed; and from when to when it was stopped.
        self.killed_at: float | None = None
        self.stops: list[tuple[float, float]] = []
        self._stopped_at: float | None = None
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.chaos.{role}", url, str(self.ledger), str(argument)],
                cwd=REPO, env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def at_work(self) -> bool:
        """Whether it has opened the store: who is killed before proves nothing."""
        return self.process.poll() is None and self.ledger.exists() and self.ledger.stat().st_size > 0

    @property
    def has_closed(self) -> bool:
        """Whether it has left its room in peace; how slow its end was may be noted after that."""
        return [line.word for line in self.lines() if line.word != "slow"][-1] == "closed"

    @property
    def is_stopped(self) -> bool:
        return self._stopped_at is not None

    def kill(self) -> None:
        self.end()
        self.killed_at = time.monotonic()
        self._end_stop()

    def stop(self) -> None:
        self._stopped_at = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._end_stop()

    def _end_stop(self) -> None:
        if self._stopped_at is not None:
            self.stops.append((self._stopped_at, time.monotonic()))
            self._stopped_at = None

    def ask_to_end(self) -> None:
        self.process.terminate()

    def end(self) -> None:
        """Whatever it is doing: it is no more when this returns."""
        self.process.kill()
        self.process.wait()
        self.over = True

    def lines(self) -> list[Line]:
        return list(read(self.ledger)) if self.ledger.exists() else []


class Battle:
    """Who fights, and what has happened so far."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        producers: int = 3,
        workers: int = 5,
        url: str = "",
        fighters_url: str = "",
        policy: Policy = POLICY,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """About the store at this URL; without one, about a SQLite file in the folder.

        `fighters_url`: the same store, with less patience than who looks on must have.
        `environ` is added to the environment of those who fight, and not to that of who looks on.
        """
        self.folder = folder
        self.store = folder / "store.db"
        self.url = url or url_of(self.store, busy_timeout="1m")
        # Shorter than some stops: who waits for a stopped process hears EngineBusy.
        self._fighters_url = fighters_url or url or url_of(self.store, busy_timeout="2s")
        self._policy = policy
        self._environ = environ or {}
        self.chance = random.Random(seed)
        self.fighters: list[Fighter] = []
        self.kills = {"worker": 0, "producer": 0, "checkpointer": 0, "poison": 0}
        self.longest_wal = 0
        #: Whether the one who keeps the -wal short was ever stopped: then it grows for so long.
        self.checkpointer_stopped = False
        self._wake: tuple[float, Fighter] | None = None
        self._sizes = {"producer": producers, "worker": workers}
        self._ledger = Ledger(folder / "battle.ledger")

    @contextlib.contextmanager
    def fighting(self) -> Iterator[None]:
        """Everybody begins; whatever happens, nobody is left at the end."""
        try:
            with postroom.open(self.url) as room:
                for queue in QUEUES:
                    room.queue(queue, self._policy)
            for role, size in self._sizes.items():
                for _ in range(size):
                    self._enlist(role)
            self.wait_for(self._all_at_work)
            yield
        finally:
            for fighter in self.fighters:
                fighter.end()

    def alive(self, role: str | None = None) -> list[Fighter]:
        return [fighter for fighter in self.fighters if not fighter.over and role in (None, fighter.role)]

    def _all_at_work(self) -> bool:
        return all(fighter.at_work for fighter in self.alive())

    def _enlist(self, role: str) -> None:
        argument = self.chance.randrange(2, 5) if role == "worker" else self.chance.randrange(2**31)
        number = len(self.fighters)
        self.fighters.append(Fighter(self.folder, self._fighters_url, role, number, argument, self._environ))

    # ---- violence ---------------------------------------------------------------------------------

    def rage(self, seconds: float, least_kills: int) -> None:
        """Kill and stop for so long, and until there were so many kills."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or sum(self.kills.values()) < least_kills:
            self._let_pass(self.chance.uniform(0.1, 1.2))
            self._strike()
        self._wake_up()

    def _strike(self) -> None:
        """One blow; the dice are thrown before anybody looks, so that a seed means the same blows."""
        dice, place = self.chance.random(), self.chance.random()
        if dice < 0.2:
            self._stop_one(place, self.chance.uniform(1.3, 2.0) * LEASE)
        elif dice < 0.4:
            self._kill(self._checkpointer(), "checkpointer")
        else:
            role = "worker" if dice < 0.75 else "producer"
            self._kill(self._one(role, place), role)

    def _one(self, role: str, place: float) -> Fighter | None:
        ready = [fighter for fighter in self.alive(role) if fighter.at_work]
        return ready[int(place * len(ready))] if ready else None

    def _kill(self, fighter: Fighter | None, why: str) -> None:
        if fighter and fighter.at_work:
            fighter.kill()
            self._ledger.note("killed", "-", fighter.name)
            self.kills[why] += 1
            self._enlist(fighter.role)

    def _stop_one(self, place: float, seconds: float) -> None:
        """Longer than a lease; one at a time, as one may hold the lock that all others wait for."""
        fighter = self._one("worker", place)
        if fighter and self._wake is None:
            self.checkpointer_stopped |= fighter is self._checkpointer()
            fighter.stop()
            self._ledger.note("stopped", "-", fighter.name)
            self._wake = time.monotonic() + seconds, fighter

    def _wake_up(self) -> None:
        if self._wake:
            _, fighter = self._wake
            self._wake = None
            if fighter.is_stopped:
                fighter.go_on()
                self._ledger.note("goes-on", "-", fighter.name)

    def _checkpointer(self) -> Fighter | None:
        pid = holder_of(Path(f"{self.store}.checkpoint"))
        return next((fighter for fighter in self.alive() if fighter.process.pid == pid), None)

    def _let_pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(_LOOK)
            self.look()

    def look(self) -> None:
        """What is to be seen from outside, and who was killed by a message."""
        with contextlib.suppress(FileNotFoundError):
            self.longest_wal = max(self.longest_wal, os.stat(f"{self.store}-wal").st_size)  # noqa: PTH116 - often
        if self._wake and time.monotonic() >= self._wake[0]:
            self._wake_up()
        for fighter in self.alive():
            if fighter.process.poll() is not None:
                self._bury(fighter)

    def _bury(self, fighter: Fighter) -> None:
        """Nobody dies unless we kill it, or a message does."""
        poisoned = any(line.word == "poison" for line in fighter.lines())
        if fighter.process.returncode != -signal.SIGKILL or not poisoned:
            raise AssertionError(f"{fighter.name} ended by itself:\n{fighter.log.read_text()[-3_000:]}")
        fighter.kill()
        self._ledger.note("killed", "-", fighter.name)
        self.kills["poison"] += 1
        self._enlist(fighter.role)

    def poison(self) -> None:
        """Put a message that kills whoever works on it."""
        id = new_id()
        self._ledger.note("intend", id, id, time.monotonic(), "-")
        with postroom.open(self.url) as room:
            body, put = body_with(id, Work(0.0, poison=True)), room.queue(QUEUES[0]).put
            poison = functools.partial(put, body, id=id, max_attempts=POISON_ATTEMPTS, priority="high")
            self.wait_for(lambda: slipped_in(poison))
        self._ledger.note("accepted", id, 0)

    # ---- peace ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """No more kills: the producers end, and the workers when nothing is left to do."""
        self.wait_for(self._all_at_work)
        self._end("producer")
        with postroom.open(self.url) as room:
            queues = [room.queue(name) for name in QUEUES]
            self.wait_for(lambda: all(_is_drained(queue.stats()) for queue in queues))
        self.wait_for(self._all_at_work)  # the last poison may have called for one more
        self._end("worker")

    def _end(self, role: str) -> None:
        leaving = self.alive(role)
        for fighter in leaving:
            fighter.ask_to_end()
        self.wait_for(lambda: all(fighter.process.poll() is not None for fighter in leaving), looking=False)
        for fighter in leaving:
            assert fighter.process.returncode == 0, f"{fighter.name}:\n{fighter.log.read_text()[-3_000:]}"
            assert fighter.has_closed
            fighter.over = True

    def wait_for(self, condition: Callable[[], bool], *, looking: bool = True) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not within {PATIENCE} s"
            time.sleep(_LOOK)
            if looking:
                self.look()

    def remains(self) -> tuple[list[QueueStats], set[str]]:
        """What the last one to open the room sees in it, and which dead letters."""
        with postroom.open(self.url) as room:
            queues = [room.queue(name) for name in QUEUES]
            dead = {entry.id for queue in queues for entry in queue.find_all(State.DEAD)}
            return [queue.stats() for queue in queues], dead

    def fates(self) -> dict[str, Fate]:
        return {fighter.name: Fate(fighter.killed_at, tuple(fighter.stops)) for fighter in self.fighters}

    def lines(self) -> Iterator[Line]:
        for path in sorted(self.folder.glob("*.ledger")):
            yield from read(path)

    def history(self) -> History:
        """The logs of all queues, by the clock of the ledgers; what they say is kept beside those."""
        offset, entries, since = time.time() - time.monotonic(), list[Told](), -math.inf
        with postroom.open(self.url) as room:
            for name in QUEUES:
                log = [
                    Told(entry.at / 1_000 - offset, entry.event, frozenset(entry.ids), entry.count)
                    for entry in _all_entries(room.queue(name))
                ]
                since = max(since, log[0].at) if len(log) >= LOG_LIMIT else since
                entries += log
        told = (f"{at:.3f} {event} {number} {' '.join(sorted(ids))}\n" for at, event, ids, number in entries)
        (self.folder / "history.txt").write_text("".join(told))
        return History(entries, since)


def _all_entries(queue: Queue) -> Iterator[LogEntry]:
    log = queue.history(limit=1_000)
    while log.entries:
        yield from log.entries
        log = queue.history(log.cursor, limit=1_000)


def _is_drained(stats: QueueStats) -> bool:
    return not (stats.ready or stats.scheduled or stats.processing)


def holder_of(path: Path) -> int | None:
    """The process that holds a flock on this file, by the kernel's own list."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, *_, pid, file, _, _ = line.split()
        if kind == "FLOCK" and file.endswith(f":{inode}"):
            return int(pid)
    return None


def slipped_in(put: Callable[[], object]) -> bool:
    """Whether a message is in its queue: while that is full, or the store busy, it has to come again."""
    try:
        put()
    except (QueueFull, EngineUnavailable):
        return False
    return True
