"""The two orders a queue is kept in: by rank (what to claim next) and by time (what falls due next).

Both delete lazily: an entry that no longer stands is passed over when it surfaces, and once such
entries outnumber the standing ones they are swept out, so neither ever outgrows what it indexes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

_SLACK = 64

Ranked = tuple[int, str]
Timed = tuple[int, int, str]


class RankIndex:
    """Ready messages by (order, id): one lane per priority level.

    New messages arrive in order and go to the end of their lane's queue in O(1); those that come
    back to an earlier place (released, reclaimed) go to a small heap beside it.
    """

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._lanes: dict[int, _Lane] = {}
        self._entries = 0

    def __len__(self) -> int:
        return len(self._order)

    def add(self, id: str, level: int, order: int) -> None:
        self._order[id] = order
        self._entries += 1
        lane = self._lanes.get(level)
        if lane is None:
            lane = self._lanes[level] = _Lane()
        entry, arrived = (order, id), lane.arrived
        if arrived and entry < arrived[-1]:
            heapq.heappush(lane.returned, entry)
        else:
            arrived.append(entry)

    def discard(self, id: str) -> None:
        if self._order.pop(id, None) is not None and self._entries > 2 * len(self._order) + _SLACK:
            self._compact()

    def first(self) -> Ranked | None:
        """The most urgent message, without taking it."""
        first: Ranked | None = None
        for level in tuple(self._lanes):
            head = self._head(level)
            if head and (first is None or head < first):
                first = head
        return first

    def pop(self, first: Ranked, level: int) -> None:
        """Take the message that `first` has just returned."""
        self._lanes[level].pop(first)
        self._entries -= 1
        del self._order[first[1]]

    def heads(self) -> list[str]:
        """The first message of each level."""
        return [head[1] for lane in list(self._lanes) if (head := self._head(lane))]

    def __iter__(self) -> Iterator[Ranked]:
        return ((order, id) for id, order in self._order.items())

    def _head(self, level: int) -> Ranked | None:
        lane = self._lanes[level]
        while head := lane.head():
            if self._order.get(head[1]) == head[0]:
                return head
            lane.pop(head)
            self._entries -= 1
        del self._lanes[level]
        return None

    def _compact(self) -> None:
        for lane in self._lanes.values():
            lane.keep(self._order)
        self._entries = sum(map(len, self._lanes.values()))


class _Lane:
    """The entries of one level, smallest first."""

    def __init__(self) -> None:
        self.arrived: deque[Ranked] = deque()
        self.returned: list[Ranked] = []

    def __len__(self) -> int:
        return len(self.arrived) + len(self.returned)

    def head(self) -> Ranked | None:
        if self.returned and not (self.arrived and self.arrived[0] < self.returned[0]):
            return self.returned[0]
        return self.arrived[0] if self.arrived else None

    def pop(self, head: Ranked) -> None:
        """Take what `head` has just returned."""
        if self.returned and self.returned[0] is head:
            heapq.heappop(self.returned)
        else:
            self.arrived.popleft()

    def keep(self, order: dict[str, int]) -> None:
        self.arrived = deque(entry for entry in self.arrived if order.get(entry[1]) == entry[0])
        self.returned = [entry for entry in self.returned if order.get(entry[1]) == entry[0]]
        heapq.heapify(self.returned)


class TimeIndex:
    """Messages by the instant at which something happens to them; ties by rank, then by id."""

    def __init__(self) -> None:
        self._heap: list[Timed] = []
        self._standing: dict[str, Timed] = {}

    def __len__(self) -> int:
        return len(self._standing)

    def at(self, id: str) -> int | None:
        entry = self._standing.get(id)
        return entry[0] if entry else None

    def set(self, id: str, at: int, rank: int = 0) -> None:
        entry = (at, rank, id)
        self._standing[id] = entry
        heapq.heappush(self._heap, entry)
        self._compact()

    def discard(self, id: str) -> None:
        self._standing.pop(id, None)
        self._compact()

    def first(self) -> int | None:
        """The earliest instant, if there is any."""
        heap = self._heap
        while heap and self._standing.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_until(self, now: int, limit: int) -> list[str]:
        """Take up to `limit` messages whose instant has come, earliest first."""
        taken: list[str] = []
        while len(taken) < limit and (at := self.first()) is not None and at <= now:
            id = heapq.heappop(self._heap)[2]
            del self._standing[id]
            taken.append(id)
        return taken

    def count_until(self, now: int) -> int:
        return sum(at <= now for at, _, _ in self._standing.values())

    def __iter__(self) -> Iterator[Timed]:
        return iter(self._standing.values())

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._standing) + _SLACK:
            self._heap = list(self._standing.values())
            heapq.heapify(self._heap)
