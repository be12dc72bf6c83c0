"""How measuring is done: every case once, then every case again, so that noise hits all alike.

Machines are shared and loads drift. A round takes one trial of each case; what is compared is
compared within a round, and a figure is summed up over the rounds, by its median unless it says
otherwise, and shown with its extremes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Target(NamedTuple):
    """What a figure should reach; information, not a test."""

    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    unit: str
    target: Target | None = None
    #: One value for all rounds. A count of what must not happen takes `max`: no round may hide it.
    summary: Callable[[Sequence[float]], float] = statistics.median


@dataclass(frozen=True)
class Case:
    """Something to measure. A trial gives one value for each figure, in their order."""

    name: str
    figures: tuple[Figure, ...]
    trial: Callable[[], Sequence[float]]
    #: What the table cannot say in numbers; asked once, after the last round.
    notes: Callable[[], list[str]] = list
    #: What takes its time and is needed once, before the first round.
    prepare: Callable[[], object] = list


@dataclass
class Result:
    """A case, and what every round gave for each of its figures."""

    case: Case
    values: list[Sequence[float]] = field(default_factory=list)
    crash: str = ""

    def of(self, index: int) -> list[float]:
        return [values[index] for values in self.values]


def run(cases: Sequence[Case], repeats: int, seconds: float, say: Callable[[str], None]) -> list[Result]:
    """Up to `repeats` rounds, fewer when another one like the last would not end within `seconds`.

    A case that raises is told with its traceback and left out from then on.
    """
    results = [Result(case) for case in cases]
    began = time.monotonic()
    for result in results:
        _guarded(result, result.case.prepare)
    last = 0.0
    for number in range(1, repeats + 1):
        round_began = time.monotonic()
        if round_began - began + last > seconds:
            say(f"the time is up after {number - 1} of {repeats} rounds")
            break
        for result in results:
            if not result.crash:
                say(f"round {number} of {repeats}: {result.case.name}")
                _try(result)
        last = time.monotonic() - round_began
    return results


def _try(result: Result) -> None:
    # What other cases keep must not make this one's collections slower: frozen, it is not looked at.
    gc.collect()
    gc.freeze()
    values = _guarded(result, result.case.trial)
    if values is not None:
        assert len(values) == len(result.case.figures)
        result.values.append(values)


def _guarded(result: Result, work: Callable[[], T]) -> T | None:
    """What the work gives; None if it crashed."""
    try:
        return work()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        result.crash = f"{type(error).__name__}: {error}"
        return None


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second, when `work` does `count`."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many per cent of them do not exceed; always one that was measured."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def wait_until(done: Callable[[], bool], seconds: float) -> None:
    """Look until it is so; TimeoutError when it takes longer than that."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {seconds:g} s")
        time.sleep(0.01)
