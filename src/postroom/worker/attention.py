"""Whether a worker may have missed a ring: one that is always busy never waits for any."""

from __future__ import annotations

import time

#: Who could not hear its rings for this long asks all its queues (seconds).
_DEAF = 0.1
#: And then works for so many times as long as that took: who has very many queues must do something else too.
_TIMES = 4


class Attention:
    """When it was last sure to have heard everything."""

    def __init__(self) -> None:
        self._sure_at = time.monotonic()
        self._limit = _DEAF
        self._asking_since: float | None = None

    def heard(self) -> None:
        """It waited for rings."""
        self._sure_at = time.monotonic()

    def is_lost(self) -> bool:
        """Whether to ask all queues now, or some would starve; `regained` says that it has."""
        now = time.monotonic()
        if now - self._sure_at <= self._limit:
            return False
        self._asking_since = now
        return True

    def regained(self) -> None:
        """A round is over. Counted from its end: from its begin, a long one would be followed by the next."""
        if self._asking_since is not None:
            self.heard()
            self._limit = max(_DEAF, _TIMES * (self._sure_at - self._asking_since))
            self._asking_since = None
