"""An engine with somebody who watches: every verb goes through, and what a message goes through is timed.

Measured are the wait of first attempts, from their due time to their start by the engine's clock, and the
work, from the start to the answer. Both follow from what a claim gives anyway, so no call is added to the
way of a message, and none waits for telemetry.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from operator import attrgetter, itemgetter

from postroom.engine import (
    ClaimRequest,
    Engine,
)
from postroom.model import (
    Accepted,
    Claimed,
    Leased,
    NewMessage,
    Outcome,
    Receipt,
    Settlement,
    Turned,
    Verb,
)
from postroom.policy import Policy
from postroom.telemetry.samples import Recorder, Spans
from postroom.through import Through

#: Deliveries that are timed at once; beyond that the oldest are no longer timed.
_MOST = 100_000
#: So many of one claim are timed; of a larger one every second, third or n-th, which then counts for n.
#: Within so long of that (seconds) fewer of another claim of the queue are, and none of a large one: there
#: are enough of them then, and while any is timed all that is settled has to be looked up.
_EACH, _EACH_OF_MANY, _CLOSE = 8, 2, 0.05
#: So many queues are told apart by how fast they drain; an app with more of them begins again.
_MOST_QUEUES = 1_000

_started_id = itemgetter(1)
_settled_id = attrgetter("receipt.id")
#: What ends a delivery without its work being over: nobody knows how long that would have taken.
_UNDONE = (Verb.RELEASE, Verb.CANCEL)


class _Open:
    """A delivery that is timed. `wait` is what it had waited when it was claimed, None after a failure."""

    __slots__ = ("began", "claimed", "token", "wait", "weight")

    def __init__(
        self, token: str, weight: int, began: float | None, claimed: float, wait: float | None
    ) -> None:
        self.token = token
        self.weight = weight
        self.began = began
        self.claimed = claimed
        self.wait = wait


class _Drain:
    """How fast a queue drains: when deliveries were last timed, how many were passed over since then, and how
    long the work on the last one took that was timed."""

    __slots__ = ("passed", "span", "timed_at")

    def __init__(self) -> None:
        self.timed_at = 0.0
        self.passed = 0
        self.span: float | None = None


class Observed(Through):
    """This engine, watched. What is not the way of a message goes straight through."""

    def __init__(self, engine: Engine, *, traced: bool = False) -> None:
        super().__init__(engine)
        self.recorder: Recorder = Recorder(engine, self._count_passed)
        self._traced = traced
        #: The deliveries that are timed, by the id of their message.
        self._open: dict[str, _Open] = {}
        self._drains: dict[str, _Drain] = {}
        _observed.add(self)

    # --- the way of a message ---------------------------------------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        if not self._traced:
            return self.engine.put(queue, messages)
        from postroom.telemetry.tracing import sending

        with sending(queue, messages) as carrying:
            return self.engine.put(queue, carrying)

    def put_within(
        self, connection: object, queue: str, messages: Sequence[NewMessage], policy: Policy
    ) -> Accepted:
        if not self._traced:
            return self.engine.put_within(connection, queue, messages, policy)
        from postroom.telemetry.tracing import sending

        with sending(queue, messages) as carrying:
            return self.engine.put_within(connection, queue, carrying, policy)

    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        claimed = self.engine.claim(queue, request)
        if claimed.deliveries:
            self._note_claimed(queue, claimed.deliveries, request.lease)
        return claimed

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        ended = time.perf_counter()  # the work was over before this call
        turned = self.engine.turn(queue, settlements, starts, request)
        if settlements:
            self._note_settled(queue, settlements, turned.settled, ended)
        if starts:
            self._note_started(queue, starts, turned.started)
        if request and turned.claimed.deliveries:
            self._note_claimed(queue, turned.claimed.deliveries, request.lease)
        return turned

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        ended = time.perf_counter()
        outcomes = self.engine.settle(queue, settlements)
        self._note_settled(queue, settlements, outcomes, ended)
        return outcomes

    # --- noting -----------------------------------------------------------------------------

    def _note_claimed(self, queue: str, deliveries: list[Leased], lease: int | None) -> None:
        now, drain = time.perf_counter(), self._drain(queue)
        each = _EACH_OF_MANY
        if now - drain.timed_at > _CLOSE:
            drain.timed_at, each = now, _EACH
        elif len(deliveries) > _EACH and deliveries[-1].started:
            self._pass_over(queue, drain, deliveries, lease)
            return
        step = -(-len(deliveries) // each)
        waits: Spans = []
        for place in range(0, len(deliveries), step):
            leased, weight = deliveries[place], min(step, len(deliveries) - place)
            wait = None if leased.attempt else _waited(leased, lease)
            if leased.started and wait is not None:
                waits.append((wait, weight))
            open = _Open(leased.token, weight, now if leased.started else None, now, wait)
            self._open[leased.message.id] = open
        if waits:
            self.recorder.add(f"wait:{queue}", waits)
        while len(self._open) > _MOST:
            self._open.pop(next(iter(self._open)), None)

    def _drain(self, queue: str) -> _Drain:
        if queue not in self._drains:
            if len(self._drains) >= _MOST_QUEUES:
                self._drains.clear()
            self._drains[queue] = _Drain()
        return self._drains[queue]

    def _pass_over(self, queue: str, drain: _Drain, deliveries: list[Leased], lease: int | None) -> None:
        """One wait stands for all of them, and the work on whatever is timed next for theirs."""
        drain.passed += len(deliveries)
        first = next((leased for leased in deliveries if not leased.attempt), None)
        if first and (wait := _waited(first, lease)) is not None:
            self.recorder.add(f"wait:{queue}", [(wait, len(deliveries))])

    def _count_passed(self) -> None:
        """The end of a drain: nothing may be timed after it, so the last that was stands for them."""
        for queue, drain in list(self._drains.items()):
            if drain.passed and drain.span is not None:
                passed, drain.passed = drain.passed, 0
                self.recorder.add(f"process:{queue}", [(drain.span, passed)])

    def _note_started(self, queue: str, starts: Sequence[Receipt], outcomes: list[Outcome]) -> None:
        now, timed, ids, waits = time.perf_counter(), self._open, list(map(_started_id, starts)), Spans()
        for id in timed.keys() & ids:
            open, place = timed.get(id), ids.index(id)
            if open and open.token == starts[place].token and outcomes[place] is Outcome.OK:
                open.began = now
                if open.wait is not None:
                    waits.append((open.wait + now - open.claimed, open.weight))
        if waits:
            self.recorder.add(f"wait:{queue}", waits)

    def _note_settled(
        self, queue: str, settlements: Sequence[Settlement], outcomes: list[Outcome], ended: float
    ) -> None:
        timed = self._open
        if not timed:
            return
        ids, spans, drain = list(map(_settled_id, settlements)), Spans(), self._drain(queue)
        for id in timed.keys() & ids:  # at the speed of C: of a fast drain hardly anything is timed
            settlement, open = settlements[place := ids.index(id)], timed.get(id)
            if open is None or open.token != settlement.receipt.token:
                continue
            timed.pop(id, None)
            done = outcomes[place] is Outcome.OK and settlement.verb not in _UNDONE
            if done and open.began is not None:
                drain.span = ended - open.began
                spans.append((drain.span, open.weight + drain.passed))
                drain.passed = 0
        if spans:
            self.recorder.add(f"process:{queue}", spans)

    # --- its end ----------------------------------------------------------------------------

    def close(self) -> None:
        self.recorder.close()
        self.engine.close()

    def after_fork_in_child(self) -> None:
        self._open, self._drains = {}, {}
        self.recorder.after_fork_in_child()


def _waited(leased: Leased, lease: int | None) -> float | None:
    """From the due time to the claim by the engine's clock (seconds), which its deadline tells."""
    span = leased.ack_timeout if leased.started else None
    if lease is not None and (span is None or lease < span):
        span = lease
    if span is None:
        return None  # without a heartbeat and without an ack_timeout: only the policy's lease would tell
    return max(0, leased.deadline - span - leased.message.due) / 1_000


_observed: weakref.WeakSet[Observed] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_observed):
        engine.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork)
