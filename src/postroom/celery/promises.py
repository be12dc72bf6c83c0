"""What the queues that this process consumes promise, said again when the store has lost it.

A Redis without persistence that is restarted, or a replica that was behind, has forgotten it while workers
go on. The first put makes the queue anew, with the promises of one that nobody declared: those would take
every task from its worker after half a minute. The exchanges are forgotten too, and what is sent to them
would go nowhere; they are looked at by themselves, as somebody else may have declared the queue by then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from postroom.limits import MAX_BATCH
from postroom.policy import Policy

if TYPE_CHECKING:
    from postroom.celery.office import Office

#: How often it is asked whether the store still knows the exchanges (seconds).
_LOOK_EVERY = 5.0


class Promises:
    """Those of one office. Threads may share it."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._consumed: set[str] = set()
        #: What each queue was last seen to promise. The room asks the store every few seconds.
        self._seen: dict[str, Policy] = {}
        self._looked_at = time.monotonic()

    def watch(self, queue: str) -> None:
        """This process consumes the queue."""
        self._consumed.add(queue)

    def of(self, queue: str) -> Policy:
        """What a queue promises now."""
        policy = self._office.room.policy(queue)
        if policy is not self._seen.get(queue):
            if queue in self._consumed:
                policy = self._looked_at_again(queue, policy)
            self._seen[queue] = policy
        return policy

    def look_after(self) -> None:
        """Look at the queues of which something is held: nobody may be claiming from them."""
        for queue in {delivery.queue for delivery in list(self._office.held.values())}:
            self.of(queue)

    def doubt(self) -> None:
        """The store was away, or does not know what it gave us: ask it before the next claim."""
        self._looked_at = -_LOOK_EVERY
        for queue in list(self._consumed):
            self._office.room.forget_policy(queue)

    def _looked_at_again(self, queue: str, policy: Policy) -> Policy:
        now, office = time.monotonic(), self._office
        if self._is_nobodys(queue, policy):
            self._say_again(queue)
            policy = office.room.policy(queue)
            self.doubt()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            office.exchanges.say_what_is_missing()
        return policy

    def _is_nobodys(self, queue: str, policy: Policy) -> bool:
        """Whether this is what a queue promises that was never declared by a door for Celery."""
        config = self._office.room.config
        ours = self._office.options.policy(config, queue)
        return policy in (Policy(), config.policy(queue)) and policy != ours

    def _say_again(self, queue: str) -> None:
        office = self._office
        office.forget(queue)
        office.declare(queue)
        # What was claimed meanwhile has the ack_timeout of nobody's queue, unless it is counted anew.
        held = [one for tag, one in list(office.held.items()) if tag not in office.unstarted]
        begun = [delivery for delivery in held if delivery.queue == queue]
        for first in range(0, len(begun), MAX_BATCH):
            some = begun[first : first + MAX_BATCH]
            receipts = [delivery.receipt for delivery in some]
            office.room.engine.extend(queue, receipts, lease=some[0].lease or office.options.lease)
