"""Signs of life from whatever takes longer than a second; on stderr, so never part of the data."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: Silent for so long; then on a terminal one line that changes, in a log a line now and then (seconds).
_SILENT, _ON_TERMINAL, _IN_LOG = 1.0, 0.2, 5.0


def counted(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, and after a second how many of them there have been: "put: 12,000"."""
    live, shown = sys.stderr.isatty(), False
    next_sign = time.monotonic() + _SILENT
    for count, item in enumerate(items, start=1):
        yield item
        if time.monotonic() >= next_sign:
            next_sign = time.monotonic() + (_ON_TERMINAL if live else _IN_LOG)
            _sign(f"{what}: {count:,}", live)
            shown = True
    if live and shown:
        sys.stderr.write("\r\x1b[K")


def _sign(text: str, live: bool) -> None:
    sys.stderr.write(f"\r\x1b[K{text}" if live else f"{text}\n")
    sys.stderr.flush()
