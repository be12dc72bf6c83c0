"""Signs of life from whatever takes longer than a second; on stderr, so never part of the data."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

#: Silent for so long; then on a terminal one line that changes, in a log a line now and then (seconds).
_SILENT, _ON_TERMINAL, _IN_LOG = 1.0, 0.2, 5.0


class Meter:
    """Told how far it is as often as one likes, it says so now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._next = time.monotonic() + _SILENT
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        self.tell(f"{done:,} of {total:,}" if total else f"{done:,}")

    def tell(self, how_far: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_ON_TERMINAL if self._live else _IN_LOG)
        text = f"{self._what}: {how_far}"
        sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """The line goes before something else is said."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[K")


def counted(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, and after a second how many of them there have been: "put: 12,000"."""
    meter = Meter(what)
    for count, item in enumerate(items, start=1):
        yield item
        meter(count)
    meter.clear()


@contextlib.contextmanager
def patience(what: str) -> Iterator[None]:
    """For one call that tells nothing before it is over: after a second, how long it has taken."""
    meter, over, began = Meter(what), threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(_ON_TERMINAL):
            meter.tell(f"{time.monotonic() - began:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        meter.clear()


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
