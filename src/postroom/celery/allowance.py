"""How much of a queue a worker may have in flight: by its share in the matrix, and by the queue's breaker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.celery.options import Breakers
from postroom.celery.presence import begun_tags
from postroom.limits import MAX_BATCH

if TYPE_CHECKING:
    from postroom.celery.office import Office

#: Nobody tells when a task that was acked early is over: where it counts, that is looked for (seconds).
_EARLY = 0.1
#: A queue whose breaker is open is looked at again at least this often (seconds).
_BREAKER = 1.0


class Allowance:
    """Counts what one office holds. Threads may share it."""

    def __init__(self, office: Office, breakers: Breakers) -> None:
        self._office = office
        self._breakers = breakers
        #: Acked before its task ran, by tag: its queue, if that has a limit to which it counts.
        self._early: dict[str, str] = {}

    @property
    def breakers(self) -> dict[str, str]:
        """The name of the breaker of each queue that has one."""
        return {queue: breaker.name for queue, breaker in self._breakers.items()}

    def space(self, queue: str) -> int:
        """How many more of this queue may be in flight here."""
        breaker = self._breakers.get(queue)
        limits = [self._share(queue), breaker.limit() if breaker else None]
        given = [limit for limit in limits if limit is not None]
        return max(0, min(given) - self._in_flight(queue)) if given else MAX_BATCH

    def look_again(self, queue: str) -> float | None:
        """How soon (seconds) there may be space without anybody telling; None: an ack will tell."""
        if queue in list(self._early.values()):
            return _EARLY
        breaker = self._breakers.get(queue)
        if breaker is None or breaker.limit() is None:
            return None
        return min(breaker.retry_after() or _BREAKER, _BREAKER)

    def note_early(self, tag: str, queue: str) -> None:
        """This delivery is acked, and its task begins: it is in flight until that is over."""
        if queue in self._breakers or self._share(queue) is not None:
            self._early[tag] = queue

    def note_failed(self, queue: str) -> None:
        """Work that did not succeed shows that a child of the pool may have found or made a breaker open.

        Asks nothing: it may be called by a signal handler that has interrupted a call to the store.
        """
        if breaker := self._breakers.get(queue):
            breaker.doubt()

    def _share(self, queue: str) -> int | None:
        share = self._office.room.config.share(queue)
        return None if share.concurrency is None else share.concurrency + (share.prefetch or 0)

    def _in_flight(self, queue: str) -> int:
        noted = set(self._early)  # before looking: whatever is noted has begun
        for tag in noted - begun_tags() if noted else ():
            self._early.pop(tag, None)
        held = sum(delivery.queue == queue for delivery in list(self._office.held.values()))
        return held + list(self._early.values()).count(queue)
