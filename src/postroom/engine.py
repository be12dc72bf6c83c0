"""THE contract: what a store must promise so that every door can stand on it.

Sync, thread-safe, fork-aware, batch-first, one queue a call. A call takes at most 1,000 items and
is all or nothing: when it raises, nothing was changed, and it raises nothing but a PostroomError.
Spans and instants are milliseconds by the engine's own clock. Each promise has its tests in `testing`:

 1. Every state change is one atomic step; a crash leaves a message in exactly one state.
 2. `put` is idempotent by id, while the message exists and for its `remember` time afterwards
    (a purge forgets both).
 3. Never early: nothing is claimable before it is due by the engine's clock.
 4. A stale receipt changes nothing and is told so (`gone` or `lost`).
 5. Nothing is dropped silently: expiry and eviction are counted and announced.
 6. Cost follows the work done; nothing scans everything on the way of a message.
 7. `purge` drops what waits; `drop` refuses while anything is in the queue, unless forced.
 8. `capacity` refuses a put before anything of it is written, and never a retry or a reclaim.
 9. `find` pages each state in its own order with keyset cursors.
10. Stored data carries a format version; older and newer releases can work on one store.
11. An outage is not a crowd of dead workers: after a silence nothing is reclaimed at first.

A queue exists from its first `put`, `declare` or `pause`. Every other verb treats an unknown
queue as an empty one.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from postroom.errors import BodyTooLarge, InvalidInput
from postroom.findings import Finding
from postroom.limits import (
    MAX_BATCH,
    MAX_BODY,
    MAX_NAME,
    MAX_PUT_BYTES,
    TOPIC_LIMIT,
    check_batch,
    check_between,
    check_content_type,
    check_headers,
    check_when,
    cut_text,
)
from postroom.logs import Group, Log, Stored, TopicPage
from postroom.model import (
    EXPECTED,
    Accepted,
    Action,
    Claimed,
    Entry,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Page,
    Receipt,
    Settlement,
    State,
    Swept,
    Turned,
)
from postroom.policy import Policy
from postroom.records import Records
from postroom.stats import Backlog, Memory, QueueStats, Tally
from postroom.waiter import Waiter


class Capabilities(NamedTuple):
    """What an engine can and cannot do; the contract suite skips by these and nothing else."""

    #: Messages survive the end of every process.
    durable: bool
    #: Several processes can open the same store.
    shared: bool
    #: A call may wait for a disk or a network, so an event loop must not make it.
    blocking: bool
    #: A put can join a transaction of the caller's own: `put_within`.
    joins: bool = False


class QueueInfo(NamedTuple):
    """A queue by name: what it promises, whether and why it is paused, and if it ends by itself, when."""

    name: str
    policy: Policy
    paused: bool = False
    pause_reason: str = ""
    paused_until: int | None = None


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer asks for.

    n         at most so many messages (and 4 MB, but at least one message)
    start     how many of them are started by this claim; None: all. A prefetching consumer starts
              as many as it has free hands and reports the other starts with a later `turn`
    lease     its heartbeat promises a sign of life within this span; None: it has no heartbeat, so
              only the ack_timeout (or, without one, the policy's lease) limits the delivery
    suspects  whether it may be given a suspect; at most one comes with a claim, always started
    consumer  who it is, for people to read (cut to 200 characters)
    waiter    the armed waiter of a consumer that will wait if it gets nothing: its `next_wake` is
              then spread by rank, so that not everybody wakes for one message
    """

    n: int = 1
    start: int | None = None
    lease: int | None = None
    suspects: bool = True
    consumer: str = ""
    waiter: Waiter | None = None

    def __post_init__(self) -> None:
        if not self.consumer.isascii() or len(self.consumer) > MAX_NAME:
            msgspec.structs.force_setattr(self, "consumer", cut_text(self.consumer, "consumer"))


