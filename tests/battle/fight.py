"""One leg of the battle: a store, a crew on it, steady load, and blows by dice; then the verdict."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from amqp.exceptions import AMQPError
from redis.exceptions import RedisError

from tests.battle import stores
from tests.battle.crew import BLOWS, Member, producer_command, wait_until, worker_command
from tests.battle.stores import Store
from tests.battle.verdict import WINDOW, Fault, Verdict, judge
from tests.battle.work import LEASE, SERVICES, SLOW
from tests.chaos.ledger import Ledger, Line, parse

WORKERS = 3
#: A worker is hit every so often, and the store (seconds).
_KILL_EVERY, _HURT_EVERY = 6.0, 25.0
#: So many may wait before the producer holds.
_MOST_WAITING = 500
#: Whoever holds something has come back or is taken for dead after so long without any news (leases).
_QUIET = 5
_LOOK, _PROBE = 0.1, 0.02


class Leg(NamedTuple):
    """A store, and who works on it; `guarded`: with an effect in a database, kept single by the SQL guard."""

    store: str
    crew: str
    guarded: bool = False

    @property
    def name(self) -> str:
        return f"{self.store}-{self.crew}" + ("-guard" if self.guarded else "")

    @property
    def pace(self) -> tuple[float, float]:
        """Jobs a second, and how long most of them take at most (seconds): a half of what two cores bear."""
        if self.crew == "native":
            return (100 if self.guarded else 300), 0.03
        return 60, 0.1

    @property
    def services(self) -> tuple[str, ...]:
        """Who gets each job: on RabbitMQ every service, and a worker belongs to one of them."""
        return SERVICES if self.store == "rabbitmq" else ("",)


LEGS = (
    *(Leg(store, crew) for store in ("redis", "sentinel", "cluster", "sqlite")
      for crew in ("native", "prefork", "threads")),
    Leg("rabbitmq", "prefork"),
    Leg("rabbitmq", "threads"),
    Leg("redis", "native", guarded=True),
    Leg("redis", "prefork", guarded=True),
    Leg("stock", "prefork"),
    Leg("stock", "threads"),
)  # fmt: skip


class Strike(NamedTuple):
    """At so many seconds: a way to end a worker, or to hurt the store."""

    at: float
    kind: str


def plan(chance: random.Random, seconds: float, hurts: list[str]) -> list[Strike]:
    """The dice are thrown before anything happens, so that a seed means the same blows."""
    kills = max(3, round(seconds / _KILL_EVERY))
    dice = [*BLOWS, "hard", "hard"]  # the hard ones are what tells most
    strikes = [Strike(chance.uniform(0.05, 0.95) * seconds, chance.choice(dice)) for _ in range(kills)]
    if hurts:
        count = max(1, round(seconds / _HURT_EVERY))
        mixed = chance.sample(hurts, len(hurts))
        order = [mixed[n % len(mixed)] for n in range(count)]
        # Each in a part of its own: they do not come one upon the other.
        strikes += [
            Strike((n + chance.uniform(0.2, 0.8)) / count * seconds, kind) for n, kind in enumerate(order)
        ]
    return sorted(strikes)


def given(chance: random.Random, seconds: float, blows: Mapping[str, int]) -> list[Strike]:
    """So many of each, in an order by dice, and each in a part of the time of its own."""
    kinds = [kind for kind, count in blows.items() for _ in range(count)]
    mixed = chance.sample(kinds, len(kinds))
    return [
        Strike((n + chance.uniform(0.2, 0.8)) / len(mixed) * seconds, kind) for n, kind in enumerate(mixed)
    ]


class Ledgers:
    """All lines of a folder so far; reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.lines: list[Line] = []
        #: How many of them tell what was done.
        self.news = 0
        self.accepted: set[str] = set()
        self.ended: set[str] = set()

    def update(self) -> None:
        for path in sorted(self._folder.glob("*.ledger")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                self._note(parse(path.stem, line))

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        self.news += line.word != "slow"
        if line.word == "accepted":
            self.accepted.add(line.id)
        elif line.word == "end":
            self.ended.add(line.id)

    @property
    def waiting(self) -> int:
        return len(self.accepted - self.ended)


@dataclass
class Fight:
    """`rate`: times as many jobs as the leg's own pace.

    `jobs`: so many and no more, however long that takes; `blows`: so many of each kind, in place of the dice.
    """

    leg: Leg
    store: Store
    folder: Path
    seed: int
    seconds: float
    rate: float = 1.0
    workers: int = WORKERS
    lease: float = LEASE
    window: float = WINDOW
    quiet: bool = False
    jobs: int = 0
    blows: Mapping[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    crew: list[Member] = field(default_factory=list)
    #: Who did not end as it was asked to.
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.leg.name}")
        self.ledgers = Ledgers(self.folder)
        self._hold = self.folder / "hold"
        self._url = self.store.url if self.leg.crew == "native" else self.store.broker
        self._book = f"sqlite:///{self.folder}/book.db" if self.leg.guarded else ""
        self._enlisted = 0
        self._shown = 0.0

    def run(self) -> Verdict:
        strikes = self._plan()
        with self.fighting() as producer:
            began, total = time.monotonic(), len(strikes)
            while strikes or not self._has_all(began):
                if strikes and time.monotonic() >= began + strikes[0].at and self._strike(strikes[0].kind):
                    strikes.pop(0)
                self.look(f"{total - len(strikes)} of {total} blows")
            self.drain(producer)
        return self.judge()

    def _plan(self) -> list[Strike]:
        if unknown := set(self.blows) - set(BLOWS) - set(self.store.hurts):
            raise ValueError(f"{self.leg.name} knows no blow {', '.join(sorted(unknown))}")
        if self.blows:
            return given(self.chance, self.seconds, self.blows)
        return plan(self.chance, self.seconds, sorted(self.store.hurts))

    def _has_all(self, began: float) -> bool:
        """Whether there has been as much load as was asked for."""
        if self.jobs:
            return len(self.ledgers.accepted) >= self.jobs * len(self.leg.services)
        return time.monotonic() >= began + self.seconds

    @contextlib.contextmanager
    def _probing(self) -> Iterator[None]:
        """Note when the store is slow by itself: whoever waits for it then is not to blame."""
        over, ledger = threading.Event(), Ledger(self.folder / "store-probe.ledger")

        def probe(ask: Callable[[], object]) -> None:
            while not over.wait(_PROBE):
                began = time.monotonic()
                with contextlib.suppress(RedisError, AMQPError, OSError):  # it may well be away
                    ask()
                if time.monotonic() - began > SLOW:
                    ledger.note("slow", "-", began)

        threads = [threading.Thread(target=probe, args=(ask,), name="probe") for ask in self.store.probes]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    @contextlib.contextmanager
    def fighting(self) -> Iterator[Member]:
        """Everybody begins; whatever happens, nobody is left at the end."""
        if self._book:
            from tests.battle import book  # not where there is no SQLAlchemy

            book.make(self._book)
        everybody: list[Member] = []
        with self._probing():
            try:
                for service in self.leg.services:
                    for _ in range(-(-self.workers // len(self.leg.services))):
                        self._enlist(service)
                for member in self.crew:
                    member.await_ready()
                rate, longest = self.leg.pace
                command = producer_command(
                    self.leg.crew, self._url, self.seed, rate * self.rate, longest, self.jobs
                )
                everybody.append(Member("producer", command, self.folder, self._environ))
                yield everybody[0]
            finally:
                for member in (*everybody, *self.crew):
                    member.end()

    @property
    def _environ(self) -> dict[str, str]:
        lease = f"{self.lease:g}"
        return {"BATTLE_BROKER": self.store.broker, "BATTLE_BOOK": self._book, "BATTLE_LEASE": lease}

    def _enlist(self, service: str) -> None:
        name = f"w{self._enlisted}"
        self._enlisted += 1
        environ = self._environ | {"BATTLE_SERVICE": service}
        command = worker_command(self.leg.crew, self._url, name)
        self.crew.append(Member(name, command, self.folder, environ, service))

    # --- violence ---------------------------------------------------------------------------

    def _strike(self, kind: str) -> bool:
        return self._end_one(kind) if kind in BLOWS else self._hurt(kind)

    def _end_one(self, kind: str) -> bool:
        """End one of those who work; False while there is none to spare."""
        self._relieve()
        ready = [member for member in self.crew if member.is_ready]
        if len(ready) < 2:
            return False
        victim = self.chance.choice(ready)
        self.crew.remove(victim)
        self._enlist(victim.service)
        try:
            self.faults.append(BLOWS[kind](victim))
        except AssertionError as complaint:  # it does not stop, or not well
            self.wrong.append(str(complaint))
            self.faults.append(victim.hard())
        return True

    def _relieve(self) -> None:
        """Who ended by itself is a complaint, and another takes its place: the rest is judged as ever."""
        for member in [each for each in self.crew if each.process.poll() is not None]:
            self.crew.remove(member)
            self._enlist(member.service)
            last = member.log().strip().rpartition("\n")[2]
            self.wrong.append(f"{member.name} ended by itself: {last[:200]}")
            now = time.monotonic()
            self.faults.append(Fault("ended by itself", now, now, member.name))

    def _hurt(self, kind: str) -> bool:
        """And every second time somebody is killed meanwhile, unless the blows are counted."""
        began = time.monotonic()
        with self.store.hurts[kind](self.chance):
            stores.let_pass(self.chance, kind)
            if not self.blows and self.chance.random() < 0.5:
                self._end_one("hard")
        self.faults.append(Fault(kind, began, time.monotonic()))
        return True

    # --- peace ------------------------------------------------------------------------------

    def look(self, progress: str) -> None:
        """What is new; the producer holds while too much waits."""
        time.sleep(_LOOK)
        self.ledgers.update()
        if self.ledgers.waiting > _MOST_WAITING:
            self._hold.touch()
        else:
            self._hold.unlink(missing_ok=True)
        if not self.quiet and time.monotonic() > self._shown + 10:
            self._shown = time.monotonic()
            done, waiting = len(self.ledgers.ended), self.ledgers.waiting
            print(f"  {self.leg.name}: {done} done, {waiting} wait, {progress}", file=sys.stderr, flush=True)

    def drain(self, producer: Member) -> None:
        """No more of it: until everything that was accepted has ended, or nothing has happened for long."""
        if not self.jobs:  # else it ends by itself
            producer.process.terminate()
        self._see_off(producer)
        self.ledgers.update()
        seen, last = 0, time.monotonic()
        while self.ledgers.waiting and time.monotonic() < last + _QUIET * self.lease:
            self.look("draining")
            if self.ledgers.news > seen:
                seen, last = self.ledgers.news, time.monotonic()
        # What was done twice is done the second time when the lease of the first is over.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.store.left(), "something is left", patience=3 * self.lease)
        self._relieve()
        for member in self.crew:
            member.await_ready()
            member.process.terminate()
        for member in self.crew:
            self._see_off(member)
        self.ledgers.update()

    def _see_off(self, member: Member) -> None:
        try:
            member.see_off()
        except AssertionError as complaint:
            self.wrong.append(str(complaint))
            member.end()

    def judge(self) -> Verdict:
        # Beside the ledgers: whoever asks later why something has no reason needs both.
        (self.folder / "faults.txt").write_text("\n".join(map(str, self.faults)) + "\n", encoding="utf-8")
        effects = None
        if self._book:
            from tests.battle import book

            effects = book.read(self._book)
        amqp = self.leg.store == "rabbitmq"
        verdict = judge(
            self.ledgers.lines, self.faults, effects, self.store.left(), self.window,
            amqp=amqp, renames=self.leg.crew != "native",
        )  # fmt: skip
        verdict.wrong += self.wrong
        return verdict
