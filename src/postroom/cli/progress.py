"""A bar for work whose end is known; on stderr, never data."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from postroom.cli.meter import Meter


class Bar:
    """Told how far it is: a bar on a terminal, a line now and then in a log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._meter = Meter(what)
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)
        else:
            self._meter(done, total)
