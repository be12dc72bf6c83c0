"""What is raced in. A trial takes every runner once and gives its figures, or why it has none."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bench.measure import percentile, wait_until
from bench.race.field import HANDS, Runner
from bench.race.track import Lane, Sender, Track, Worker
from bench.systems import Terms

Figures = dict[str, float]
Say = Callable[[str], None]

#: How often they take turns at putting in a trial, one by one and in bulk; the first slice warms up and is
#: not counted. Many short ones, because the load of a machine comes and goes.
_SLICES, _BULKS = 15, 5
_IDLE = 1_000  # room in a ledger for what comes besides
#: How long a silent worker is trusted, where that can be set, and its jobs are waited for (seconds).
LEASE, PATIENCE = 10, 100
_TOGETHER = 5  # how many are killed at a time: that takes patience, not processor time


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    slice: int = 100
    bulk: int = 2_000
    jobs: float = 1.0
    samples: int = 100
    seconds: float = 6.0
    delayed: int = 40
    waiting: int = 4_200
    before: int = 1_000
    hands: int = HANDS


QUICK = Size(30, 200, 0.05, 10, 2.0, 5, 300, 30)


class Trial:
    """One discipline, for those who can."""

    def __init__(self, track: Track, size: Size, say: Say) -> None:
        self.track, self.size, self.say = track, size, say
        self.crashes: dict[str, str] = {}

    def alone(
        self, runners: Sequence[Runner], terms: Terms, run: Callable[[Lane], Figures]
    ) -> dict[str, Figures]:
        """One after the other, each with the machine for itself."""
        found = {}
        for runner in runners:
            if (figures := self._guarded(runner, terms, run)) is not None:
                found[runner.slug] = figures
        return found

    def together(
        self, runners: Sequence[Runner], terms: Terms, run: Callable[[Lane], Figures]
    ) -> dict[str, Figures]:
        with ThreadPoolExecutor(_TOGETHER) as pool:
            every = list(pool.map(lambda runner: self._guarded(runner, terms, run), runners))
        return {runner.slug: figures for runner, figures in zip(runners, every, strict=True) if figures}

    def _guarded(self, runner: Runner, terms: Terms, run: Callable[[Lane], Figures]) -> Figures | None:
        lane = None
        try:
            with self.track.lane(runner, terms) as lane:
                try:
                    return run(lane)
                except Exception:
                    self.say(f"{runner.slug}: {lane.last_words()}")
                    raise
        except Exception as error:
            self.crashes[runner.slug] = f"{type(error).__name__}: {error}"
            self.say(f"{runner.slug} crashed: {self.crashes[runner.slug]}")
            return None

    def by_turns(self, runners: Sequence[Runner], order: str, count: int, slices: int) -> dict[str, Figures]:
        """All are open at once, and each puts a slice when it is its turn; who begins changes."""
        rates: dict[str, list[float]] = {}
        with ExitStack() as stack:
            senders = {}
            for runner in runners:
                senders[runner.slug] = stack.enter_context(self.track.lane(runner, Terms())).sender()
            turns = list(senders)
            for _ in range(1 + slices):
                turns.append(turns.pop(0))
                for slug in turns:
                    seconds = senders[slug].ask(do=order, count=count)["seconds"]
                    rates.setdefault(slug, []).append(count / seconds)
        return {slug: {"rate": statistics.median(speeds[1:])} for slug, speeds in rates.items()}


def enqueue(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    return trial.by_turns(runners, "put", trial.size.slice, _SLICES)


def bulk(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    return trial.by_turns(runners, "put_many", trial.size.bulk, _BULKS)


def drain(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    def run(lane: Lane) -> Figures:
        count = max(40, int(lane.runner.jobs * trial.size.jobs))
        sender = lane.sender()
        sender.ask(do="fill", count=count)
        sender.close()
        worker = lane.worker(count + _IDLE)
        worker.wait_for(count)
        begun = worker.ledger.entries()
        warm = count // 10  # in which a process warms up
        return {"rate": (count - 1 - warm) / (begun[count - 1].at - begun[warm].at) * 1e9}

    return trial.alone(runners, Terms(hands=trial.size.hands), run)


def latency(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    def run(lane: Lane) -> Figures:
        size = trial.size
        worker, sender = _ready(lane, size.samples)
        order = {"count": size.samples, "seconds": size.seconds, "pause": [0.005, 0.015]}
        sent = sender.ask(do="paced", ledger=str(worker.path), **order)["sent"]
        worker.wait_for(1 + len(sent))
        began = {entry.key: entry.at for entry in worker.ledger.entries()}
        waits = [(began[key] - at) / 1e6 for key, at in enumerate(sent, 1)]
        return {"p50": percentile(waits, 50), "p99": percentile(waits, 99), "samples": len(waits)}

    return trial.alone(runners, Terms(hands=trial.size.hands), run)


def delay(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    def run(lane: Lane) -> Figures:
        ahead, count = 2.0, trial.size.delayed
        worker, sender = _ready(lane, count)
        sent = sender.ask(do="paced", count=count, delay=ahead, pause=[0.05, 0.15], seconds=60)["sent"]
        worker.wait_for(1 + len(sent))
        began = {entry.key: entry.at for entry in worker.ledger.entries()}
        late = [(began[key] - at) / 1e6 - ahead * 1e3 for key, at in enumerate(sent, 1)]
        # A due time is kept in whole milliseconds by some.
        return {"p50": percentile(late, 50), "most": max(late), "early": sum(one < -1 for one in late)}

    return trial.alone(runners, Terms(hands=trial.size.hands), run)


def memory(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    def run(lane: Lane) -> Figures:
        sizes = []
        for count in (1, trial.size.waiting):
            sender = lane.sender()
            sender.ask(do="fill", count=count)
            sender.close()
            sizes.append(lane.size())
        return {"bytes": (sizes[1] - sizes[0]) / trial.size.waiting}

    return trial.alone(runners, Terms(), run)


def priority(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    """Behind so many others, while the only hand is busy: what its worker has fetched ahead counts too."""

    def run(lane: Lane) -> Figures:
        others = trial.size.before
        worker, sender = _ready(lane, others)
        sender.ask(do="paced", count=1, first=-1, gate=True)
        worker.wait_for(2)
        sender.ask(do="paced", count=others, first=100)
        sender.ask(do="paced", count=1, first=1, urgent=True)
        lane.gate.touch()
        wait_until(lambda: any(entry.key == 1 for entry in worker.ledger.entries(2)), 120)
        order = [entry.key for entry in worker.ledger.entries(2)]
        return {"position": order.index(1) + 1}

    return trial.alone(runners, Terms(hands=1, priorities=True), run)


def crash(trial: Trial, runners: Sequence[Runner]) -> dict[str, Figures]:
    """A worker with its hands full is killed, another one started, and new jobs keep coming."""

    def run(lane: Lane) -> Figures:
        jobs = range(1, 13)
        sender = lane.sender()
        sender.ask(do="paced", count=len(jobs))
        worker = lane.worker(_IDLE, held="all")
        worker.wait_for(1)
        _settled(worker)
        worker.kill()
        killed = time.monotonic_ns()
        held = {entry.key for entry in worker.ledger.entries()}
        second = lane.worker(_IDLE)
        began: dict[int, int] = {}
        while time.monotonic_ns() - killed < PATIENCE * 1e9 and not began.keys() >= set(jobs):
            sender.ask(do="paced", count=1, first=1_000)
            time.sleep(0.5)
            began = {entry.key: entry.at for entry in reversed(second.ledger.entries())}
        back = [(began[key] - killed) / 1e9 for key in held if key in began]
        gone = len(set(jobs) - began.keys())
        return {"held": len(held), "lost": gone, **({"back": max(back)} if back else {})}

    return trial.together(runners, Terms(hands=4, lease=LEASE), run)


def _ready(lane: Lane, count: int) -> tuple[Worker, Sender]:
    """A worker that has done its first job, and who puts."""
    sender = lane.sender()
    worker = lane.worker(count + _IDLE)
    sender.ask(do="paced", count=1, first=0)
    worker.wait_for(1)
    return worker, sender


def _settled(worker: Worker) -> None:
    """Until nothing more began for a second: the hands are full."""
    count, since = len(worker.ledger), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.05)
        if len(worker.ledger) != count:
            count, since = len(worker.ledger), time.monotonic()


@dataclass(frozen=True)
class Discipline:
    """What it is, and its run."""

    title: str
    run: Callable[[Trial, Sequence[Runner]], dict[str, Figures]]


DISCIPLINES = {
    "enqueue": Discipline("jobs put one by one, each known to be kept", enqueue),
    "bulk": Discipline("jobs put by the call that takes many", bulk),
    "drain": Discipline("no-ops worked off by one process", drain),
    "latency": Discipline("from the call to the first line of the job, on an idle worker", latency),
    "delay": Discipline("how late a delayed job begins", delay),
    "memory": Discipline("what a waiting job of 200 bytes takes in the store", memory),
    "priority": Discipline("at which place an urgent job runs that was put behind 1,000", priority),
    "crash": Discipline("what becomes of the jobs of a worker that is killed", crash),
}
