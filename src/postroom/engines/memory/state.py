"""One queue in memory: dicts by state, heaps by order and by time."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from postroom.engines.memory.indexes import RankIndex, TimeIndex
from postroom.engines.memory.journal import Journal
from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import Drawn, QueueState, Ripe
from postroom.limits import LOG_LIMIT, MAX_BATCH, MAX_CLAIM_BYTES, MAX_PRIORITY
from postroom.logs import Group, LogEntry
from postroom.model import Message, Receipt, State
from postroom.policy import Policy, ticks
from postroom.stats import Backlog, Tally

#: Kept here because Python 3.11 takes 0.1 µs to find the member of an enumeration: not once a message.
_READY, _SCHEDULED, _PROCESSING, _DEAD = State.READY, State.SCHEDULED, State.PROCESSING, State.DEAD


class MemoryState(QueueState):
    """A message is in exactly one of `_waiting` (ready or scheduled), `_held`, `_dead` and `_done`."""

    ready: int
    suspects: int
    scheduled: int
    processing: int
    dead: int

    def __init__(self, name: str, policy: Policy, now: int) -> None:
        super().__init__(name, policy, now)
        self.log: Journal[LogEntry] = Journal(LOG_LIMIT, first=ticks(now) + 1)
        self._held: dict[str, Slot] = {}
        self._dead: dict[str, Slot] = {}
        self._done: dict[str, Slot] = {}
        self._deadlines = TimeIndex()
        self._deaths = TimeIndex()
        self._done_until = TimeIndex()
        self._remembered = TimeIndex()
        self._groups: dict[str, dict[str, None]] = {}
        self._begin()

    def _begin(self) -> None:
        """Nothing waits; the cost follows what is processing."""
        self._waiting: dict[str, Slot] = {}
        self._ready = RankIndex()
        self._suspects = RankIndex()
        self._due = TimeIndex()
        self._expiries = TimeIndex()
        held = (slot.message for slot in self._held.values())
        self._unique = {message.unique_key: message.id for message in held if message.unique_key}
        self.ready = self.suspects = self.scheduled = 0

    # --- keeping ----------------------------------------------------------------------------

    def add(self, slots: Sequence[Slot]) -> None:
        ready, waiting = self._ready, self._waiting
        for slot in slots:
            message = slot.message
            if message.unique_key and slot.state is not _DEAD:
                self._unique[message.unique_key] = message.id
            if slot.state is not _READY:
                self.lay(slot)
                continue
            # As `lay` does it, but a new message is no suspect: this is the way of almost every message.
            assert slot.order is not None
            ready.add(message.id, message.priority, slot.order)
            self.ready += 1
            waiting[message.id] = slot
            if message.expires is not None:
                self._expiries.set(message.id, message.expires)

    def lay(self, slot: Slot) -> None:
        id, state = slot.message.id, slot.state
        if state is _READY:
            self._lay_ready(slot)
        elif state is _SCHEDULED:
            self._due.set(id, slot.due, MAX_PRIORITY - slot.message.priority)
            self.scheduled += 1
            self._keep_waiting(slot)
        elif state is _PROCESSING:
            self._held[id] = slot
            self.processing += 1
            self.update(slot)
        elif state is _DEAD:
            self._lay_dead(slot)
        else:
            self._done[id] = slot
            self._done_until.set(id, slot.kept_until)
            self._release_key(slot.message)

    def _lay_ready(self, slot: Slot) -> None:
        assert slot.order is not None
        index = self._suspects if slot.suspect else self._ready
        index.add(slot.message.id, slot.message.priority, slot.order)
        self._count_ready(slot, 1)
        self._keep_waiting(slot)

    def _count_ready(self, slot: Slot, change: int) -> None:
        if slot.suspect:
            self.suspects += change
        else:
            self.ready += change

    def _keep_waiting(self, slot: Slot) -> None:
        message = slot.message
        self._waiting[message.id] = slot
        if message.expires is not None:
            self._expiries.set(message.id, message.expires)

    def _lay_dead(self, slot: Slot) -> None:
        id = slot.message.id
        self._release_key(slot.message)
        self._dead[id] = slot
        self._deaths.set(id, slot.ended_at)
        self._groups.setdefault(_group(slot), {})[id] = None
        self.dead += 1

    def take(self, slot: Slot) -> None:
        id, state = slot.message.id, slot.state
        if state is _PROCESSING:
            del self._held[id]
            self._deadlines.discard(id)
            self.processing -= 1
        elif state is _DEAD:
            self._take_dead(slot)
        else:
            self._take_waiting(slot)

    def _take_waiting(self, slot: Slot) -> None:
        id = slot.message.id
        del self._waiting[id]
        if slot.state is _READY:
            (self._suspects if slot.suspect else self._ready).discard(id)
            self._count_ready(slot, -1)
        else:
            self._due.discard(id)
            self.scheduled -= 1
        if slot.message.expires is not None:
            self._expiries.discard(id)

    def _take_dead(self, slot: Slot) -> None:
        id, group = slot.message.id, _group(slot)
        del self._dead[id]
        self._deaths.discard(id)
        self._groups[group].pop(id)
        if not self._groups[group]:
            del self._groups[group]
        self.dead -= 1

    def let_go(self, slot: Slot) -> None:
        self._release_key(slot.message)

    def _release_key(self, message: Message) -> None:
        if message.unique_key and self._unique.get(message.unique_key) == message.id:
            del self._unique[message.unique_key]

    def update(self, slot: Slot) -> None:
        if slot.state is _PROCESSING:
            assert slot.deadline is not None
            self._deadlines.set(slot.message.id, slot.deadline)

    def remember(self, id: str, until: int) -> None:
        self._remembered.set(id, until)

    def forget(self, now: int, limit: int) -> int:
        for id in (done := self._done_until.pop_until(now, limit)):
            del self._done[id]
        return max(len(done), len(self._remembered.pop_until(now, limit)))

    def clear_waiting(self) -> tuple[int, object]:
        count = self.waiting
        doomed = (self._waiting, self._ready, self._suspects, self._due, self._expiries)
        self._begin()
        return count, doomed

    def write_log(self, entry: LogEntry) -> None:
        self.log.append(lambda id: msgspec.structs.replace(entry, id=id))

    # --- claiming ---------------------------------------------------------------------------

    def draw(self, n: int, suspects: bool, now: int) -> Drawn:
        drawn, size = Drawn([], []), 0
        for _ in range(n + MAX_BATCH):  # so many may turn out to be expired; the next claim goes on
            if len(drawn.slots) == n:
                break
            index = self._next_index(suspects)
            if (first := index.first()) is None:
                break
            slot = self._waiting[first[1]]
            message = slot.message
            expired = message.expires is not None and message.expires <= now
            size += 0 if expired else len(message.body)
            if drawn.slots and size > MAX_CLAIM_BYTES:
                break
            self._pop(index, first, slot)
            if expired:
                drawn.expired.append(slot)
                continue
            suspects = suspects and not slot.suspect
            drawn.slots.append(slot)
        return drawn

    def _next_index(self, suspects: bool) -> RankIndex:
        """Where the most urgent message is, among those this consumer may have."""
        if not suspects:
            return self._ready
        suspect, first = self._suspects.first(), self._ready.first()
        return self._suspects if suspect and (first is None or suspect < first) else self._ready

    def _pop(self, index: RankIndex, first: tuple[int, str], slot: Slot) -> None:
        message = slot.message
        index.pop(first, message.priority)
        del self._waiting[message.id]
        self._count_ready(slot, -1)
        if message.expires is not None:
            self._expiries.discard(message.id)

    def lease(self, slots: Sequence[Slot]) -> None:
        held, deadlines = self._held, self._deadlines
        for slot in slots:
            held[slot.message.id] = slot
            assert slot.deadline is not None
            deadlines.set(slot.message.id, slot.deadline)
        self.processing += len(slots)

    # --- finding ----------------------------------------------------------------------------

    def slot(self, id: str) -> Slot | None:
        return self._waiting.get(id) or self._held.get(id) or self._dead.get(id) or self._done.get(id)

    def held(self, receipt: Receipt) -> Slot | None:
        slot = self._held.get(receipt.id)
        return slot if slot and slot.token == receipt.token else None

    def exists(self, id: str) -> bool:
        return id in self._waiting or id in self._held or id in self._dead

    def known(self, ids: Sequence[str], now: int) -> set[str]:
        waiting, held, dead = self._waiting, self._held, self._dead
        known = {id for id in ids if id in waiting or id in held or id in dead}
        if self._done_until or self._remembered:
            known.update(id for id in ids if self._recalls(id, now))
        return known

    def _recalls(self, id: str, now: int) -> bool:
        return _later(self._done_until.at(id), now) or _later(self._remembered.at(id), now)

    def holder(self, unique_key: str) -> str | None:
        id = self._unique.get(unique_key)
        return id if id in self._waiting or id in self._held else None

    def ripe(self, now: int) -> Ripe:
        overdue, due, expired = self._deadlines.first(), self._due.first(), self._expiries.first()
        return Ripe(
            overdue is not None and overdue <= now,
            due is not None and due <= now,
            expired is not None and expired <= now,
        )

    def overdue(self, now: int, limit: int) -> list[Slot]:
        return [self._held[id] for id in self._deadlines.pop_until(now, limit)]

    def due(self, now: int, limit: int) -> list[Slot]:
        return [self._waiting[id] for id in self._due.pop_until(now, limit)]

    def expired(self, now: int, limit: int) -> list[Slot]:
        return [self._waiting[id] for id in self._expiries.pop_until(now, limit)]

    def oldest_dead(self, until: int, limit: int) -> list[Slot]:
        return [self._dead[id] for id in self._deaths.pop_until(until, limit)]

    def first_deadline(self) -> int | None:
        return self._deadlines.first()

    def first_due(self) -> int | None:
        return self._due.first()

    def first_expiry(self) -> int | None:
        return self._expiries.first()

    def count_overdue(self, now: int) -> int:
        return self._deadlines.count_until(now)

    def next_priority(self) -> int | None:
        heads = [head for head in (self._ready.first(), self._suspects.first()) if head]
        return self._waiting[min(heads)[1]].message.priority if heads else None

    def heads(self) -> Iterable[int]:
        if self.policy.aging:
            heads = [head[1] for head in (self._ready.first(), self._suspects.first()) if head]
        else:
            heads = [*self._ready.heads(), *self._suspects.heads()]
        return [self._waiting[id].message.put_at for id in heads]

    def groups(self, after: str, limit: int) -> list[Group]:
        names = heapq.nsmallest(limit, (name for name in self._groups if name > after))
        return [self._group(name) for name in names]

    def _group(self, name: str) -> Group:
        deaths = [(self._dead[id].ended_at, id) for id in self._groups[name]]
        return Group(name, len(deaths), min(deaths)[0], *max(deaths))

    def tally(self, state: State, edges: Sequence[int], group: str | None) -> Tally:
        """By a pass over the state, as `page` does it."""
        counts = [0] * (len(edges) + 1)  # what comes before the first edge, and behind the last
        for at, _ in self._rows(state, group, None, 0):
            counts[bisect_right(edges, at)] += 1
        return Tally(counts[1:-1])

    def backlog(self) -> Backlog:
        """By a pass over what waits, as `page` does it."""
        waiting = self._waiting
        ready = Counter(waiting[id].message.priority for _, id in self._rows(_READY, None, None, 0))
        retrying = sum(waiting[id].attempt > 0 for _, id in self._rows(_SCHEDULED, None, None, 0))
        return Backlog(dict(sorted(ready.items(), reverse=True)), retrying)

    def page(
        self,
        state: State,
        after: tuple[int, str] | None,
        limit: int,
        group: str | None,
        correlation_id: str | None,
        now: int,
    ) -> list[tuple[int, str]]:
        """By a pass over the state: memory keeps no order that could be entered in the middle."""
        rows = self._rows(state, group, correlation_id, now)
        return heapq.nsmallest(limit, (row for row in rows if after is None or row > after))

    def _rows(
        self, state: State, group: str | None, correlation_id: str | None, now: int
    ) -> Iterable[tuple[int, str]]:
        match state:
            case State.READY:
                return (*self._ready, *self._suspects)
            case State.SCHEDULED:
                return ((at, id) for at, _, id in self._due)
            case State.PROCESSING:
                return ((at, id) for at, _, id in self._deadlines)
            case State.DONE:
                return ((slot.ended_at, id) for id, slot in self._done.items() if slot.kept_until > now)
        ids = self._dead if group is None else self._groups.get(group, {})
        dead = ((id, self._dead[id]) for id in ids)
        return (
            (slot.ended_at, id)
            for id, slot in dead
            if correlation_id is None or slot.message.correlation_id == correlation_id
        )


def _group(slot: Slot) -> str:
    return slot.failure.fingerprint if slot.failure else ""


def _later(until: int | None, now: int) -> bool:
    return until is not None and until > now
