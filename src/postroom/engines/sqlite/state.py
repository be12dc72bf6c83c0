"""One queue as rows of a file, inside a transaction."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence

import msgspec

from postroom.engines.sqlite.finding import Finding
from postroom.engines.sqlite.many import MANY, about, adding, portions
from postroom.engines.sqlite.rows import (
    NUMBER,
    SMALL,
    Row,
    attempts_row,
    is_ordinary,
    is_plain,
    laid_row,
    leased_row,
    new_row,
    plain_row,
    policy_of,
    slot_of,
    stored_id,
    updated_row,
    wanted_id,
)
from postroom.engines.sqlite.sql import SQL
from postroom.engines.steps import pausing
from postroom.engines.steps.cursor import Kept
from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import Drawn, Ripe
from postroom.limits import LOG_LIMIT, MAX_BATCH, MAX_CLAIM_BYTES, check_name
from postroom.logs import LogEntry
from postroom.model import NewMessage, Receipt, State
from postroom.policy import Policy, next_seq, ticks

_encode = msgspec.json.Encoder().encode
_counters = msgspec.json.Decoder(dict[str, int]).decode
_log_entry = msgspec.json.Decoder(LogEntry).decode
#: Kept here because Python 3.11 takes 0.1 µs to find the member of an enumeration: not once a message.
_READY = State.READY
_NUMBER_READY = NUMBER[_READY]
_UNRIPE = Ripe(overdue=False, due=False, expired=False)


class SqliteState(Finding):
    """Changes of messages are written at once, those of the queue itself by `save`."""

    # Assigned below, so said again: without it pyright holds that other checkers could infer other types.
    key: int
    era: int
    ready: int
    suspects: int
    scheduled: int
    processing: int
    dead: int
    rings: int

    def __init__(self, connection: sqlite3.Connection, name: str, policy: Policy, now: int) -> None:
        super().__init__(connection, name, policy, now)
        self.log_first: int = ticks(now) + 1
        self.log_last: int = ticks(now)
        #: The two parts of its row as they are stored.
        self._saved: tuple[Row, Row] = (), ()
        self._remembers: bool | None = None
        self._expires: bool | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection, name: str, now: int, default: Policy) -> SqliteState:
        """The queue of this name; an unknown one is empty, with `key` 0."""
        check_name(name)
        row = connection.execute(SQL["queue"], (name,)).fetchone()
        return cls._of(connection, row) if row else cls(connection, name, default, now)

    @classmethod
    def load_all(cls, connection: sqlite3.Connection) -> list[SqliteState]:
        return [cls._of(connection, row) for row in connection.execute(SQL["queues"]).fetchall()]

    @classmethod
    def _of(cls, connection: sqlite3.Connection, row: Row) -> SqliteState:
        state = cls(connection, row[1], policy_of(row[2]), 0)
        (
            state.key, _, policy, paused, reason, state.era, state.seq, state.last_call,
            state.grace_until, state.bucket, state.bucket_at, state.ready, state.suspects, state.scheduled,
            state.processing, state.dead, state.log_first, state.log_last, counters,
        ) = row  # fmt: skip
        state.paused = bool(paused)
        state.pause_reason, state.paused_until = pausing.read(reason)
        state.counters |= _counters(counters)
        state._policy_text = policy
        state._saved = state._rare(), state._books()
        return state

    def make(self, now: int) -> None:
        """Bring the queue into being."""
        row = (
            self.name, self._text(), now, now, self.bucket, now, self.log_first, self.log_last,
            _encode(self.counters).decode(),
        )  # fmt: skip
        self.key = self._db.execute(SQL["make_queue"], row).lastrowid or 0

    def save(self) -> None:
        """Write what has changed about the queue itself."""
        rare, books = self._rare(), self._books()
        if not self.key or (rare, books) == self._saved:
            return
        if rare == self._saved[0]:
            self._db.execute(SQL["save_books"], books)
        else:
            self._db.execute(SQL["save_queue"], (*rare, *books))
        self._saved = rare, books

    def _rare(self) -> Row:
        """What `save_queue` takes first: what changes rarely."""
        reason = pausing.stored(self.pause_reason, self.paused_until)
        return self._policy_text or self._text(), self.paused, reason, self.era, self.grace_until

    def _books(self) -> Row:
        """What `save_books` takes: what almost every call changes."""
        return (
            self.seq, self.last_call, self.bucket, self.bucket_at, self.ready, self.suspects, self.scheduled,
            self.processing, self.dead, self.log_last, _encode(self.counters).decode(), self.key,
        )  # fmt: skip

    def adopt(self, policy: Policy, now: int) -> None:
        super().adopt(policy, now)
        self._policy_text = ""

    def _text(self) -> str:
        if not self._policy_text:
            self._policy_text = _encode(self.policy.to_text()).decode()
        return self._policy_text

    _policy_text = ""

    # --- keeping ----------------------------------------------------------------------------

    def add(self, slots: Sequence[Slot]) -> None:
        plain = [slot for slot in slots if is_plain(slot)]
        for first in range(0, len(plain), MANY):
            self._add_plain(plain[first : first + MANY])
        if len(plain) < len(slots):
            self._add_special([slot for slot in slots if not is_plain(slot)])
        self._count_added(slots)

    def enter_plain(self, messages: Sequence[NewMessage], now: int) -> bool | None:
        """What is plain and fits into one statement is added without a look: an id that is there stops it."""
        if not 0 < len(messages) <= MANY or self._may_recall() or not all(map(is_ordinary, messages)):
            return None
        seq, rows = self.seq, list[object]()
        for message in messages:
            seq, priority = next_seq(seq, now), message.priority
            rows += (
                self.key, bytearray.fromhex(message.id), _NUMBER_READY, self.era, priority,
                self.policy.order(priority, seq), now, now, now, message.kind, bytearray(message.body),
            )  # fmt: skip
        try:
            self._db.execute(adding(len(messages)), rows)
        except sqlite3.IntegrityError:
            return False
        self.seq = seq
        self.ready += len(messages)
        self.rings += len(messages)
        return True

    def add_new(self, slots: Sequence[Slot], now: int) -> bool:
        """The same for what is plain but scheduled."""
        if not 0 < len(slots) <= MANY or self._may_recall() or not all(map(is_plain, slots)):
            return super().add_new(slots, now)
        try:
            self._add_plain(slots)
        except sqlite3.IntegrityError:
            return False
        self._count_added(slots)
        return True

    def _add_plain(self, slots: Sequence[Slot]) -> None:
        values = [value for slot in slots for value in plain_row(self.key, self.era, slot)]
        self._db.execute(adding(len(slots)), values)

    def _count_added(self, slots: Sequence[Slot]) -> None:
        ready = sum(slot.state is _READY for slot in slots)
        self.ready += ready
        if ready < len(slots):
            for slot in slots:
                if slot.state is not _READY:
                    self._count(slot, 1)

    def _add_special(self, slots: Sequence[Slot]) -> None:
        self._note_expiry(slots)
        self._db.executemany(SQL["add"], [new_row(self.key, self.era, slot) for slot in slots])
        for slot in slots:
            if len(slot.message.body) > SMALL:
                place = self.key, stored_id(slot.message.id)
                self._db.execute(SQL["add_body"], (slot.message.body, *place))
            if slot.attempt:
                self._db.execute(SQL["add_attempts"], attempts_row(self.key, slot))

    def take(self, slot: Slot) -> None:
        self._count(slot, -1)

    def lay(self, slot: Slot) -> None:
        self._db.execute(SQL["lay"], laid_row(self.era, slot))
        self._note_expiry((slot,))
        self._count(slot, 1)

    def let_go(self, slot: Slot) -> None:
        self._db.execute(SQL["let_go"], (slot.key,))

    def update(self, slot: Slot) -> None:
        self._db.execute(SQL["update"], updated_row(slot))

    def _count(self, slot: Slot, change: int) -> None:
        match slot.state:
            case State.READY if slot.suspect:
                self.suspects += change
            case State.READY:
                self.ready += change
            case State.SCHEDULED:
                self.scheduled += change
            case State.PROCESSING:
                self.processing += change
            case State.DEAD:
                self.dead += change

    def ack(self, receipts: Sequence[Receipt], now: int) -> set[str]:
        acked: set[str] = set()
        if not (self.policy.keep_done or self.policy.dedupe_window):
            # Almost every message is removed without a look at it; those of one claim have one token.
            for token in {receipt.token for receipt in receipts}:
                ids = [wanted_id(receipt.id) for receipt in receipts if receipt.token == token]
                for some in portions(ids):
                    acked |= {id.hex() for (id,) in self._find("ack", some, self.key, token)}
        for _ in acked:
            self.processing -= 1
            self.free_hand()
        if len(acked) == len(receipts):
            return acked
        return acked | super().ack([receipt for receipt in receipts if receipt.id not in acked], now)

    def remember(self, id: str, until: int) -> None:
        self._remembers = True
        self._db.execute(SQL["remember"], (self.key, stored_id(id), until))

    def forget(self, now: int, limit: int) -> int:
        done = self._db.execute(SQL["forget_done"], (self.key, now, limit)).rowcount
        ids = self._db.execute(SQL["forget_ids"], {"queue": self.key, "now": now, "limit": limit}).rowcount
        return max(done, ids)

    def clear_waiting(self) -> tuple[int, object]:
        """In a new era nothing waits; who cleans up has time."""
        count = self.waiting
        if count:
            self.era += 1
            self.ready = self.suspects = self.scheduled = 0
            self._db.execute(SQL["trash"], (self.key, self.era))
        return count, None

    def write_log(self, entry: LogEntry) -> None:
        self.log_last += 1
        self._db.execute(SQL["write_log"], (self.key, self.log_last, _encode(entry).decode()))
        self._db.execute(SQL["prune_log"], (self.key, self.log_last - LOG_LIMIT))

    def read_log(self, after: str | None, limit: int) -> tuple[list[LogEntry], str, int]:
        """What comes behind the cursor, the next cursor, and how many were missed."""
        before = self._one("log_before", self.key)
        kept = Kept(self.log_first, self.log_last if before is None else before, self.log_last)
        begin, missed = kept.begin(after)
        rows = self._db.execute(SQL["read_log"], (self.key, begin, limit)).fetchall()
        entries = [msgspec.structs.replace(_log_entry(entry), id=str(id)) for id, entry in rows]
        return entries, str(begin + len(entries)), missed

    # --- claiming ---------------------------------------------------------------------------

    def draw(self, n: int, suspects: bool, now: int) -> Drawn:
        drawn, size = Drawn([], []), 0
        rows = self._in_order(now) if suspects else self._lane(0)
        for slot in rows:
            if slot.is_expired(now):
                drawn.expired.append(slot)
                if len(drawn.expired) == MAX_BATCH:
                    break
                continue
            if not slot.message.body:
                self._load_body(slot)
            size += len(slot.message.body)
            if drawn.slots and size > MAX_CLAIM_BYTES:
                break
            drawn.slots.append(slot)
            if len(drawn.slots) == n:
                break
        rows.close()  # what is still being read must not be changed
        self._count_drawn(drawn)
        return drawn

    def _count_drawn(self, drawn: Drawn) -> None:
        for slot in (*drawn.slots, *drawn.expired):
            if slot.suspect:
                self.suspects -= 1
            else:
                self.ready -= 1

    def _in_order(self, now: int) -> Generator[Slot]:
        """What is ready, most urgent first, with one suspect that can be claimed if there is one."""
        lanes = self._lane(0), self._one_suspect(now)
        yield from heapq.merge(*lanes, key=lambda slot: (slot.order, slot.message.id))

    def _one_suspect(self, now: int) -> Iterator[Slot]:
        for slot in self._lane(1):
            yield slot
            if not slot.is_expired(now):
                return

    def _lane(self, suspect: int) -> Generator[Slot]:
        for row in self._db.execute(SQL["ready"], (self.key, self.era, suspect)):
            yield slot_of(self.name, row)

    def lease(self, slots: Sequence[Slot]) -> None:
        """Those of one claim differ in little: what they have in common is written by one statement."""
        alike: dict[Row, list[int]] = {}
        for slot in slots:
            alike.setdefault(leased_row(slot), []).append(slot.key)
        for row, keys in alike.items():
            for some in portions(keys):
                self._find("lease", some, *row)
        self.processing += len(slots)

    # --- finding ----------------------------------------------------------------------------

    def slot(self, id: str) -> Slot | None:
        row = self._db.execute(SQL["by_id"], (self.key, wanted_id(id), self.era)).fetchone()
        if row is None:
            return None
        slot = slot_of(self.name, row)
        if not slot.message.body:
            self._load_body(slot)
        return slot

    def _load_body(self, slot: Slot) -> None:
        """Fetch the body, which has a row of its own if it is large."""
        if row := self._db.execute(SQL["body"], (slot.key,)).fetchone():
            slot.message = msgspec.structs.replace(slot.message, body=row[0])

    def held(self, receipt: Receipt) -> Slot | None:
        row = self._db.execute(SQL["held"], (self.key, wanted_id(receipt.id), receipt.token)).fetchone()
        return slot_of(self.name, row) if row else None

    def exists(self, id: str) -> bool:
        return self._one("exists", self.key, wanted_id(id), self.era) is not None

    def known(self, ids: Sequence[str], now: int) -> set[str]:
        known: set[str] = set()
        for some in portions([stored_id(id) for id in ids]):
            found = self._find("known", some, now, self.era, self.key)
            if found:
                self._clear_ghosts(key for key, _, alive in found if not alive)
                known |= {id.hex() for _, id, alive in found if alive}
            if self._may_recall():
                known |= {id.hex() for (id,) in self._find("recalled", some, now, self.key)}
        return known

    def _may_recall(self) -> bool:
        """Whether ids of gone messages are remembered at all; asked once, for most queues remember none."""
        if self._remembers is None:
            self._remembers = self._one("remembers", self.key) is not None
        return self._remembers

    def _find(self, statement: str, ids: Sequence[object], *values: object) -> list[Row]:
        """The rows of a statement about several ids or keys, which come last in it."""
        return self._db.execute(about(statement, len(ids)), (*values, *ids)).fetchall()

    def _clear_ghosts(self, keys: Iterable[int]) -> None:
        """What was purged or kept long enough does not exist; its row must not be in the way of a new one."""
        self._db.executemany(SQL["let_go"], ((key,) for key in keys))

    def holder(self, unique_key: str) -> str | None:
        found = self._db.execute(SQL["holder"], (self.era, self.key, unique_key)).fetchone()
        if found is None:
            return None
        key, id, alive = found
        if alive:
            return str(id.hex())
        self._clear_ghosts([key])
        return None

    def ripe(self, now: int) -> Ripe:
        if not (self.processing or self.scheduled or self._may_expire()):
            return _UNRIPE
        wanted = {"queue": self.key, "era": self.era, "now": now}
        return Ripe(*self._db.execute(SQL["ripe"], wanted).fetchone())

    def _may_expire(self) -> bool:
        """Whether anything that waits may have an expiry; asked once, for in most queues nothing has."""
        if self._expires is None:
            self._expires = self.first_expiry() is not None
        return self._expires

    def _note_expiry(self, slots: Iterable[Slot]) -> None:
        """These may wait from now on."""
        if any(slot.message.expires is not None for slot in slots):
            self._expires = True
