"""What the audience sees: plain lines in a pipe; for a terminal see `live`."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, Protocol

from postroom.cli import screen
from postroom.cli.demo.checks import Check
from postroom.cli.demo.feed import Line
from postroom.stats import QueueStats

WHAT_NEXT = (
    ("postroom demo --seconds 60", "the same again, slower (in a checkout: .venv/bin/postroom)"),
    ("postroom config show", "every setting, and where its value comes from"),
    ("docs/tutorial.md", "the same things, step by step, in Python"),
)


class Picture(NamedTuple):
    """One moment: how the queues stand, and the lines that are new since the last picture."""

    queues: list[QueueStats]
    news: list[Line]
    elapsed: float
    seconds: float


class Screen(screen.Screen, Protocol):
    """What a picture is shown on."""

    def show(self, picture: Picture) -> None:
        """The next picture."""

    def end(self, picture: Picture, checks: list[Check], *, interrupted: bool) -> None:
        """The last picture, the verdicts, and what to do next; after the `with`."""


def choose() -> Screen:
    """The right screen for where stdout goes."""
    if sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", ""):
        from postroom.cli.demo.live import LiveScreen

        return LiveScreen()
    return PlainScreen()


def done(queue: QueueStats) -> int:
    return queue.counters.get("acked", 0)


def summary(checks: list[Check], interrupted: bool) -> str:
    """One sentence about all verdicts."""
    words = [check.verdict(interrupted) for check in checks]
    failed, open_ = words.count("FAIL"), len(words) - words.count("PASS") - words.count("FAIL")
    if failed:
        return f"{failed} of {len(checks)} checks failed"
    if open_:
        return f"stopped early: {words.count('PASS')} checks passed, {open_} were not reached"
    return f"all {len(checks)} checks passed"


class PlainScreen(screen.Lines):
    """Lines without colour: one for everything that happens, one a second for where things stand."""

    def __init__(self) -> None:
        self._next = 1.0

    def show(self, picture: Picture) -> None:
        for line in picture.news:
            self._print(f"{line.at:5.1f}s  {line.queue or 'story':8}  {line.text}")
        if picture.elapsed >= self._next:
            self._next = int(picture.elapsed) + 1.0
            self._print(f"{picture.elapsed:5.1f}s  {'all':8}  {_totals(picture.queues)}")

    def end(self, picture: Picture, checks: list[Check], *, interrupted: bool) -> None:
        self.show(picture)
        self._print("")
        width = max(len(check.promise) for check in checks)
        for check in checks:
            self._print(f"{check.verdict(interrupted):4}  {check.promise:{width}}  {check.evidence}".rstrip())
        self._print(f"\n{summary(checks, interrupted)}\n\nwhat next:")
        for command, words in WHAT_NEXT:
            self._print(f"  {command:28}{words}")

    def _print(self, text: str) -> None:
        print(text, flush=True)  # a pipe is read while this runs


def _totals(queues: list[QueueStats]) -> str:
    sums = {
        name: sum(getattr(queue, name) for queue in queues)
        for name in ("ready", "scheduled", "processing", "overdue", "dead")
    }
    sums["done"] = sum(map(done, queues))
    return "  ".join(f"{name} {count}" for name, count in sums.items())
