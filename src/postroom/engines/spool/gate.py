"""The gate in front of the spool: shut for a moment while the last of it moves, so that order is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: A put waits no longer than this for the gate (seconds): order is worth a moment, not an outage.
_PATIENCE = 0.5


class Gate:
    """Puts go through it together; whoever shuts it waits until none is under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._shut, _PATIENCE)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: not self._inside, _PATIENCE)
        try:
            yield
        finally:
            with self._changed:
                self._shut = False
                self._changed.notify_all()

    def forked(self) -> None:
        self._changed, self._inside, self._shut = threading.Condition(), 0, False
