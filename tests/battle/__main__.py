"""The battle: every store with native workers and Celery's, under load, while everything is hurt.

    make battle                                     all legs, 50 minutes of load, 300,000 tasks, 500 kills
    make battle ARGS="--only redis --minutes 5"     legs whose name has these words, such as sqlite-native
    make battle ARGS="--seed 7 --record"            other dice; append the tables to the documentation
    make battle ARGS="--only rabbitmq-prefork --minutes 5 --jobs 20000 --blows hard=10,restart=2"
                                                    so many events, ten workers and twice RabbitMQ by kill -9

A leg that is finished is not fought again: an interrupted run goes on where it was when the same command
is given again (`--fresh`: from the beginning). What a leg that went wrong has written down is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.battle import report
from tests.battle.fight import LEGS, Fight, Leg
from tests.battle.stores import MOUNTS, can_mount, opened

_TAME = "**No disk was full**: mounts of its own are not allowed there.\n"
STATE = Path(__file__).parents[2] / "build" / "battle"


class Campaign:
    """A run: its settings, and the folder that says which of its legs are finished."""

    def __init__(
        self, state: Path, legs: Sequence[Leg], *, minutes: float, seed: int, rate: float = 1.0,
        jobs: int = 0, blows: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.legs, self.seed, self.rate, self.jobs, self.blows = legs, seed, rate, jobs, blows or {}
        # Other settings are another run, and so is another state of the code.
        counted = "".join(f"-{count}{kind}" for kind, count in (("", jobs), *self.blows.items()) if count)
        self.folder = (
            state / f"{report.tree()}-seed-{seed}-{minutes / len(legs) * 60:.0f}s-x{rate:g}{counted}"
        )
        self.seconds = minutes * 60 / len(legs)

    def results(self) -> dict[str, report.Figures]:
        done = ((leg.name, self._result(leg)) for leg in self.legs)
        return {name: json.loads(path.read_text()) for name, path in done if path.exists()}

    def _result(self, leg: Leg) -> Path:
        return self.folder / f"{leg.name}.json"

    def begin_anew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self) -> None:
        """Fight what is not finished. A leg that breaks off is none, and does not keep the others away."""
        done = self.results()
        for leg in self.legs:
            if leg.name not in done:
                try:
                    self._fight(leg)
                except Exception:
                    say(f"{leg.name} broke off:\n{traceback.format_exc()}")

    def _fight(self, leg: Leg) -> None:
        say(f"{leg.name}, {self.seconds:.0f} s, seed {self.seed}")
        field = self.folder / leg.name
        shutil.rmtree(field, ignore_errors=True)
        field.mkdir(parents=True)
        with opened(leg.store, field) as store:
            fight = Fight(
                leg, store, field, self.seed, self.seconds, self.rate, jobs=self.jobs, blows=self.blows
            )
            found = report.figures(leg, fight.run(), fight.faults)
        draft = self._result(leg).with_suffix(".draft")
        draft.write_text(json.dumps(found, indent=1))
        draft.rename(self._result(leg))  # as a whole, or not at all
        say(f"{leg.name}: {'; '.join(found['complaints']) or 'good'}")
        if not found["complaints"]:
            shutil.rmtree(field)

    def report(self, command: str) -> str:
        results = self.results()
        tame = any(leg.store == "sqlite" for leg in self.legs) and not can_mount()
        return (
            f"### `{command}`\n\nSeed {self.seed}, {self.seconds:.0f} s of load a leg; {report.machine()}.\n"
            f"{_TAME if tame else ''}"
            f"{report.summary(self.legs, results)}\n\n{report.tables(self.legs, results)}\n"
        )

    def is_good(self) -> bool:
        """All legs are finished, and none of ours has a complaint; the comparison may have any."""
        results = self.results()
        return all(
            leg.name in results and (leg.store == "stock" or not results[leg.name]["complaints"])
            for leg in self.legs
        )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def mount_privately() -> None:
    """Begin anew where a mount is seen by nobody else, if that is allowed here: for a disk that is full."""
    if MOUNTS in os.environ:
        return
    unshare = ["unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"no mounts of one's own here, so no disk will be full: {error}")
        return
    os.environ[MOUNTS] = "yes"
    os.execvp(unshare[0], [*unshare, sys.executable, "-m", "tests.battle", *sys.argv[1:]])


def counted(text: str) -> dict[str, int]:
    """`hard=10,restart=2`, as a number for each."""
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(count.isdigit() for _, _, count in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not like hard=10,restart=2")
    return {kind: int(count) for kind, _, count in parts}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.battle", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--only", default="", help="words, by commas; the name of a leg must have one of them"
    )
    parser.add_argument("--minutes", type=float, default=50.0, help="of load, in all legs together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.1, help="times as many jobs a second")
    parser.add_argument("--jobs", type=int, default=0, help="so many in each leg, however long that takes")
    parser.add_argument(
        "--blows", type=counted, default={}, help="so many of each, such as hard=10,restart=2"
    )
    parser.add_argument("--state", type=Path, default=STATE, help="the folder of what is finished")
    parser.add_argument("--fresh", action="store_true", help="forget what is finished")
    parser.add_argument("--record", action="store_true", help=f"append the tables to {report.RESULTS.name}")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nobody is left behind
    words = [word for word in given.only.split(",") if word]
    legs = [leg for leg in LEGS if not words or any(word in leg.name for word in words)]
    if not legs:
        parser.error(f"no leg has any of these words; there are {', '.join(leg.name for leg in LEGS)}")
    mount_privately()
    campaign = Campaign(
        given.state, legs, minutes=given.minutes, seed=given.seed, rate=given.rate, jobs=given.jobs,
        blows=given.blows,
    )  # fmt: skip
    if given.fresh:
        campaign.begin_anew()
    campaign.run()
    arguments = [word for word in sys.argv[1:] if word not in ("--record", "--fresh")]
    text = campaign.report(f'make battle ARGS="{" ".join(arguments)}"' if arguments else "make battle")
    print(text)
    if given.record:
        report.record(text)
    return 0 if campaign.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
