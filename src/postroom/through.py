"""An engine in front of another one: every verb goes through, unless who stands here says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from postroom.engine import Capabilities, ClaimRequest, Engine, QueueInfo
from postroom.findings import Finding
from postroom.limits import TOPIC_LIMIT
from postroom.logs import Group, Log, Stored, TopicPage
from postroom.model import (
    Accepted,
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


class Through(Engine):
    """This engine, with nothing changed: for those who change some of it."""

    capabilities: Capabilities  # type: ignore[misc]  # those of the engine inside, not of this class

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities = engine.capabilities
        self.records: Records = engine.records

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)  # what only some engines have

    @property
    def max_body(self) -> int:
        return self.engine.max_body

    @max_body.setter
    def max_body(self, size: int) -> None:
        self.engine.max_body = size

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        return self.engine.put(queue, messages)

    def put_within(
        self, connection: object, queue: str, messages: Sequence[NewMessage], policy: Policy
    ) -> Accepted:
        return self.engine.put_within(connection, queue, messages, policy)

    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        return self.engine.claim(queue, request)

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        return self.engine.turn(queue, settlements, starts, request)

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        return self.engine.settle(queue, settlements)

    def declare(self, queue: str, policy: Policy) -> None:
        self.engine.declare(queue, policy)

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        return self.engine.drop(queue, force=force, by=by, why=why)

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        return self.engine.queues(names)

    def stats(self, queue: str) -> QueueStats:
        return self.engine.stats(queue)

    def memory(self) -> Memory | None:
        return self.engine.memory()

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        return self.engine.renew(queue, receipts, lease)

    def extend(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        span: int | None = None,
        lease: int | None = None,
        checkpoint: bytes | None = None,
    ) -> list[Outcome]:
        return self.engine.extend(queue, receipts, span=span, lease=lease, checkpoint=checkpoint)

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        return self.engine.sweep(queue, limit=limit, triggered_by=triggered_by)

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        return self.engine.waiter(queues, topics)

    def ring(self, queues: Iterable[str]) -> None:
        self.engine.ring(queues)

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        return self.engine.get(queue, ids)

    def stored(self, queue: str, id: str) -> list[Stored]:
        return self.engine.stored(queue, id)

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
        return self.engine.find(
            queue, state, cursor=cursor, limit=limit, group=group, correlation_id=correlation_id
        )

    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        return self.engine.groups(queue, after=after, limit=limit)

    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        return self.engine.tally(queue, state, edges, group=group)

    def backlog(self, queue: str) -> Backlog:
        return self.engine.backlog(queue)

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        return self.engine.move(queue, moves)

    def pause(self, queue: str, reason: str = "", *, span: int | None = None) -> None:
        self.engine.pause(queue, reason, span=span)

    def resume(self, queue: str) -> None:
        self.engine.resume(queue)

    def purge(self, queue: str) -> int:
        return self.engine.purge(queue)

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        return self.engine.log(queue, after=after, limit=limit)

    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        self.engine.publish(topic, entries, keep=keep)

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        return self.engine.read(topic, after=after, limit=limit)

    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        return self.engine.topics(after=after, limit=limit)

    def now(self) -> int:
        return self.engine.now()

    def inspect(self) -> list[Finding]:
        return self.engine.inspect()

    def close(self) -> None:
        self.engine.close()
