"""What there is in a queue by order and time: rows of a file that are found and not changed."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from postroom.engines.sqlite.rows import NO_ID, slot_of, wanted_id
from postroom.engines.sqlite.sql import SQL, page_statement
from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.limits import MAX_LOOKED_AT, MAX_TALLY
from postroom.logs import Group
from postroom.model import State
from postroom.policy import Policy
from postroom.stats import Backlog, Tally

#: Rows that levels are counted by in one look: about 3 ms, in which nobody else of this process looks.
_MOST_COUNTED = 20_000


class Finding(QueueState):
    """Nothing is asked for where the books say that there is nothing."""

    ready: int
    suspects: int
    scheduled: int
    processing: int
    dead: int

    def __init__(self, connection: sqlite3.Connection, name: str, policy: Policy, now: int) -> None:
        super().__init__(name, policy, now)
        self._db = connection
        #: 0: the queue does not exist, and nothing belongs to it.
        self.key: int = 0
        self.era: int = 0

    def overdue(self, now: int, limit: int) -> list[Slot]:
        return self._slots("overdue", self.key, now, limit) if self.processing else []

    def due(self, now: int, limit: int) -> list[Slot]:
        return self._slots("due", self.key, self.era, now, limit) if self.scheduled else []

    def expired(self, now: int, limit: int) -> list[Slot]:
        return self._slots("expired", self.key, self.era, now, limit) if self.waiting else []

    def oldest_dead(self, until: int, limit: int) -> list[Slot]:
        return self._slots("oldest_dead", self.key, until, limit) if self.dead else []

    def first_deadline(self) -> int | None:
        return self._one("first_deadline", self.key) if self.processing else None

    def first_due(self) -> int | None:
        return self._one("first_due", self.key, self.era) if self.scheduled else None

    def first_expiry(self) -> int | None:
        return self._one("first_expiry", self.key, self.era) if self.waiting else None

    def count_overdue(self, now: int) -> int:
        return int(self._one("count_overdue", self.key, now))

    def next_priority(self) -> int | None:
        heads = [head for suspect in (0, 1) if (head := self._head(suspect, 0))]
        return int(min(heads)[2]) if heads else None

    def heads(self) -> Iterable[int]:
        return (put_at for _, put_at in self._first_of_levels())

    def _first_of_levels(self) -> Iterator[tuple[int, int]]:
        """Priority, and when it was put. One look a level: where a level ends in the order is known."""
        for suspect in (0, 1):
            head = self._head(suspect, 0)
            while head:
                order, _, priority, put_at = head
                yield priority, put_at
                if self.policy.aging or not priority:
                    break
                head = self._head(suspect, max(order + 1, self.policy.order(priority - 1, 0)))

    def _head(self, suspect: int, order: int) -> tuple[int, bytes, int, int] | None:
        """The first ready message from this place in the order on: order, id, priority, when it was put."""
        head = self._db.execute(SQL["head"], (self.key, self.era, suspect, order)).fetchone()
        return head or None

    def page(
        self,
        state: State,
        after: tuple[int, str] | None,
        limit: int,
        group: str | None,
        correlation_id: str | None,
        now: int,
    ) -> list[tuple[int, str]]:
        key, id = (after[0], wanted_id(after[1])) if after else (-1, NO_ID)
        wanted = {
            "queue": self.key, "era": self.era, "key": key, "id": id, "limit": limit, "now": now,
            "group": group, "correlation_id": correlation_id,
        }  # fmt: skip
        if state is State.READY:
            lanes = (self._page("page_ready", wanted | {"suspect": suspect}) for suspect in (0, 1))
            return list(heapq.merge(*lanes))[:limit]
        return self._page(page_statement(state, group, correlation_id), wanted)

    def groups(self, after: str, limit: int) -> list[Group]:
        rows = self._db.execute(SQL["groups"], {"queue": self.key, "after": after, "limit": limit}).fetchall()
        return [Group(name, count, first, last, id.hex()) for name, count, first, last, id in rows]

    def tally(self, state: State, edges: Sequence[int], group: str | None) -> Tally:
        """SQLite counts by going over an index: so far and no further."""
        statement = "tally_scheduled" if state is State.SCHEDULED else "tally_dead"
        wanted: dict[str, Any] = {"queue": self.key, "era": self.era, "group": group, "limit": MAX_TALLY + 1}
        counts: list[int] = []
        for wanted["from"], wanted["until"] in itertools.pairwise(edges):
            (count,) = self._db.execute(SQL[statement if group is None else "tally_group"], wanted).fetchone()
            counts.append(min(count, wanted["limit"] - 1))
            wanted["limit"] -= count
            if wanted["limit"] <= 0:
                return Tally(counts + [0] * (len(edges) - 1 - len(counts)), whole=False)
        return Tally(counts)

    def backlog(self) -> Backlog:
        levels, whole = self._look_at_levels() if self.policy.aging else self._count_levels()
        wanted = {"queue": self.key, "era": self.era, "limit": MAX_LOOKED_AT}
        (retrying,) = self._db.execute(SQL["count_retrying"], wanted).fetchone()
        return Backlog(levels, retrying, whole, self.scheduled <= MAX_LOOKED_AT)

    def _count_levels(self) -> tuple[dict[int, int], bool]:
        """Each by its part of the index, so far and no further; the books know the rest of a long one."""
        found = sorted({priority for priority, _ in self._first_of_levels()}, reverse=True)
        most = _MOST_COUNTED // max(1, len(found))
        counts = {level: self._count_level(level, most) for level in found} if len(found) > 1 else {}
        long = [level for level in found if counts.get(level, most) >= most]
        if len(long) == 1:
            counts[long[0]] = self.claimable - sum(n for level, n in counts.items() if level != long[0])
        return counts, len(long) < 2

    def _count_level(self, level: int, most: int) -> int:
        first, behind = self.policy.order(level, 0), self.policy.order(level - 1, 0)
        wanted = {"queue": self.key, "era": self.era, "from": first, "until": behind, "limit": most}
        rows = (self._db.execute(SQL["count_level"], wanted | {"suspect": lane}) for lane in (0, 1))
        return min(most, sum(int(row.fetchone()[0]) for row in rows))

    def _look_at_levels(self) -> tuple[dict[int, int], bool]:
        """Those of the next ones: with aging the order tells no level."""
        wanted = {"queue": self.key, "era": self.era, "limit": MAX_LOOKED_AT}
        lanes = (self._db.execute(SQL["next_levels"], wanted | {"suspect": lane}) for lane in (0, 1))
        seen = sorted(row for lane in lanes for row in lane.fetchall())[:MAX_LOOKED_AT]
        levels = Counter(priority for _, priority in seen)
        return dict(sorted(levels.items(), reverse=True)), len(seen) == self.claimable

    def _page(self, statement: str, wanted: dict[str, Any]) -> list[tuple[int, str]]:
        return [(key, id.hex()) for key, id in self._db.execute(SQL[statement], wanted).fetchall()]

    def _slots(self, statement: str, *values: object) -> list[Slot]:
        return [slot_of(self.name, row) for row in self._db.execute(SQL[statement], values).fetchall()]

    def _one(self, statement: str, *values: object) -> Any:
        row = self._db.execute(SQL[statement], values).fetchone()
        return row[0] if row else None
