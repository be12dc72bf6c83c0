"""A worker's sign of life: renews the leases of all it holds, from a thread of its own.

A handler that computes for minutes does not stop it; the end of the process does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from postroom.delivery import Delivery
from postroom.engine import Engine
from postroom.errors import Closed
from postroom.limits import MAX_BATCH
from postroom.model import Outcome

log: logging.Logger = logging.getLogger(__name__)

#: How often it looks whether a beat is due (seconds): a lease may be shorter than the last one was.
_LOOK = 0.2
#: The lease to go by while nothing is held (ms).
_IDLE = 3_000
#: After a failure the next beat comes as soon as this (seconds): once the store is back, whoever
#: lives has a third of a lease to say so.
_RETRY = 0.5


class Heartbeat:
    """Every third of the shortest lease held, renews what `holding` names; marks what is lost."""

    def __init__(self, engine: Engine, holding: Callable[[], list[Delivery]]) -> None:
        self._engine = engine
        self._holding = holding
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="postroom-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def beat(self) -> None:
        """Renew everything once, each for the lease it was claimed with."""
        held: dict[tuple[str, int], list[Delivery]] = {}
        for delivery in self._holding():
            if delivery.lease is not None:
                held.setdefault((delivery.queue, delivery.lease), []).append(delivery)
        for (queue, lease), deliveries in held.items():
            for first in range(0, len(deliveries), MAX_BATCH):
                self._renew(queue, lease, deliveries[first : first + MAX_BATCH])

    def _renew(self, queue: str, lease: int, deliveries: list[Delivery]) -> None:
        receipts = [delivery.receipt for delivery in deliveries]
        outcomes = self._engine.renew(queue, receipts, lease)
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            # Gone is no alarm: it was settled while this heartbeat was on its way.
            if outcome is Outcome.LOST and not delivery.settled:
                delivery.lost = True
                log.warning(
                    "lease lost: %r", delivery, extra={"event": "delivery.lost", **delivery.log_extra}
                )

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(min(_LOOK, self._third() / 4)):
            now = time.monotonic()
            if now < last + self._third():
                continue
            try:
                self.beat()
                last = now
            except Closed:
                return
            except Exception as error:  # whatever an engine raises, the heart goes on
                extra = {"event": "heartbeat.failed", "error": str(error)}
                log.warning("heartbeat failed: %s", error, extra=extra)
                self._stop.wait(min(_RETRY, self._third()))

    def _third(self) -> float:
        """A third of the shortest lease held (seconds)."""
        leases = [delivery.lease for delivery in self._holding() if delivery.lease is not None]
        return min(leases, default=_IDLE) / 3_000
