"""Postroom beside others that work through jobs in Redis, all on one server, each in one process.

They take turns, so that all meet the same load: what counts are the ratios. The server keeps nothing on
a disk, for nobody.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from bench.measure import Case, Figure, rate
from bench.stage import Stage
from bench.systems import KINDS, Nobody, System, kind_of

_US = "Postroom"
#: Those who are, with us, at the defaults of their authors; `make race` has the whole field on equal terms.
NAMES = (_US, "dramatiq", "huey", "taskiq", "streaq")
#: How often they take turns at putting in a trial.
_SLICES = 6

_PROMISES = """\
What happens to a job whose worker is killed:
  Postroom   comes back when its lease runs out, 30 s at most, by itself; whoever held it before can
             change nothing any more. A worker holds some unstarted, and those cost no attempt.
  dramatiq   comes back when a heartbeat of 60 s runs out and another worker then does some maintenance,
             which every thousandth command triggers.
  huey       is lost: it was taken out of Redis before the work began.
  taskiq     comes back after 10 minutes (RedisStreamBroker; the list broker loses it).
  streaq     comes back after 60 s.
Everybody at its defaults with one process: Postroom 1 thread, dramatiq 8, huey 1, taskiq 100 tasks, streaq
16 tasks; nobody keeps results but streaq, whose scripts do it in any case."""


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":
        return []
    names = [name for name in NAMES if importlib.util.find_spec(KINDS[name][1])]
    return [_drains(stage, names), _puts(stage, names)]


def _drains(stage: Stage, names: list[str]) -> Case:
    def trial() -> list[float]:
        rates = {name: _drained(stage, name) for name in names}
        return _compared(rates)

    figures = _figures(stage, "drain of no-ops", names)
    return Case("drain beside others", figures, trial, lambda: _notes(names))


def _puts(stage: Stage, names: list[str]) -> Case:
    def trial() -> list[float]:
        with stage.url() as url, ExitStack() as stack:
            systems = {name: _opened(name, url, stack) for name in names}
            return _compared(_put_rates(systems, stage.size(300, 50)))

    return Case("put beside others", _figures(stage, "put, one by one", names), trial)


def _figures(stage: Stage, what: str, names: list[str]) -> tuple[Figure, ...]:
    """As `_compared` gives them; without others there is nothing to compare."""
    speeds = [stage.figure(f"{what}: {name}", "/s") for name in names]
    ratio = stage.figure(f"{what}: {_US} ÷ the fastest of the others", "×")
    return (*speeds, ratio) if len(names) > 1 else tuple(speeds)


def _compared(rates: dict[str, float]) -> list[float]:
    others = [speed for name, speed in rates.items() if name != _US]
    return [*rates.values(), *([rates[_US] / max(others)] if others else [])]


def _notes(names: list[str]) -> list[str]:
    missing = ", ".join(name for name in NAMES if name not in names)
    left_out = f"Not measured, because not installed (`make bench` does that): {missing}"
    return [_PROMISES, left_out] if missing else [_PROMISES]


def _opened(name: str, url: str, stack: ExitStack) -> System:
    return stack.enter_context(closing(kind_of(name)(url, Nobody())))


def _put_rates(systems: dict[str, System], count: int) -> dict[str, float]:
    """Puts a second, by name. Who begins changes with every slice; the first warms up and is not counted."""
    order = list(systems.items())
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(1 + _SLICES):
        order.append(order.pop(0))
        for name, system in order:
            rates[name].append(rate(count, partial(system.put, count)))
    return {name: statistics.median(speeds[1:]) for name, speeds in rates.items()}


def _drained(stage: Stage, name: str) -> float:
    """Jobs a second, in a process of its own; enough of them to take a second or two."""
    count = stage.size(40_000, 2_000) if name == _US else stage.size(3_000, 300)
    with stage.url() as url:
        with ExitStack() as stack:
            _opened(name, url, stack).fill(count)
        command = [sys.executable, "-m", "bench.drainer", name, url, str(count)]
        told = subprocess.run(
            command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, timeout=120, check=True
        )
    speed: float = json.loads(told.stdout)
    return speed
