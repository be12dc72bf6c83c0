"""Ctrl-C and its relatives, noted instead of obeyed: there are processes to end and a folder to remove."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class Signals:
    """While this is entered the first signal is only noted; any further one is a KeyboardInterrupt."""

    def __init__(self) -> None:
        #: The signal that came first; 0 if none did.
        self.noted: int = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # nohup means it
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = number
