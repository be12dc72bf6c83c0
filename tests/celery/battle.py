"""The battle: Celery workers that are killed -9 while they work, and a ledger that knows nothing of Postroom.

    python -m tests.celery.battle [--tasks 10000] [--kills 20] [--seed 1] [--only redis,prefork]

Every task writes a line when it begins and one when it ends, into a file; who was killed when is known to
the killer. From these alone: was anything lost, and did anything end twice that must not have?
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import postroom
from postroom.stats import QueueStats
from tests.celery.workers import APP, REPO, Shop, WorkerProcess
from tests.redis import servers

#: The lease of the tasks (seconds), and what may be done again: what ended this shortly before a kill.
LEASE = 5
WINDOW = 0.025
WORKERS = 4
#: A task takes up to this long (seconds); so many are sent a second, a tenth of them with a countdown.
LONGEST, RATE = 0.1, 80

_PRODUCER = """
import random, sys
from postroom.celery import publish_group
chance = random.Random({seed})
begun = time.monotonic()
for first in range(0, {tasks}, 20):
    while first + 20 >= {tasks} and not os.path.exists({gate!r}):
        time.sleep(0.05)  # the last of them end after the last kill, however long that takes
    batch = []
    for n in range(first, min(first + 20, {tasks})):
        later = chance.choice([0] * 9 + [chance.uniform(0.1, 2.0)])
        task = nap.s(chance.uniform(0, {longest}), str(n))
        batch.append(task.set(priority=chance.randrange(10), **({{"countdown": later}} if later else {{}})))
        write("sent", str(n), due=time.time() + later)
    publish_group(batch)
    time.sleep(max(0.0, begun + first / {rate} - time.monotonic()))
"""


class Line(NamedTuple):
    what: str
    label: str
    at: float
    group: int
    due: float


class Ledger:
    """What was written so far; reads only what is new."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.lines: list[Line] = []
        self.ended: set[str] = set()
        self.sent: dict[str, float] = {}

    def update(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for one in map(json.loads, whole.splitlines()):
            self._note(one)

    def _note(self, one: dict[str, Any]) -> None:
        self.lines.append(Line(one["what"], one["label"], one["at"], one["group"], one.get("due", 0.0)))
        if one["what"] == "sent":
            self.sent[one["label"]] = one["due"]
        elif one["what"] == "end":
            self.ended.add(one["label"])


@dataclass
class Verdict:
    """What the ledger says. `twice`: how long before its worker's death each of those ended first (s)."""

    submitted: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[float] = field(default_factory=list)
    #: Ended twice, and nobody who had ended it was killed.
    unexplained: list[str] = field(default_factory=list)
    kills: int = 0
    #: From due to begin, and from a kill to the next begin of what had begun there (seconds).
    waits: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)

    @property
    def late(self) -> list[float]:
        """Ended twice although the worker had more than the promised time to say so."""
        return [span for span in self.twice if span > WINDOW]


def judge(lines: list[Line], sent: dict[str, float], killed: dict[int, float]) -> Verdict:
    """`killed`: the process group of each worker that was killed, and when."""
    verdict = Verdict(submitted=len(sent), kills=len(killed))
    runs: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.what != "sent":
            runs[line.label].append(line)
    for label, due in sent.items():
        _judge_one(verdict, label, due, sorted(runs[label], key=lambda line: line.at), killed)
    return verdict


def _judge_one(verdict: Verdict, label: str, due: float, lines: list[Line], killed: dict[int, float]) -> None:
    begins = [line for line in lines if line.what == "begin"]
    ends = [line for line in lines if line.what == "end"]
    if not ends:
        verdict.lost.append(label)
        return
    verdict.waits.append(begins[0].at - due)
    for earlier in ends[:-1]:
        if earlier.group in killed:
            verdict.twice.append(max(0.0, killed[earlier.group] - earlier.at))
        else:
            verdict.unexplained.append(label)
    for one, other in itertools.pairwise(begins):
        if one.group in killed:
            verdict.recoveries.append(other.at - killed[one.group])
        else:
            verdict.unexplained.append(label)


