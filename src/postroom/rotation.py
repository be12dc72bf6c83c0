"""The order between queues: which one a consumer asks first. It belongs to the consumer, not to a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from postroom.errors import InvalidInput
from postroom.limits import check_name

Order = Literal["round_robin", "listed", "priority", "weighted"]
ORDERS = ("round_robin", "listed", "priority", "weighted")


class Rotation:
    """Says in which order to ask, and is told who gave.

    round_robin   whoever gave goes to the end: no queue with work starves
    listed        always in the order given: an earlier queue may starve a later one
    priority      the queue whose next message is the most urgent first; equals take turns
    weighted      by share: a queue of weight 3 comes first three times as often as one of weight 1
    """

    def __init__(
        self,
        queues: Sequence[str],
        order: Order = "round_robin",
        *,
        weights: Mapping[str, int] | None = None,
        urgency: Callable[[str], int] | None = None,
    ) -> None:
        if order not in ORDERS:
            raise InvalidInput(f"order: {order!r} is not one of {', '.join(ORDERS)}")
        if isinstance(queues, str):
            raise InvalidInput(f"queues: expected a list of names, not the text {queues!r:.80}")
        if not queues:
            raise InvalidInput("queues: name at least one")
        self.queues: list[str] = [check_name(queue) for queue in dict.fromkeys(queues)]
        self._order = order
        self._urgency = urgency
        self._weights = {queue: (weights or {}).get(queue, 1) for queue in self.queues}
        if min(self._weights.values()) < 1:
            raise InvalidInput("weights: each must be a whole number from 1")
        self._credit = dict.fromkeys(self.queues, 0)

    def begin_at(self, turn: int) -> None:
        """Join a round robin that has had so many turns already."""
        if self._order == "round_robin":
            first = turn % len(self.queues)
            self.queues = self.queues[first:] + self.queues[:first]

    def sequence(self, urgency: Callable[[str], int] | None = None) -> list[str]:
        """All queues, in the order in which to ask them now; `urgency` if it is not the usual one."""
        if len(self.queues) == 1:
            return self.queues
        if self._order == "priority" and (urgency := urgency or self._urgency):
            return sorted(self.queues, key=urgency, reverse=True)
        if self._order == "weighted":
            return sorted(
                self.queues, key=lambda queue: self._credit[queue] + self._weights[queue], reverse=True
            )
        return list(self.queues)

    def gave(self, queue: str, count: int = 1) -> None:
        """This queue gave something: the next turn is another's. By shares, `count` says how much."""
        if self._order in ("round_robin", "priority"):  # by priority: among equals
            self.queues.remove(queue)
            self.queues.append(queue)
        elif self._order == "weighted":
            # Everybody earns its weight, whoever gave pays the sum: shares come out exact.
            for name, weight in self._weights.items():
                self._credit[name] += count * weight
            self._credit[queue] -= count * sum(self._weights.values())
