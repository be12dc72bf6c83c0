"""What engines whose steps are Python have in common: check the input, then change one queue in one step."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.checks import check_find, check_receipts, check_tally, check_turn
from postroom.engine import ClaimRequest, Engine
from postroom.engines.steps import claim, operate, put, settle, sweep
from postroom.engines.steps.state import QueueState
from postroom.errors import Conflict
from postroom.limits import check_after, check_batch, check_checkpoint, check_limit, check_span, cut_text
from postroom.logs import Event, Group, Log
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
from postroom.stats import Backlog, QueueStats, Tally
from postroom.waiter import Waiter

T = TypeVar("T")
Step = Callable[[QueueState, int], T]

_wall_at_start = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wall_clock() -> int:
    """The time of day as it was when this process began, and counted on from there.

    A wall clock that is set wrong for a moment must not move every deadline; and unlike a monotonic
    clock this one also counts while the machine sleeps.
    """
    return (_wall_at_start + time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000


class SteppedEngine(Engine):
    """The verbs; how a step becomes atomic and known to who waits is left to the engine."""

    @abc.abstractmethod
    def _change(self, queue: str, step: Step[T], *, make: bool = False) -> T:
        """Run the step as one call that reaches the queue: all of it or, if it raises, nothing.

        Without `make` an unknown queue is an empty one, and stays unknown.
        """

    @abc.abstractmethod
    def _look(self, queue: str, look: Step[T]) -> T:
        """Let `look` see the queue as it stands; it changes nothing."""

    @abc.abstractmethod
    def _spread(self, queue: str, waiter: Waiter) -> int:
        """How much later than the first this waiter need wake."""

    @abc.abstractmethod
    def _read_log(self, state: QueueState, after: str | None, limit: int) -> Log: ...

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: str, policy: Policy) -> None:
        def adopt(state: QueueState, now: int) -> None:
            if policy.aging != state.policy.aging and (state.waiting or state.processing):
                raise Conflict(f"{queue}: aging cannot change while messages wait or are processing")
            state.adopt(policy, now)
            # What the old policy held back may be claimable now.
            state.unblock()

        self._change(queue, adopt, make=True)

    def stats(self, queue: str) -> QueueStats:
        return self._look(queue, QueueState.stats)

    # --- the way of a message ---------------------------------------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        self.check_put(messages)
        return self._change(queue, lambda state, now: put.accept(state, messages, now), make=True)

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

        def step(state: QueueState, now: int) -> Turned:
            state.end_pause(now)
            settled = settle.settle(state, settlements, now) if settlements else []
            started = settle.start(state, starts, now) if starts else []
            claimed = self._claim(state, request, now) if request else Claimed([])
            return Turned(settled, started, claimed)

        return self._change(queue, step)

    def _claim(self, state: QueueState, request: ClaimRequest, now: int) -> Claimed:
        claimed = claim.claim(state, request, now)
        if request.waiter and not claimed.deliveries:
            later = claimed.next_wake + self._spread(state.name, request.waiter)
            return claimed._replace(next_wake=min(later, state.policy.lease // 3))
        return claimed

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        return self.turn(queue, settlements, (), None).settled

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        check_receipts(queue, receipts)
        check_span("lease", lease)
        return self._change(queue, lambda state, now: settle.renew(state, receipts, lease, now))

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
        return self._change(
            queue, lambda state, now: settle.extend(state, receipts, span, lease, checkpoint, now)
        )

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        check_limit(limit)
        triggered_by = cut_text(triggered_by, "triggered_by")
        return self._change(queue, lambda state, now: sweep.sweep(state, now, limit, triggered_by))

    # --- looking and operating --------------------------------------------------------------

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        check_batch(ids)

        def look(state: QueueState, now: int) -> list[Entry | None]:
            slots = (state.visible(id, now) for id in ids)
            return [slot.entry() if slot else None for slot in slots]

        return self._look(queue, look)

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
        return self._look(
            queue, lambda seen, now: operate.find(seen, state, cursor, limit, group, correlation_id, now)
        )

    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        check_limit(limit)
        check_after(after)
        return self._look(queue, lambda state, now: state.groups(after, limit))

    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        check_tally(state, edges, group)
        return self._look(queue, lambda seen, now: seen.tally(state, edges, group))

    def backlog(self, queue: str) -> Backlog:
        return self._look(queue, lambda state, now: state.backlog())

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        self.check_moves(moves)
        return self._change(queue, lambda state, now: operate.move(state, moves, now))

    def pause(self, queue: str, reason: str = "", *, span: int | None = None) -> None:
        reason = cut_text(reason, "reason")
        check_span("span", span)
        self._change(queue, lambda state, now: state.pause(reason, span, now), make=True)

    def resume(self, queue: str) -> None:
        def step(state: QueueState, now: int) -> None:
            if state.paused:
                state.unpause(now)
                state.unblock()

        self._change(queue, step)

    def purge(self, queue: str) -> int:
        def step(state: QueueState, now: int) -> tuple[int, object]:
            count, doomed = state.clear_waiting()
            state.counters["purged"] += count
            if count:
                state.tell(now, Event.PURGE, [], count=count)
            return count, doomed

        # What is doomed is freed here, after the step: a million messages take a while.
        return self._change(queue, step)[0]

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        check_limit(limit)
        return self._look(queue, lambda state, now: self._read_log(state, after, limit))
