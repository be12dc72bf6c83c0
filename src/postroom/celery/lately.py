"""What the tasks of a Celery worker took lately, for the lanes of the dashboard: see `postroom.worker.runs`.

Celery tells nobody when a task begins. But whoever looks after the leases asks its books, and what runs for
a while is found there: so a task that is over before the next look costs nothing, and is not told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from postroom.delivery import Delivery
from postroom.model import Receipt, Settlement
from postroom.staff import Run
from postroom.worker.runs import Runs

#: No worker has more tasks under way; what ended before it was seen to begin gives way beyond.
_MOST = 1_000


class Lately:
    """The runs of one worker. Threads may share it."""

    def __init__(self) -> None:
        self._runs = Runs()
        #: When work began that has not ended, on the monotonic clock.
        self._begun: dict[Receipt, float] = {}

    def begin(self, receipts: Iterable[Receipt]) -> None:
        """Work on these has begun, a moment ago."""
        self._begun.update(dict.fromkeys(receipts, time.monotonic()))
        for receipt in list(self._begun)[:-_MOST]:
            self._begun.pop(receipt, None)

    def end(self, delivery: Delivery, settlement: Settlement) -> None:
        """Whoever held it says how it ended; of what was not seen to begin, nothing is known."""
        if self._begun and (began := self._begun.pop(settlement.receipt, None)) is not None:
            self._runs.note(delivery, time.monotonic() - began, settlement)

    def told(self) -> tuple[Run, ...]:
        return self._runs.told()
