"""What the groups of the contract share: an open engine, a clock, a queue, and short words for both.

Spans given to the clock are texts such as "30s"; spans given to an engine are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.duration import Duration, milliseconds
from postroom.engine import ClaimRequest, Engine, QueueInfo
from postroom.ids import new_id
from postroom.logs import LogEntry
from postroom.model import (
    Action,
    Claimed,
    Entry,
    Failure,
    Leased,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Receipt,
    Settlement,
    State,
    Verb,
)
from postroom.policy import Policy
from postroom.stats import QueueStats
from postroom.testing.clock import ManualClock
from postroom.waiter import Waiter

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

#: Long enough for any engine to ring on a busy machine, and only spent when it does not.
RING = 30.0
#: Long enough to believe that nothing rings.
QUIET = 0.05

BOOM = Failure(type="ValueError", text="boom")


class ContractBase:
    """Subclasses implement `make_engine`; everything else is here for the tests."""

    clock: ManualClock
    engine: Engine
    queue: str
    policy: Policy
    #: A folder of this test's own, for engines that keep files.
    folder: Path

    def make_engine(self, clock: ManualClock) -> Engine:
        """Open this test's store. A second call in one test opens the same store again, if the
        engine's capabilities say that it is durable or shared."""
        raise NotImplementedError

    @pytest.fixture(name="clock")
    def _clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture(name="queue")
    def _queue(self) -> str:
        return f"queue-{new_id()[-12:]}"

    @pytest.fixture(name="engine", autouse=True)
    def _engine(self, clock: ManualClock, queue: str, tmp_path: Path) -> Iterator[Engine]:
        self.clock, self.queue, self.policy, self.folder = clock, queue, Policy(), tmp_path
        self._waiters: list[Waiter] = []
        self.engine = self.make_engine(clock)
        yield self.engine
        for waiter in self._waiters:
            waiter.close()
        self.engine.close()

    # --- queues and time --------------------------------------------------------------------

    def declare(self, **settings: Any) -> Policy:
        self.policy = Policy(**settings)
        self.engine.declare(self.queue, self.policy)
        return self.policy

    @property
    def info(self) -> QueueInfo:
        return self.engine.queues([self.queue])[0]

    @property
    def stats(self) -> QueueStats:
        return self.engine.stats(self.queue)

    def counter(self, name: str) -> int:
        return self.stats.counters[name]

    def touch(self) -> None:
        """A call that reaches the queue and does nothing else."""
        self.engine.renew(self.queue, [], self.policy.lease)

    def keep_in_touch(self, span: Duration) -> None:
        """Let time pass as it does while consumers are there: never half a lease without a call."""
        left = milliseconds(span)
        while left > 0:
            step = min(left, self.policy.lease // 4)
            self.clock.advance(f"{step}ms")
            self.touch()
            left -= step

    def run_out(self, span: Duration = "30001ms") -> None:
        """Let the deliveries in flight run out (by default: 30 s) and be reclaimed by a sweep."""
        self.keep_in_touch(span)
        self.engine.sweep(self.queue)

    def waiter(self, *queues: str, topics: Iterable[str] = ()) -> Waiter:
        """An armed waiter for the test's queue (or these, or only topics)."""
        names = queues or (() if topics else (self.queue,))
        waiter = self.engine.waiter(names, topics)
        self._waiters.append(waiter)
        waiter.arm()
        return waiter

    # --- the way of a message ---------------------------------------------------------------

    def message(self, **fields: Any) -> NewMessage:
        return NewMessage(**fields)

    def put(self, **fields: Any) -> str:
        return self.engine.put(self.queue, [self.message(**fields)]).puts[0].id

    def put_many(self, count: int, **fields: Any) -> list[str]:
        messages = [self.message(**fields) for _ in range(count)]
        return [put.id for put in self.engine.put(self.queue, messages).puts]

    def put_again(self, id: str, **fields: Any) -> bool:
        """Put a message with this id; whether that created one."""
        return self.engine.put(self.queue, [self.message(id=id, **fields)]).puts[0].created

    def ask(self, n: int = 1, **request: Any) -> Claimed:
        return self.engine.claim(self.queue, ClaimRequest(n=n, **request))

    def claim(self, n: int = 1, **request: Any) -> list[Leased]:
        return self.ask(n, **request).deliveries

    def claim_ids(self, n: int = 1_000, **request: Any) -> list[str]:
        return [delivery.message.id for delivery in self.claim(n, **request)]

    def take(self, **request: Any) -> Leased:
        """Claim one message that must be there."""
        deliveries = self.claim(1, **request)
        assert len(deliveries) == 1, "nothing to claim"
        return deliveries[0]

    def put_and_take(self, **fields: Any) -> Leased:
        id = self.put(**fields)
        delivery = self.take()
        assert delivery.message.id == id
        return delivery

    def settle(self, delivery: Leased, verb: Verb, **fields: Any) -> Outcome:
        settlement = Settlement(receipt=delivery.receipt, verb=verb, **fields)
        return self.engine.settle(self.queue, [settlement])[0]

    def ack(self, delivery: Leased) -> Outcome:
        return self.settle(delivery, Verb.ACK)

    def retry(self, delivery: Leased, **fields: Any) -> Outcome:
        return self.settle(delivery, Verb.RETRY, **fields)

    def release(self, delivery: Leased, delay: int = 0) -> Outcome:
        return self.settle(delivery, Verb.RELEASE, delay=delay)

    def bury(self, delivery: Leased, failure: Failure = BOOM) -> Outcome:
        return self.settle(delivery, Verb.BURY, failure=failure)

    def start(self, *receipts: Receipt) -> list[Outcome]:
        return self.engine.turn(self.queue, [], receipts, None).started

    def renew(self, delivery: Leased, lease: int = 30 * SECOND) -> Outcome:
        return self.engine.renew(self.queue, [delivery.receipt], lease)[0]

    def extend(self, delivery: Leased, **fields: Any) -> Outcome:
        return self.engine.extend(self.queue, [delivery.receipt], **fields)[0]

    def time_left(self, delivery: Leased) -> int:
        """The span from now to the deadline."""
        deadline = self.entry(delivery.message.id).deadline
        assert deadline is not None, "no deadline"
        return deadline - self.clock()

    def put_suspects(self, count: int) -> list[str]:
        """Messages whose consumer died while it worked on them."""
        ids = self.put_many(count)
        assert len(self.claim(count, suspects=False)) == count
        self.run_out()
        return ids

    def put_dead(self, **fields: Any) -> str:
        """A dead letter that failed with BOOM in its consumer's hands."""
        delivery = self.put_and_take(**fields)
        assert self.bury(delivery) is Outcome.OK
        return delivery.message.id

    # --- looking and operating --------------------------------------------------------------

    def entry(self, id: str) -> Entry:
        entry = self.engine.get(self.queue, [id])[0]
        assert entry is not None, f"{id} does not exist"
        return entry

    def state(self, id: str) -> State | None:
        entry = self.engine.get(self.queue, [id])[0]
        return None if entry is None else entry.state

    def pages(self, state: State, limit: int = 100, **narrow: Any) -> list[list[str]]:
        """The ids of every page of this state."""
        pages, cursor = [], None
        while True:
            page = self.engine.find(self.queue, state, cursor=cursor, limit=limit, **narrow)
            pages.append([entry.message.id for entry in page.entries])
            cursor = page.cursor
            if cursor is None:
                return pages

    def found(self, state: State, limit: int = 100, **narrow: Any) -> list[str]:
        return [id for page in self.pages(state, limit, **narrow) for id in page]

    def move(self, id: str, action: Action, **fields: Any) -> Moved:
        return self.engine.move(self.queue, [Move(id=id, action=action, **fields)])[0]

    def log(self, event: str) -> list[LogEntry]:
        """The entries of one kind in the queue's whole history."""
        return [
            entry
            for entry in self.engine.log(self.queue, after="", limit=1_000).entries
            if entry.event == event
        ]