class Battle:
    """One store, one pool: send, kill, and wait for the end."""

    def __init__(
        self,
        shop: Shop,
        pool: str,
        *,
        tasks: int,
        kills: int,
        seed: int,
        rate: int = RATE,
        workers: int = WORKERS,
    ) -> None:
        self._size = workers
        self.shop, self.pool, self.tasks, self.kills, self.seed = shop, pool, tasks, kills, seed
        self._rate = rate
        self._chance = random.Random(seed)
        self._ledger = Ledger(shop.ledger)
        self._gate = shop.folder / "gate"
        self._alive: list[WorkerProcess] = []
        self._killed: dict[int, float] = {}
        self._shown = 0.0

    def run(self, patience: float, progress: bool = False) -> Verdict:
        end = time.monotonic() + patience
        for _ in range(self._size):
            self._enlist(ready=False)
        for worker in self._alive:
            worker.until_ready()
        with self._producer() as producer:
            # Between the first tenth of what is sent and the last 20: the dice say when.
            last = min(0.95 * self.tasks, self.tasks - 20)
            moments = sorted(self._chance.uniform(0.1 * self.tasks, last) for _ in range(self.kills))
            while len(self._ledger.ended) < self.tasks:
                assert time.monotonic() < end, f"{self._missing()} tasks did not end"
                assert producer.poll() in (None, 0), "the producer failed"
                while moments and len(self._ledger.sent) >= moments[0] and self._kill():
                    moments.pop(0)
                if not moments:
                    self._gate.touch()
                time.sleep(0.05)
                self._ledger.update()
                if progress:
                    self._show()
        self._settle_down()
        return judge(self._ledger.lines, self._ledger.sent, self._killed)

    def _missing(self) -> int:
        return self.tasks - len(self._ledger.ended)

    def _enlist(self, ready: bool) -> None:
        self._alive.append(self.shop.worker("--pool", self.pool, "--concurrency", "4", ready=ready))

    def _kill(self) -> bool:
        """Kill one of the workers that work; False while there is none to spare."""
        ready = [worker for worker in self._alive if " ready." in worker.log()]
        if len(ready) < 2:
            return False
        victim = self._chance.choice(ready)
        self._killed[victim.process.pid] = time.time()
        victim.kill()
        self._alive.remove(victim)
        self._enlist(ready=False)
        return True

    def _settle_down(self) -> None:
        """Whatever may run again must have done so: wait until the store is empty."""
        with postroom.open(self.shop.broker.removeprefix("postroom+")) as room:
            self.shop.until(lambda: _is_empty(room.engine.stats("shop")), "something is left in the store")
        for worker in self._alive:
            # One that is just starting does not know yet how to stop.
            assert worker.until_ready().stop() == 0, worker.log()[-3_000:]
        self._ledger.update()

    @contextlib.contextmanager
    def _producer(self) -> Iterator[subprocess.Popen[bytes]]:
        code = _PRODUCER.format(
            seed=self.seed, tasks=self.tasks, longest=LONGEST, rate=self._rate, gate=str(self._gate)
        )
        program = [sys.executable, "-c", f"from {APP} import *\n{code}"]
        process = subprocess.Popen(program, cwd=REPO, env=self.shop.environ, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _show(self) -> None:
        if time.monotonic() < self._shown + 5:
            return
        self._shown = time.monotonic()
        done, killed = len(self._ledger.ended), len(self._killed)
        print(f"  {done:6} of {self.tasks} done, {killed:3} of {self.kills} killed", file=sys.stderr)


def _is_empty(stats: QueueStats) -> bool:
    return not (stats.ready or stats.scheduled or stats.processing)


# --- the long one, for people -------------------------------------------------------------------

_COLUMNS = (
    "store", "pool", "submitted", "lost", "twice", "within 25 ms", "unexplained", "kills", "twice/kill",
    "wait p50", "p95", "p99", "max", "recovery p50", "max",
)  # fmt: skip


def row(store: str, pool: str, verdict: Verdict) -> list[str]:
    within = len(verdict.twice) - len(verdict.late)
    numbers = [verdict.submitted, len(verdict.lost), len(verdict.twice), within, len(verdict.unexplained)]
    waits = [f"{_percentile(verdict.waits, q) * 1_000:.0f} ms" for q in (0.5, 0.95, 0.99, 1.0)]
    recoveries = [f"{_percentile(verdict.recoveries, q):.2f} s" for q in (0.5, 1.0)]
    mean = f"{len(verdict.twice) / max(1, verdict.kills):.2f}"
    return [store, pool, *map(str, numbers), str(verdict.kills), mean, *waits, *recoveries]


def _percentile(values: list[float], q: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


@contextlib.contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"postroom+sqlite:///{folder}/jobs.db"
    else:
        with servers.single() as server:
            yield f"postroom+{server.url()}"


def fight(kind: str, pool: str, *, tasks: int, kills: int, seed: int) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="postroom-battle-") as name, _store(kind, Path(name)) as broker:
        options = {"visibility_timeout": LEASE}
        with Shop(broker, Path(name), broker_transport_options=options, task_ignore_result=True) as shop:
            battle = Battle(shop, pool, tasks=tasks, kills=kills, seed=seed)
            return battle.run(patience=60 + 10 * tasks / RATE, progress=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="words that a battle must have: redis, sqlite, a pool")
    given = parser.parse_args()
    wanted = set(filter(None, given.only.split(",")))
    verdicts = {}
    for kind, pool in itertools.product(("redis", "sqlite"), ("prefork", "threads", "gevent")):
        if wanted <= {kind, pool}:
            print(f"{kind}, {pool} (seed {given.seed})", file=sys.stderr)
            verdicts[kind, pool] = fight(kind, pool, tasks=given.tasks, kills=given.kills, seed=given.seed)
    print(" | ".join(_COLUMNS))
    for (kind, pool), verdict in verdicts.items():
        print(" | ".join(row(kind, pool, verdict)))
        for late in verdict.late:
            print(f"  ended twice, {late * 1_000:.0f} ms before its worker was killed")
    bad = [v for v in verdicts.values() if v.lost or v.unexplained or len(v.twice) > v.kills or v.late]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
