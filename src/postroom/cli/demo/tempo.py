"""What everybody in the demo agrees on: the queues, what they promise, and how long things take."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.policy import Policy

#: Starts that may fail before a message is a dead letter.
ATTEMPTS = 3
#: What fits into the queue of reports.
CAPACITY = 12
QUEUES = ("emails", "payments", "reports")
#: The queue of the Celery app; only where Celery is installed.
ORDERS = "orders"
#: Of a payment and of an order (seconds). Not shorter, or a worker on a very busy machine is taken for dead.
LEASE = 2.5


@dataclass(frozen=True, slots=True)
class Tempo:
    """How long things take, so that everything fits into `seconds`; all in seconds."""

    seconds: float

    @property
    def beat(self) -> float:
        """The time from one scene to the next, roughly."""
        return min(2.0, self.seconds / 20)

    @property
    def backoff(self) -> float:
        """The wait after the first failure; it doubles with each further one."""
        return 0.4 * self.beat

    def policies(self) -> dict[str, Policy]:
        """What each queue promises; no jitter, so that the ledger can tell when a retry is early."""
        backoff = f"2^n * {round(self.backoff * 1_000)}ms"
        return {
            "emails": Policy(max_attempts=ATTEMPTS, backoff=backoff, jitter=False),
            # Without an ack_timeout it is the lease alone that says when a silent consumer is dead.
            "payments": Policy(
                max_attempts=ATTEMPTS, backoff=backoff, jitter=False, lease=LEASE, ack_timeout=None
            ),
            # One report at a time, whoever works on it: only so is the order of urgency exact.
            "reports": Policy(max_in_flight=1, capacity=CAPACITY),
            # What the Celery transport would declare itself.
            ORDERS: Policy(lease=LEASE, ack_timeout=None, max_attempts=20),
        }
