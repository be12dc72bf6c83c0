"""What a channel has handed out: how much more it may, and what an ack or a reject means.

Deliveries belong to the office, so an ack works on a channel that was closed long ago.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

from postroom.celery.presence import keep_in_sight, worker_state
from postroom.model import Failure, Verb

if TYPE_CHECKING:
    from postroom.celery.channel import Channel
    from postroom.delivery import Delivery

#: With an unlimited prefetch this many are claimed at once.
_UNLIMITED = 100
_REQUEUED = Failure(type="Requeued", text="rejected, to be tried again")
#: What a worker looks for in the headers of every message, and says of one that has no such thing.
_NO_TASK = ("task",)


class QoS(virtual.QoS):
    """The prefetch of one channel."""

    #: The office hands everything back when it closes; nothing is left to a finalizer.
    restore_at_shutdown = False
    prefetch_count: int

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._on_collect.cancel()
        self._office = channel.office
        #: Claimed for this channel, not yet handed to a consumer.
        self.claimed: deque[tuple[str, str, Delivery]] = deque()

    # --- how much more ----------------------------------------------------------------------

    @property
    def out(self) -> int:
        """What consumers have and have not settled."""
        return len(self._delivered) - len(self._dirty)

    def space(self, *, looping: bool) -> int:
        """How many to claim now; waits until half of the prefetch is free, unless work may run dry."""
        if "can_consume" in vars(self):  # worker_disable_prefetch: one by one, while a hand is free
            return int(self.can_consume() and not self.claimed)
        most = self.prefetch_count
        if not most:
            return 0 if self.claimed else (_UNLIMITED if looping else 1)
        out = self.out + len(self.claimed)
        free = most - out
        if free <= 0 or free >= most / 2:
            return max(0, free)
        state = worker_state()
        begun = len(state.active_requests) if state is not None else 0
        # Fewer in reserve than under way: the hands that finish next must find something.
        return free if out - begun < max(1, begun) else 0

    def space_at_all(self) -> int:
        """How many could be claimed without waiting for half."""
        if "can_consume" in vars(self) or not self.prefetch_count:
            return self.space(looping=True)
        return max(0, self.prefetch_count - self.out - len(self.claimed))

    # --- how it ends ------------------------------------------------------------------------

    def ack(self, delivery_tag: str) -> None:
        office = self._office
        delivery = office.held.get(delivery_tag)
        state = worker_state()
        # Acked while it still runs: an early ack.
        if (
            state is not None
            and delivery is not None
            and (self._told(delivery_tag, "id") or delivery.correlation_id) in state.requests
        ):
            office.ack_early(delivery_tag)
        else:
            office.ack(delivery_tag)
        self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if requeue:
            self._office.settle(delivery_tag, Verb.RETRY, _REQUEUED)
        else:
            delivery = self._office.held.get(delivery_tag)
            task = self._told(delivery_tag, "task") or (delivery.kind if delivery else "")
            self._office.settle(delivery_tag, Verb.BURY, _rejection(task))
        self._quick_ack(delivery_tag)

    def _told(self, delivery_tag: str, header: str) -> str:
        """A name as Celery knows it: a delivery has room for less. "" if nobody has the message any more."""
        message = self._delivered.get(delivery_tag)
        return "" if message is None else str(message.headers.get(header) or "")

    def restore_unacked(self) -> list[Any]:
        """Hand back all that is not acked (`basic.recover`)."""
        self._flush()
        self._office.release([*self._delivered, *(tag for _, tag, _ in self.claimed)])
        self._delivered.clear()
        self.claimed.clear()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self.restore_unacked()

    def let_go(self, keep: set[str]) -> None:
        """The channel closes: hand back what nobody works on."""
        self._flush()
        claimed = [tag for _, tag, _ in self.claimed]
        self.claimed.clear()
        self._office.release([*claimed, *(tag for tag in self._delivered if tag not in keep)])

    def give_up(self) -> set[str]:
        """The connection is lost: what was handed out, which is from now on for others to know of."""
        self._flush()
        keep_in_sight(self._delivered)
        tags = set(self._delivered)
        self._delivered.clear()  # else nobody could tell who else has them
        return tags


def _rejection(task: str) -> Failure:
    """Why a message is rejected: the error that is being handled, if there is one."""
    error = sys.exc_info()[1]
    if isinstance(error, KeyError) and error.args == (task,):  # how a worker looks its tasks up
        return Failure(type="NotRegistered", text=f"this worker has no task {task}")
    if isinstance(error, KeyError) and not task and error.args == _NO_TASK:
        return Failure(type="InvalidTaskError", text="it is no task: its headers name none")
    return Failure.of(error) if error else Failure(type="Rejected", text="rejected by its consumer")
