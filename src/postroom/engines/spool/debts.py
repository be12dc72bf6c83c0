"""What Redis is still to be told by this process, and is told first of all when it is back."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from postroom.engine import Engine
from postroom.errors import Conflict, EngineUnavailable, InvalidInput
from postroom.limits import MAX_BATCH, check_name
from postroom.model import Outcome, Receipt, Settlement
from postroom.policy import Policy

log: logging.Logger = logging.getLogger(__name__)

#: The most settles that wait for Redis in one process.
MOST = 10_000
#: Settles of the last moments before an outage are repeated: a store that crashed may have lost them (s).
_REPEAT = 2.0


class Debts:
    """Settles, renewals and policies. Thread-safe; gone with the process, and then the leases run out.

    What Redis would refuse for ever is refused here: one such debt would keep everybody away from it.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Sequence[Settlement]]] = deque(maxlen=MAX_BATCH)
        self.forget()

    def forget(self) -> None:
        """Owe nothing: at the start, and in a forked child, whose deliveries are the parent's."""
        self._lock = threading.Lock()
        #: By receipt, so that a settle that is repeated is owed once.
        self._settles: dict[Receipt, Settlement] = {}
        self._renewals: dict[Receipt, int] = {}
        self._policies: dict[str, Policy] = {}
        self._repeats: dict[Receipt, Settlement] = {}
        self._recent.clear()

    def __len__(self) -> int:
        return len(self._settles)

    @property
    def pending(self) -> bool:
        return bool(self._settles or self._renewals or self._policies or self._repeats)

    # --- running into debt ------------------------------------------------------------------

    def note(self, settlements: Sequence[Settlement]) -> None:
        """These were settled just now."""
        if settlements:
            self._recent.append((time.monotonic(), settlements))

    def recall(self) -> None:
        """Redis went away: what was settled last may be lost, and is repeated."""
        with self._lock:
            recent = list(self._recent)
            self._recent.clear()
            since = recent[-1][0] - _REPEAT if recent else 0.0
            for at, settlements in recent:
                if at >= since:
                    self._repeats |= {settlement.receipt: settlement for settlement in settlements}

    def owe(self, settlements: Sequence[Settlement]) -> None:
        """Settle these later; EngineUnavailable when too many wait already."""
        for queue in {settlement.receipt.queue for settlement in settlements}:
            check_name(queue)
        with self._lock:
            new = sum(each.receipt not in self._settles for each in settlements)
            if len(self._settles) + new > MOST:
                raise EngineUnavailable(f"Redis is away, and {MOST:,} settles wait for it already")
            for settlement in settlements:
                self._settles[settlement.receipt] = settlement
                self._renewals.pop(settlement.receipt, None)

    def renew(self, receipts: Sequence[Receipt], lease: int) -> None:
        for queue in {receipt.queue for receipt in receipts}:
            check_name(queue)
        with self._lock:
            for receipt in receipts:
                if receipt not in self._settles and len(self._renewals) < MOST:
                    self._renewals[receipt] = lease

    def declare(self, queue: str, policy: Policy) -> None:
        check_name(queue)
        with self._lock:
            self._policies[queue] = policy

    # --- paying -----------------------------------------------------------------------------

    def pay(self, primary: Engine) -> None:
        """Tell all: first who lives, before anybody is taken for dead. Raises EngineUnavailable.

        What it refuses all the same is no longer owed, and complained about.
        """
        self._pay_renewals(primary)
        for book, told in ((self._repeats, False), (self._settles, True)):
            while settlements := self._some(book):
                self._pay_settles(primary, book, settlements, told)
        for queue, policy in list(self._policies.items()):
            try:
                primary.declare(queue, policy)
            except (Conflict, InvalidInput) as error:
                log.warning("%s", error, extra={"event": "spool.policy_refused", "queue": queue})
            with self._lock:
                if self._policies.get(queue) is policy:
                    del self._policies[queue]

    def _pay_renewals(self, primary: Engine) -> None:
        while self._renewals:
            with self._lock:
                first = next(iter(self._renewals.items()), None)
                if first is None:
                    return
                queue, lease = first[0].queue, first[1]
                alike = [r for r, span in self._renewals.items() if r.queue == queue and span == lease]
            try:
                primary.renew(queue, alike[:MAX_BATCH], lease)
            except InvalidInput as error:
                _complain(queue, error)
            with self._lock:
                for receipt in alike[:MAX_BATCH]:
                    self._renewals.pop(receipt, None)

    def _some(self, book: dict[Receipt, Settlement]) -> list[Settlement]:
        """Some that are owed, of one queue."""
        with self._lock:
            first = next(iter(book), None)
            alike = [each for each in book.values() if first and each.receipt.queue == first.queue]
        return alike[:MAX_BATCH]

    def _pay_settles(
        self, primary: Engine, book: dict[Receipt, Settlement], settlements: list[Settlement], told: bool
    ) -> None:
        queue, outcomes = settlements[0].receipt.queue, [Outcome.GONE] * len(settlements)
        try:
            outcomes = primary.settle(queue, settlements)
        except InvalidInput as error:
            _complain(queue, error)
        with self._lock:
            for settlement in settlements:
                book.pop(settlement.receipt, None)
        lost = [s for s, outcome in zip(settlements, outcomes, strict=True) if outcome is Outcome.LOST]
        if told and lost:
            log.warning(
                "settled too late, because Redis was away: %d messages are in other hands",
                len(lost),
                extra={"event": "delivery.lost", "ids": [each.receipt.id for each in lost[:50]]},
            )


def _complain(queue: str, error: InvalidInput) -> None:
    log.error("%s: Redis refuses what it was owed: %s", queue, error, extra={"event": "spool.debt_refused"})
