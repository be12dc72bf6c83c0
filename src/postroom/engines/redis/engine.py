"""The Redis engine: every verb is one script, and every script is one atomic step.

The time is the server's. What a call made claimable rings the waiters of this process when it returns;
those of other processes were told by the script itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from postroom.checks import check_find, check_receipts, check_tally, check_turn
from postroom.engine import Capabilities, ClaimRequest, Engine, QueueInfo
from postroom.engines.redis import calls, checks, scripts
from postroom.engines.redis.client import Client, Script
from postroom.engines.redis.inspection import inspect, server_time
from postroom.engines.redis.names import Names
from postroom.engines.redis.packing import draft, entries_of, policy_parts, raw_id, utf8
from postroom.engines.redis.records import RedisRecords
from postroom.engines.redis.registry import Registry
from postroom.engines.redis.topics import Topics
from postroom.engines.redis.waiting import RedisWaiter, Ringing
from postroom.engines.steps.pausing import plain
from postroom.errors import Closed, EngineUnavailable, Uncertain
from postroom.findings import Finding
from postroom.limits import (
    AUDIT,
    MAX_BODY,
    MAX_LOOKED_AT,
    TOPIC_LIMIT,
    check_after,
    check_batch,
    check_checkpoint,
    check_limit,
    check_name,
    check_publish,
    check_span,
    cut_text,
)
from postroom.logs import Group, Log, Stored, TopicPage, drop_told
from postroom.model import (
    Accepted,
    Action,
    Claimed,
    Entry,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Page,
    Put,
    Receipt,
    Settlement,
    State,
    Swept,
    Turned,
)
from postroom.policy import Policy
from postroom.records import Records
from postroom.stats import COUNTERS, Backlog, Memory, QueueStats, Tally
from postroom.waiter import Waiter

_DEFAULT = Policy()
_DEFAULT_PARTS = policy_parts(_DEFAULT)
_UNKNOWN = b"unknown"


class RedisEngine(Engine):
    capabilities: ClassVar[Capabilities] = Capabilities(durable=True, shared=True, blocking=True)

    def __init__(
        self,
        client: Client,
        prefix: str = "postroom",
        clock: Callable[[], int] | None = None,
        *,
        max_body: int = MAX_BODY,
    ) -> None:
        """`clock` is for tests: without one the time is the server's."""
        self.max_body = max_body
        self._client = client
        self._replicated = client.settings.durability == "replicated"
        self._clock = clock
        self._latest = 0
        self._closed = False
        self._lock = threading.Lock()
        self._names = Names(prefix)
        self._registry = Registry(client, self._names)
        self._topics = Topics(client, self._names)
        self._ringing = Ringing(client, self._names, self._now)
        self.records: Records = RedisRecords(self._now, client, self._names)
        _engines.add(self)

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: str, policy: Policy) -> None:
        self._register(queue)
        self._step(scripts.DECLARE, queue, *policy_parts(policy))
        self._register(queue)

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        count = self._run(scripts.DROP, queue, "1" if force else "0")
        self._registry.remove(queue)  # also if it is gone: an earlier drop may have ended just before this
        if count:
            self.publish(AUDIT, [drop_told(queue, count, by, why)])
        return int(count or 0)

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        self._check_open()
        return self._registry.infos(self.now, self._registry.names() if names is None else names)

    def _register(self, queue: str) -> None:
        """Have the queue listed: before it is made, and again after, in case it was dropped meanwhile."""
        check_name(queue)
        self._check_open()
        self._registry.add(queue)

    def stats(self, queue: str) -> QueueStats:
        found = self._run(scripts.STATS, queue)
        if found is None:
            return QueueStats(queue=queue, counters=dict.fromkeys(COUNTERS, 0))
        ready, scheduled, processing, overdue, dead, oldest, priority, paused, counts, til, throttled = found
        return QueueStats(
            queue=queue, ready=ready, scheduled=scheduled, processing=processing, overdue=overdue, dead=dead,
            oldest=oldest, next_priority=None if priority < 0 else priority, paused=bool(paused),
            paused_until=None if til < 0 else til, throttled=throttled,
            counters={name: int(count or 0) for name, count in zip(COUNTERS, counts, strict=True)},
        )  # fmt: skip

    def memory(self) -> Memory | None:
        """One question to each server that holds data, in a cluster to all primaries."""
        self._check_open()
        return checks.fullest(self._client.ask_all("INFO", "memory"))

    # --- the way of a message ---------------------------------------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        self.check_put(messages)
        if len(messages) == 1 and (done := self._put_one(queue, messages[0])):
            return done
        args = calls.put_args(messages)
        reply, safe = self._put(queue, b"", b"", *args)
        if reply == _UNKNOWN:
            self._register(queue)
            reply, safe = self._put(queue, *_DEFAULT_PARTS, *args)
            with contextlib.suppress(EngineUnavailable):  # it is put, and was listed a moment ago
                self._register(queue)
        if not safe:
            raise Uncertain(
                f"{queue}: no replica has confirmed {len(messages)} messages in time; they are stored:"
                " repeat the put with the same ids",
                ids=[message.id for message in messages],
            )
        return Accepted(calls.puts_of(messages, reply[2] if len(reply) > 2 else None), calls.depth_of(reply))

    def _put(self, queue: str, *args: calls.Argument) -> tuple[Any, bool]:
        """The answer of the script, and whether what it wrote is as safe as it has to be."""
        if not self._replicated:
            return self._step(scripts.PUT, queue, *args), True
        keys, sleepers = self._names.queue(queue), self._ringing.sleepers(queue)
        try:
            reply, replicas = self._client.run_replicated(scripts.PUT, keys, (self._now(), sleepers, *args))
        except EngineUnavailable as error:
            self._ringing.doubt(queue, sleepers, error)
            raise
        self._tell(queue, sleepers, reply)
        return reply, replicas > 0

    def _put_one(self, queue: str, message: NewMessage) -> Accepted | None:
        """Put it the short way, which is there for what most messages are; None: nothing was done."""
        if self._replicated or message.unique_key or message.failure:
            return None
        id, head, rest = draft(message)
        if head[2]:  # not now, or not forever
            return None
        reply = self._step(scripts.PUT_ONE, queue, id, head, rest, keys=self._names.put_one(queue))
        if not reply:
            return None
        return Accepted([Put(message.id)], None if isinstance(reply, int) else calls.depth_of(reply))

    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        return self.turn(queue, (), (), request).claimed

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        check_turn(queue, settlements, starts, request)
        packed, has_failure, failures, asked = calls.settle_args(settlements)
        started, asked_starts = calls.receipts_arg(starts)
        token, waiter = os.urandom(8), request.waiter if request else None
        who = waiter.id if isinstance(waiter, RedisWaiter) else b""
        claim = calls.claim_args(request, token, who)
        reply = self._step(scripts.TURN, queue, packed, has_failure, started, *claim, *failures)
        if reply is None:
            gone = Outcome.GONE
            claimed = Claimed([], _DEFAULT.lease // 3) if request else Claimed([])
            return Turned([gone] * len(settlements), [gone] * len(starts), claimed)
        settled = calls.outcomes_of(reply[1], asked)
        begun = calls.outcomes_of(reply[2], asked_starts)
        if request is None:
            return Turned(settled, begun, Claimed([]))
        if waiter:
            self._ringing.seat(queue, waiter, reply[11])
        return Turned(settled, begun, calls.claimed_of(queue, request, token.hex(), reply))

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        return self.turn(queue, settlements, (), None).settled

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        check_receipts(queue, receipts)
        check_span("lease", lease)
        return self._hold(queue, receipts, "renew", lease, "", "", "")

    def extend(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        span: int | None = None,
        lease: int | None = None,
        checkpoint: bytes | None = None,
    ) -> list[Outcome]:
        check_receipts(queue, receipts)
        check_checkpoint(checkpoint)
        check_span("span", span)
        check_span("lease", lease)
        return self._hold(
            queue, receipts, "extend", "" if lease is None else lease, "" if span is None else span,
            "" if checkpoint is None else "1", checkpoint or b"",
        )  # fmt: skip

    def _hold(self, queue: str, receipts: Sequence[Receipt], *args: calls.Argument) -> list[Outcome]:
        packed, asked = calls.receipts_arg(receipts)
        letters = self._run(scripts.HOLD, queue, packed, *args)
        return [Outcome.GONE] * len(receipts) if letters is None else calls.outcomes_of(letters, asked)

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        check_limit(limit)
        reply = self._step(scripts.SWEEP, queue, limit, cut_text(triggered_by, "triggered_by"))
        if reply is None:
            return Swept(next_wake=_DEFAULT.lease // 3)
        _, reclaimed, dead, promoted, expired, evicted, full, wake = reply
        return Swept(reclaimed, dead, promoted, expired, evicted, bool(full), wake)

    # --- looking and operating --------------------------------------------------------------

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        check_batch(ids)
        wanted = list(dict.fromkeys(filter(None, map(raw_id, ids))))
        found: dict[str, Entry] = {}
        self._check_open()
        # A portion is bounded in bytes: large bodies take several calls.
        while wanted:
            reply = self._run(scripts.GET, queue, *wanted)
            if reply is None:
                break
            found |= {entry.id: entry for entry in entries_of(queue, reply[1])}
            wanted = wanted[reply[0] :]
        return [found.get(id) if isinstance(id, str) else None for id in ids]

    def stored(self, queue: str, id: str) -> list[Stored]:
        self._check_open()
        return calls.stored_of(self._run(scripts.STORED, queue, raw_id(id) or b""))

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
        check_limit(limit)
        check_find(state, group, correlation_id)
        key, id = calls.page_cursor(cursor)
        if "" in (group, correlation_id):
            return Page([])
        reply = self._run(
            scripts.FIND, queue, calls.STATE_LETTERS[state], key, id, limit, utf8(group or "", "group"),
            utf8(correlation_id or "", "correlation_id"),
        )  # fmt: skip
        if reply is None:
            return Page([])
        key, id, shown = reply
        return Page(entries_of(queue, shown), f"{key.decode()}:{id.hex()}" if key else None)

    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        check_limit(limit)
        check_after(after)
        found = self._run(scripts.GROUPS, queue, after, limit) or []
        return [Group(name.decode(), count, first, last, id.hex()) for name, count, first, last, id in found]

    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        check_tally(state, edges, group)
        by = "d" if state is State.SCHEDULED else "x" if group is None else "g"
        counts = self._run(scripts.TALLY, queue, by, utf8(group or "", "group"), *edges)
        return Tally(counts or [0] * (len(edges) - 1))

    def backlog(self, queue: str) -> Backlog:
        return calls.backlog_of(self._run(scripts.BACKLOG, queue, MAX_LOOKED_AT))

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        self.check_moves(moves)
        script = scripts.REPLAY if any(move.action is Action.REPLAY for move in moves) else scripts.MOVE
        args, asked = calls.move_args(moves)
        reply = self._step(script, queue, *args)
        if reply is None:
            asked, reply = [False] * len(moves), [0, []]
        return calls.moved_of(moves, asked, reply[1])

    def pause(self, queue: str, reason: str = "", *, span: int | None = None) -> None:
        reason = plain(cut_text(reason, "reason"))
        check_span("span", span)
        self._register(queue)
        self._step(scripts.PAUSE, queue, *_DEFAULT_PARTS, reason, "" if span is None else span)
        self._register(queue)

    def resume(self, queue: str) -> None:
        self._step(scripts.RESUME, queue)

    def purge(self, queue: str) -> int:
        while (reply := self._run(scripts.PURGE, queue)) and reply[0] < 0:
            self._clean(queue)
        if reply and reply[1]:
            self._clean(queue)
        return int(reply[0]) if reply else 0

    def _clean(self, queue: str) -> None:
        """Remove what a purge left behind, in portions that hold nobody up for long."""
        while self._run(scripts.CLEAN, queue):
            pass

    # --- steps ------------------------------------------------------------------------------

    def _run(self, script: Script, queue: str, *args: calls.Argument) -> Any:
        """The answer of a script about one queue; None if there is no such queue."""
        return self._client.run(script, self._names.queue(queue), (self._now(), 0, *args))

    def _step(self, script: Script, queue: str, *args: calls.Argument, keys: tuple[bytes, ...] = ()) -> Any:
        """The same for a script that may ring, as the first thing that it returns says."""
        sleepers = self._ringing.sleepers(queue)
        try:
            reply = self._client.run(script, keys or self._names.queue(queue), (self._now(), sleepers, *args))
        except EngineUnavailable as error:
            self._ringing.doubt(queue, sleepers, error)
            raise
        self._tell(queue, sleepers, reply)
        return reply

    def _tell(self, queue: str, sleepers: int, reply: Any) -> None:
        if sleepers and reply is not None and reply != _UNKNOWN:
            self._ringing.tell(queue, reply if isinstance(reply, int) else reply[0], sleepers)

    # --- waiting, history, topics -----------------------------------------------------------

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        self._check_open()
        return self._ringing.waiter(queues, topics)

    def ring(self, queues: Iterable[str]) -> None:
        self._check_open()
        for queue in queues:
            self._ringing.push(queue, 2)

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        check_limit(limit)
        cursor = calls.stream_cursor(after)
        reply = self._run(scripts.LOG, queue, cursor, limit)
        if reply is None:
            return Log([], after or "0")
        behind, missed, found = reply
        entries = [calls.log_entry(queue, id, fields) for id, fields in found]
        return Log(entries, str(behind + len(entries)), missed)

    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        check_publish(topic, entries, keep)
        self._topics.publish(topic, entries, keep, self._now())

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        check_name(topic, "topic")
        check_limit(limit)
        self._check_open()
        return self._topics.read(topic, after, limit)

    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        check_after(after)
        check_limit(limit)
        self._check_open()
        return self._topics.names(after, limit)

    # --- opening, closing, forking ----------------------------------------------------------

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._ringing.close()
            finally:
                self._client.close()
            self._ringing.join()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._client.reset()
        self._ringing.leave_to_parent()

    def now(self) -> int:
        return int(self._now() or server_time(self._client) * 1_000)

    def inspect(self) -> list[Finding]:
        self._check_open()
        return inspect(self._client)

    def _now(self) -> str:
        """The time of a test's clock, which never goes back; '': the server's."""
        self._check_open()
        if self._clock is None:
            return ""
        with self._lock:
            self._latest = max(self._latest, self._clock())
            return str(self._latest)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the room is closed")


_engines: weakref.WeakSet[RedisEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork)
