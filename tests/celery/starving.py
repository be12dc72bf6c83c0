"""Whether the machine had time for us: a bound in seconds is meant for one that has.

with Beat() as beat:
    began = time.time()
    ...
    assert time.time() - began - beat.lost(began, time.time()) < 2
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

#: How often it looks whether it gets any time, and what is too long for that (seconds): as in the battle.
_BEAT, _SLOW = 0.005, 0.01


class Beat:
    """Notes, from its beginning to its end, when this process got no time."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._slow: list[tuple[float, float]] = []
        self._last = time.time()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            time.sleep(_BEAT)
            now = time.time()
            if now - self._last > _SLOW:
                self._slow.append((self._last, now))
            self._last = now

    def lost(self, since: float, until: float) -> float:
        """How much of this span the machine gave to somebody else (seconds, of the wall clock)."""
        return sum(max(0.0, min(over, until) - max(began, since)) for began, over in list(self._slow))
