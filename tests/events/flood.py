"""A service that fails at thousands of events, and what that does to the others: `make oldest` runs it.

    python -m tests.events.flood --events 10000

Every event of a flood fails in one service and again at each retry. Meanwhile healthy events come to the same
worker, a second service gets the same flood without failing, and both memories are watched.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.events.rabbit import Rabbit, running
from tests.events.stage import Stage
from tests.processes import resident

#: A healthy event every so often, while the flood is on (s).
_PAUSE = 0.25
#: How long a flood may take before the run is given up (s).
_PATIENCE = 600.0
#: What `main` asks for: delay of healthy events (s), and growth of memory (MB).
#: A child of the pool has about 80 MB of exceptions before Python's collector looks at them, flood or not.
MOST_DELAY, MOST_WORKER, MOST_BROKER = 2.0, 250, 250


@dataclass
class Flood:
    """What happened. Delays in seconds, memory in MB."""

    seconds: float = 0.0
    #: How long each healthy event took to its handler, sorted.
    delays: list[float] = field(default_factory=list)
    #: How often the failing service tried each event, and the other one.
    tries: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    worker_growth: int = 0
    broker_growth: int = 0

    @property
    def p95(self) -> float:
        return self.delays[int(len(self.delays) * 0.95)]


def flood(stage: Stage, rabbit: Rabbit, events: int, rounds: int) -> Flood:
    """Publish so many failing events, and wait until each was tried so often."""
    worker = stage.worker("billing", "--concurrency", "2")
    stage.worker("mailing")
    stage.publish("shop.stock.new", "warm")
    stage.until(lambda: stage.lines("count", "billing"))
    before = memory(worker.process.pid), memory(rabbit.pid)
    begin, found = time.monotonic(), Flood()
    with stage.shop.publisher.window():
        for number in range(events):
            stage.publish("shop.order.placed", number, fail_in=stage.name("billing"))
    sent = _until_tried(stage, events * rounds)
    stage.until(lambda: len(stage.lines("count", "billing")) == sent + 1, _PATIENCE)
    stage.until(lambda: len(stage.lines("placed", "mailing")) >= events, _PATIENCE)
    found.worker_growth = memory(worker.process.pid) - before[0]
    found.broker_growth = memory(rabbit.pid) - before[1]
    found.delays = sorted(
        line["at"] - float(line["item"]) for line in stage.lines("count", "billing") if line["item"] != "warm"
    )
    found.tries = Counter(line["number"] for line in stage.lines("placed", "billing"))
    found.others = Counter(line["number"] for line in stage.lines("placed", "mailing"))
    found.seconds = time.monotonic() - begin
    return found


def _until_tried(stage: Stage, attempts: int) -> int:
    """Publish healthy events until the failing ones were tried so often in all; how many they were."""
    end, sent = time.monotonic() + _PATIENCE, 0
    name, seen, tail = stage.name("billing"), 0, b""
    with stage.ledger.open("rb") as ledger:
        while seen < attempts:
            assert time.monotonic() < end, f"{seen} of {attempts} attempts in {_PATIENCE:g} s"
            stage.publish("shop.stock.new", str(time.time()))
            sent += 1
            time.sleep(_PAUSE)
            *lines, tail = (tail + ledger.read()).split(b"\n")
            seen += sum(name.encode() in line and b'"placed"' in line for line in lines)
    return sent


def memory(group: int) -> int:
    """In MB."""
    return resident(group) // 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=10_000)
    events = parser.parse_args().events
    with (
        running() as rabbit,
        tempfile.TemporaryDirectory() as folder,
        Stage(rabbit.url, Path(folder)) as stage,
    ):
        found = flood(stage, rabbit, events, rounds=2)
    print(
        f"{events:,} events failed {sum(found.tries.values()):,} times in {found.seconds:.0f} s; "
        f"healthy ones: {len(found.delays)}, p95 {found.p95:.3f} s, most {found.delays[-1]:.3f} s; "
        f"worker {found.worker_growth:+d} MB, RabbitMQ {found.broker_growth:+d} MB"
    )
    good = (
        found.p95 < MOST_DELAY
        and found.worker_growth < MOST_WORKER
        and found.broker_growth < MOST_BROKER
        and found.others == Counter(range(events))
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