class Engine(abc.ABC):
    """A store of messages. See the module for what every verb promises in common."""

    capabilities: ClassVar[Capabilities]
    records: Records
    max_body: int = MAX_BODY

    # --- queues -----------------------------------------------------------------------------

    @abc.abstractmethod
    def declare(self, queue: str, policy: Policy) -> None:
        """Create the queue or give it this policy; what is already in it stays.

        Raises Conflict when `aging` would change while anything waits or is processing, because
        the order of what is there was fixed when it was put.
        """

    @abc.abstractmethod
    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        """Remove the queue and return how many messages went with it.

        Raises Conflict while anything is in it (ready, scheduled, processing or dead), unless
        forced; a forced drop of messages is announced on the topic "audit", with who did it and why.
        Receipts of it are `gone`.
        """

    @abc.abstractmethod
    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        """The queues that exist, by name; with `names`, those of them that exist."""

    @abc.abstractmethod
    def stats(self, queue: str) -> QueueStats:
        """How the queue stands, from counters: never a scan. An unknown queue is all zero."""

    def memory(self) -> Memory | None:
        """How full the memory of the store is, of several servers the fullest; None: it does not say."""
        return None

    # --- the way of a message ---------------------------------------------------------------

    @abc.abstractmethod
    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        """Keep these messages, all of them or none; when it returns they are safe.

        A message whose id exists or is remembered, or whose unique_key is held by a waiting or
        processing message, is not created again: its result names the one that is there. Due
        after now it is scheduled, with a failure it is dead at once, else it is ready. A dead one
        with a past was put when that says, and had those attempts.

        Raises QueueFull when the new ones do not fit into `capacity`, BodyTooLarge, InvalidInput for an
        expiry that is not after now and the due time; Uncertain: stored, but on no replica, so repeat.
        """

    def put_within(
        self, connection: object, queue: str, messages: Sequence[NewMessage], policy: Policy
    ) -> Accepted:
        """Put as a part of the caller's own transaction: the messages are kept if and only if it commits.

        Raises like `put`, and InvalidInput for a connection that is not to this store or not in a
        transaction; then nothing of the call is in that transaction, which goes on. A queue that does
        not exist is made with this policy. Nobody is rung, because only the caller knows when it has
        committed: see `ring`.
        """
        raise InvalidInput("connection: this engine cannot join a transaction; put without it")

    @abc.abstractmethod
    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        """Lease the next messages to this consumer, most urgent first, FIFO inside a level.

        First reclaims what is overdue and promotes what is due (bounded; more left: `next_wake`
        is 0). Never returns an expired message. A started delivery counts as an attempt once it
        fails or runs out; an unstarted one does not. `next_wake` is the span until the next due
        time, deadline, refill or end of grace, 0 when more could be claimed now, and never more
        than a third of the lease, so that whoever waits stays in touch (promise 11).
        `blocked_by` says why nothing may be given.
        """

    @abc.abstractmethod
    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        """Settle, report starts and claim the next, in this order and in one step.

        A start is the moment from which the ack_timeout counts. Only deliveries whose start is
        answered `ok` may be worked on.
        """

    @abc.abstractmethod
    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        """End deliveries: ack, retry, release, bury or cancel, an outcome for each.

        A retry counts as an attempt and is a dead letter instead when that was the last one. A
        release does not count and keeps the message's place, unless it comes with a delay: then it
        waits that long. A cancel ends the message as `move` does for one that waits: it is gone, not
        done, counted and told as cancelled, its unique_key is free, and whoever works on it is told
        `gone`. An overdue delivery can be settled until it is reclaimed.
        """

    @abc.abstractmethod
    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        """A heartbeat: these consumers live. Never moves a deadline past the ack_timeout."""

    @abc.abstractmethod
    def extend(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        span: int | None = None,
        lease: int | None = None,
        checkpoint: bytes | None = None,
    ) -> list[Outcome]:
        """TOUCH: the work may take `span` from now (None: its ack_timeout again).

        A checkpoint (at most 64 KB) is kept with the message, and the next attempt can read it.
        How often is counted with the delivery, and kept with the attempt if it fails.
        """

    @abc.abstractmethod
    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        """Do what time demands without claiming: reclaim, promote, expire, evict, forget.

        Each kind of work is bounded by `limit`; `full` says that some was left. Reclaimed
        messages return to their place, or are dead letters when their attempts are used up:
        one decision with the reclaim.
        """

    @abc.abstractmethod
    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        """Something to wait with for these queues and topics; close it after use.

        The topic "lifecycle" rings for the log entries of every queue; like every ring it is a hint.
        """

    @abc.abstractmethod
    def ring(self, queues: Iterable[str]) -> None:
        """Wake some who wait for these queues: something came in that nobody rang for, as by `put_within`."""

    # --- looking and operating --------------------------------------------------------------

    @abc.abstractmethod
    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        """These messages, where they stand, and (by its token) who holds each; None for what is not there."""

    def stored(self, queue: str, id: str) -> list[Stored]:
        """What the store keeps of a message, value by value and where; nothing of what is not there.

        For people who want to see it for themselves: no program should depend on it. An engine that
        keeps messages otherwise than by their fields, in keys or columns, says how.
        """
        (entry,) = self.get(queue, [id])
        if entry is None:
            return []
        parts = {"message": entry.message, "entry": entry}
        return [
            Stored(f"{part}.{name}", value if isinstance(value, bytes | str | int) else repr(value))
            for part, whole in parts.items()
            for name, value in msgspec.structs.asdict(whole).items()
            if value is not None and name != "message"
        ]

    @abc.abstractmethod
    def find(
        self,
        queue: str,
        state: State,
        *,
        cursor: str | None = None,
        limit: int = 100,
        group: str | None = None,
        correlation_id: str | None = None,
    ) -> Page:
        """A page of one state: ready by order, scheduled by due, processing by deadline, dead and
        done by their end. `group` (a fingerprint) and `correlation_id` narrow dead letters.

        A page has at most 4 MB of bodies, but at least one message; a narrowed one may be short, or
        even empty: go on while there is a cursor. What stays in its place through the whole paging
        is seen exactly once.
        """

    @abc.abstractmethod
    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        """The groups of the dead letters that are there, by fingerprint, beginning behind `after`.

        Kept by the steps that bury and remove dead letters: exact at every moment, and never a look
        at the letters themselves.
        """

    @abc.abstractmethod
    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        """How many scheduled messages are due, or letters died, between each two neighbours of `edges`.

        `edges` are 2 to 1,000 moments in their order; each span begins with its first and ends before
        its last, so that n + 1 edges give n counts. `group` (a fingerprint) narrows dead letters. By an
        index and never a look at bodies: an engine whose index does not count goes over 100,000 entries
        at most, the earliest, and says that this is not the whole.
        """

    @abc.abstractmethod
    def backlog(self, queue: str) -> Backlog:
        """What waits, by kind: ready messages (suspects too) by priority, and scheduled ones that retry.

        Bounded, however much waits. A level is counted by its part of the order; an engine whose index does
        not count goes over 20,000 entries. With `aging` the order tells no level: then the next 1,000
        messages are looked at, or fewer large ones, and of what is scheduled always the 1,000 due first.
        What could not be seen as a whole says so, and is then the least that there is.
        """

    @abc.abstractmethod
    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        """An operator's moves: cancel, reschedule, run now, replay, discard; an answer for each.

        Each checks the state it starts from, atomically. A replay leaves the dead letter and puts
        a new message under an id that follows from (id, number), so that a repeated call is one
        message; it raises QueueFull like a put, and is refused while its unique_key is held.
        """

    @abc.abstractmethod
    def pause(self, queue: str, reason: str = "", *, span: int | None = None) -> None:
        """Stop claims, until `resume` or, with a span, for so long by the engine's clock.

        Puts, settles, promotion and reclaim go on. Once its time is over a pause is none to anybody;
        the next turn or sweep tells that in the history, and whoever waits knows by `next_wake`. A
        pause replaces the one before it.
        """

    @abc.abstractmethod
    def resume(self, queue: str) -> None:
        """Allow claims again, and ring."""

    @abc.abstractmethod
    def purge(self, queue: str) -> int:
        """Drop what waits (ready and scheduled) and return how many; processing and dead stay.

        What was purged is forgotten: the same id may be put again.
        """

    # --- history, topics --------------------------------------------------------------------

    @abc.abstractmethod
    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        """The queue's history behind a cursor. None: from now on; "": from the oldest kept."""

    @abc.abstractmethod
    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        """Append to a topic; every subscriber reads everything from its own cursor.

        After it the topic keeps the newest `keep` entries (1 to 100,000), whatever an earlier call said, for
        a day; the topic "audit" keeps them for a year.
        """

    @abc.abstractmethod
    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        """A topic's entries behind a cursor. None: from now on; "": from the oldest kept.

        A reader that fell behind what the topic keeps is told how much it missed.
        """

    @abc.abstractmethod
    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        """The names of topics that something was published to, in their order, behind `after`.

        A topic whose last entry is gone may be named for a while; nothing but a list depends on it.
        """

    # --- the engine itself ------------------------------------------------------------------

    @abc.abstractmethod
    def now(self) -> int:
        """The time by the engine's clock, the one by which everything is due."""

    @abc.abstractmethod
    def inspect(self) -> list[Finding]:
        """What an operator should know of this store, and what to do about it; changes nothing.

        Bounded in time. What cannot be found out (not allowed, not supported) is a finding too.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Give up all resources; every later call raises Closed. Closing twice is fine."""

    # --- what every engine checks alike -----------------------------------------------------

    def check_put(self, messages: Sequence[NewMessage]) -> None:
        """Refuse what does not fit into one call, before anything is touched."""
        check_batch(messages)
        total = 0
        for message in messages:
            size = len(message.body)
            self._check_body(size)
            total += size
        if total > max(MAX_PUT_BYTES, self.max_body):
            raise InvalidInput(f"{total:,} bytes of bodies are more than {MAX_PUT_BYTES:,} in one call")

    def check_moves(self, moves: Sequence[Move]) -> None:
        check_batch(moves)
        for move in moves:
            if move.action not in EXPECTED:
                raise InvalidInput(f"action: {move.action!r} is not one of {', '.join(Action)}")
            check_between("number", move.number, 1, MAX_BATCH)
            check_when(move.delay, move.due)
            if move.content_type is not None:
                check_content_type(move.content_type)
            if move.headers:
                check_headers(move.headers)
            if move.action is Action.MARK_REPLAYED and move.replayed_as is None:
                raise InvalidInput("mark_replayed: say as what it was replayed")
            self._check_body(len(move.body or b""))

    def _check_body(self, size: int) -> None:
        if size > self.max_body:
            raise BodyTooLarge(f"a body of {size:,} bytes is more than max_body, {self.max_body:,}")
