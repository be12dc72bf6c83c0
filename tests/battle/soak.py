"""Steady load for half an hour, and nobody is hurt: does anything grow?

    make soak                                               30 minutes: Redis with native workers, and at the
                                                            same time a file with Celery's
    make soak ARGS="--leg sqlite-threads --minutes 60"      any leg of the battle; --record appends the result

Every few seconds: the memory of each worker with its pool, that of Redis, the sizes of the file and its log.
Exit code 0 when none of them grew in the second half (`growth`), everything was worked on once, and nothing
is left in the store.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.battle import report, stores
from tests.battle.fight import LEGS, Fight, Leg
from tests.battle.growth import Growth, Sample, growth
from tests.battle.verdict import Verdict
from tests.processes import resident

#: So often a sample is taken (seconds).
_EVERY = 5.0
Series = dict[str, list[Sample]]


def soak(leg: Leg, folder: Path, seconds: float, rate: float = 1.0) -> tuple[Verdict, Series]:
    """Load for so long; what was sampled meanwhile, by name."""
    series: Series = defaultdict(list)
    # Ids are not remembered after their end: they would grow by design, for as long as that is.
    with stores.opened(leg.store, folder, remembers="0s") as store:
        fight = Fight(leg, dataclasses.replace(store, hurts={}), folder, 1, seconds, rate)
        with fight.fighting() as producer:
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds:
                sizes = {f"worker {each.name}": resident(each.process.pid) for each in fight.crew}
                sizes |= {"producer": resident(producer.process.pid)} | store.sizes()
                for name, size in sizes.items():
                    series[name].append((now, size))
                while time.monotonic() < began + now + _EVERY:
                    fight.look(f"{now / 60:.1f} of {seconds / 60:g} min")
            fight.drain(producer)
        return fight.judge(), series


def table(found: list[Growth]) -> str:
    sizes = [
        (f"{each.median / 1e6:.1f}", f"{each.added / 1e6:+.2f}", f"{each.bound / 1e6:.1f}") for each in found
    ]
    rows = [f"| {each.name} | {' MB | '.join(size)} MB |" for each, size in zip(found, sizes, strict=True)]
    return "\n".join(["| | median | added in the second half | bound |", "|---|---|---|---|", *rows])


def alone(leg: Leg, minutes: float, rate: float) -> tuple[str, bool]:
    """What came of the soak of one leg, in words, and whether it was good."""
    with tempfile.TemporaryDirectory(prefix="postroom-soak-") as name:
        verdict, series = soak(leg, Path(name), minutes * 60, rate)
    found = [growth(name, samples) for name, samples in series.items()]
    growing = [each.name for each in found if each.is_growing]
    good = not growing and not verdict.complaints
    said = (
        "no growth"
        if good
        else f"growing: {', '.join(growing) or 'nothing'}; {'; '.join(verdict.complaints)}"
    )
    text = (
        f"### Soak: `{leg.name}`, {minutes:g} minutes at {rate * leg.pace[0]:g} a second\n\n"
        f"{report.machine()}. {verdict.submitted:,} tasks, {len(verdict.lost)} lost, "
        f"{len(verdict.duplicated)} ended twice: {said}.\n\n{table(found)}\n"
    )
    return text, good


def together(legs: list[Leg], minutes: float, rate: float) -> tuple[str, bool]:
    """The same of several at once: a process each, so that none is counted to another."""
    command = [sys.executable, "-m", "tests.battle.soak", "--minutes", str(minutes), "--rate", str(rate)]
    children = [
        subprocess.Popen([*command, "--leg", leg.name], stdout=subprocess.PIPE, text=True) for leg in legs
    ]
    try:
        texts = [child.communicate()[0] for child in children]
    finally:
        for child in children:
            child.terminate()
            child.wait()
    return "\n".join(texts), not any(child.returncode for child in children)


def some_legs(text: str) -> list[Leg]:
    known = {leg.name: leg for leg in LEGS}
    if not set(text.split(",")) <= known.keys():
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.battle.soak", description=__doc__)
    parser.add_argument("--leg", type=some_legs, default="redis-native,sqlite-threads", metavar="NAME,…")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0, help="times as many jobs a second")
    parser.add_argument("--record", action="store_true", help=f"append it to {report.RESULTS.name}")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nobody is left behind
    if len(given.leg) == 1:
        text, good = alone(given.leg[0], given.minutes, given.rate)
    else:
        text, good = together(given.leg, given.minutes, given.rate)
    print(text)
    if given.record:
        report.record(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
