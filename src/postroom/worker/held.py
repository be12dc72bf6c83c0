"""What a worker has claimed and not begun: a line for each queue, and how much that is in all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from postroom.delivery import Delivery


class Held:
    """In the order of the claims. How much is held is asked for with every queue, so it is counted."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._lines: dict[str, deque[Delivery]] = {queue: deque() for queue in queues}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, queue: str) -> Sequence[Delivery]:
        return self._lines[queue]

    def add(self, queue: str, delivery: Delivery) -> None:
        self._lines[queue].append(delivery)
        self._count += 1

    def take(self, queue: str) -> Delivery:
        """The first of a line."""
        self._count -= 1
        return self._lines[queue].popleft()

    def give_up(self, queue: str) -> Delivery:
        """The last of a line."""
        self._count -= 1
        return self._lines[queue].pop()

    def give_up_beyond(self, keep: int) -> Iterator[Delivery]:
        """The last of the lines, until no more than so many are held."""
        for queue, line in self._lines.items():
            while line and self._count > keep:
                yield self.give_up(queue)

    def put_back(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """What was taken last, in its order."""
        self._lines[queue].extendleft(reversed(deliveries))
        self._count += len(deliveries)
