"""Events while workers and RabbitMQ are killed -9, and a ledger that knows nothing of either: `make battle`.

    python -m tests.events.battle [--events 20000] [--kills 10] [--outages 2] [--seed 1]

Handlers write a line for each attempt into a file. Every fiftieth event fails at first, and has to come back
by the ladder. An event that no line tells of, or a failed one without a second line, is lost.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import EngineUnavailable
from tests.celery.workers import WorkerProcess
from tests.events.rabbit import Rabbit, running
from tests.events.stage import Stage

_EVENT, _WORKERS, _BATCH, _FAILS = "shop.order.placed", 3, 100, 50
#: How long one step may take, and how long nothing may come before what is missing is lost (s).
_PATIENCE, _QUIET = 600.0, 180.0


@dataclass
class Battle:
    """What happened."""

    events: int
    kills: int = 0
    outages: int = 0
    seconds: float = 0.0
    #: Attempts of each event, and of those that were to fail, the ones after the first.
    tries: Counter[int] = field(default_factory=Counter)
    again: Counter[int] = field(default_factory=Counter)
    archived: int = 0

    @property
    def lost(self) -> list[int]:
        return [
            number
            for number in range(self.events)
            if not (self.again if number % _FAILS == 0 else self.tries)[number]
        ]

    @property
    def twice(self) -> int:
        """Attempts beyond those that an undisturbed run has."""
        return sum(self.tries.values()) - self.events - len(range(0, self.events, _FAILS))


class Ledger:
    """Reads on where it stopped."""

    def __init__(self, path: Path, found: Battle) -> None:
        self._path, self._found, self._at, self._tail = path, found, 0, b""

    def read(self) -> Battle:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
            self._at += len(new)
            *lines, self._tail = (self._tail + new).split(b"\n")
            for line in map(json.loads, lines):
                self._found.tries[line["number"]] += 1
                self._found.again[line["number"]] += line["retries"] > 0
        return self._found


def battle(stage: Stage, rabbit: Rabbit, events: int, kills: int, outages: int, seed: int) -> Battle:
    """Publish so many events while so many workers and so many times RabbitMQ are killed."""
    chance, begin = random.Random(seed), time.monotonic()
    found = Battle(events)
    ledger = Ledger(stage.ledger, found)
    workers = [stage.worker("billing", "--pool", "solo") for _ in range(_WORKERS)]
    at = sorted(chance.sample(range(1, events // _BATCH), kills))
    down = sorted(chance.sample(range(1, events // _BATCH), outages))
    for batch in range(events // _BATCH):
        if batch in down:
            rabbit.kill()
            rabbit.start()
            found.outages += 1
        if batch in at:
            _kill_one(stage, workers, chance)
            found.kills += 1
        _publish(stage, range(batch * _BATCH, (batch + 1) * _BATCH))
        # Not far ahead of the workers, so that a kill meets one at work.
        stage.until(lambda: len(ledger.read().tries) > batch * _BATCH - 1_000, _PATIENCE)  # noqa: B023  # at once
    _until_quiet(ledger)
    found.seconds = time.monotonic() - begin
    found.archived = rabbit.count(f"{stage.name('billing')}.v1.archive")
    return found


def _until_quiet(ledger: Ledger) -> None:
    """Until nothing is missing, or nothing has come for a long time: then the rest is lost."""
    end, seen = time.monotonic() + _QUIET, -1
    while (found := ledger.read()).lost and time.monotonic() < end:
        if (tries := sum(found.tries.values())) > seen:
            end, seen = time.monotonic() + _QUIET, tries
        time.sleep(0.2)


def _kill_one(stage: Stage, workers: list[WorkerProcess], chance: random.Random) -> None:
    workers.pop(chance.randrange(len(workers))).kill()
    workers.append(stage.worker("billing", "--pool", "solo"))


def _publish(stage: Stage, numbers: range) -> None:
    """All of them; again as a whole while RabbitMQ is away, as a caller would that was told so."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            with stage.shop.publisher.window():
                for number in numbers:
                    fails = stage.name("billing") if number % _FAILS == 0 else ""
                    stage.publish(_EVENT, number, fail_in=fails, times=1)
        except EngineUnavailable:
            assert time.monotonic() < end, "RabbitMQ does not come back"
        else:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    for name, usual in (("events", 20_000), ("kills", 10), ("outages", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    with (
        running() as rabbit,
        tempfile.TemporaryDirectory() as folder,
        Stage(rabbit.url, Path(folder)) as stage,
    ):
        found = battle(stage, rabbit, given.events, given.kills, given.outages, given.seed)
    print(
        f"{found.events:,} events, {found.kills} workers and {found.outages} times RabbitMQ killed, in "
        f"{found.seconds:.0f} s: {len(found.lost)} lost, {found.twice:,} attempts more than needed, "
        f"{found.archived} archived"
    )
    return 1 if found.lost else 0


if __name__ == "__main__":
    sys.exit(main())
