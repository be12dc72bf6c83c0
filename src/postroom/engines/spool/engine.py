"""The engine with two sides: every verb, and which side answers it. See the package for the decisions."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, TypeVar

from postroom.checks import check_receipts, check_turn
from postroom.engine import Capabilities, ClaimRequest, Engine, QueueInfo
from postroom.engines.spool import parcels
from postroom.engines.spool.bound import CAPACITY, MAX_BYTES, Bound
from postroom.engines.spool.debts import Debts
from postroom.engines.spool.doubts import Doubts
from postroom.engines.spool.errands import Errands
from postroom.engines.spool.gate import Gate
from postroom.engines.spool.inspection import inspect
from postroom.engines.spool.line import Line, Side, Switch, quietly
from postroom.engines.spool.mirror import Mirror
from postroom.engines.spool.mover import Mover
from postroom.engines.spool.only_in_redis import OnlyInRedis
from postroom.engines.spool.receipts import Split, bare, bare_settlement, marked, with_waiter
from postroom.engines.spool.records import SpoolRecords
from postroom.engines.spool.waiting import SpoolWaiter
from postroom.engines.spool.watch import Watch
from postroom.engines.steps.engine import wall_clock
from postroom.errors import Conflict, EngineUnavailable, PostroomError, Uncertain
from postroom.findings import Finding
from postroom.limits import MAX_BODY, check_span
from postroom.model import (
    Accepted,
    Claimed,
    NewMessage,
    Outcome,
    Receipt,
    Settlement,
    Swept,
    Turned,
    Verb,
)
from postroom.policy import Policy
from postroom.records import Records
from postroom.stats import Memory, QueueStats
from postroom.waiter import Waiter

log: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

#: What is put was checked before it comes to the spool, where held messages are somewhat larger.
_ANY_SIZE = 2**30


class SpoolEngine(OnlyInRedis):
    capabilities: ClassVar[Capabilities] = Capabilities(durable=True, shared=True, blocking=True)

    def __init__(
        self,
        primary: Callable[[], Engine],
        spool: Engine,
        *,
        timeout: int = 2_000,
        capacity: int = CAPACITY,
        max_bytes: int = MAX_BYTES,
        max_body: int = MAX_BODY,
        uncertain: Callable[[BaseException], bool] = lambda error: True,
        on_switch: Callable[[Switch], None] | None = None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        """`primary` connects to Redis, or raises. Its engine and the spool are closed with this one.

        timeout     how long an answer may take (ms) before the spool takes over: `health_check_timeout`
        capacity    the most messages the spool may hold, and `max_bytes` of their bodies, about
        uncertain   whether the call that an error of the primary ended may have been done all the same
        on_switch   called with each switch, from whichever thread notices; must not block
        """
        self.max_body = max_body
        self.on_switch = on_switch
        self.spool = spool
        spool.max_body = _ANY_SIZE
        self._clock = clock
        self._mirror = Mirror(spool, clock)
        self._waiters: weakref.WeakSet[SpoolWaiter] = weakref.WeakSet()
        self._line = Line(primary, Errands(timeout / 1_000), uncertain, self._switched)
        self._debts = Debts()
        self._doubts = Doubts()
        self._mover = Mover(spool, self._is_closing)
        self._gate = Gate()
        self._watch = Watch(self._line, self._debts, self._mover, self._gate, self._mirror.restore)
        self._bound = Bound(capacity, max_bytes, lambda: self._watch.fill)
        self.records: Records = SpoolRecords(self._line)
        try:
            self._line.open()
        except BaseException:
            spool.close()
            raise
        self._watch.ensure()
        _engines.add(self)

    # --- which side -------------------------------------------------------------------------

    @property
    def redis_active(self) -> bool:
        return self._line.active

    def side(self) -> Side:
        """Which side is active, and what waits here for Redis."""
        line, bound = self._line, self._bound
        return Side(line.active, line.since, line.reason, bound.messages, bound.bytes, len(self._debts))

    def _switched(self, switch: Switch) -> None:
        self._watch.note(switch)
        if not switch.redis_active:
            self._debts.recall()
        for waiter in list(self._waiters):
            waiter.follow()
            waiter.ring()  # there may be something on the other side
        if self.on_switch:
            self.on_switch(switch)

    def _ask(self, call: Callable[[Engine], T], on_late: Callable[[T], object] | None = None) -> T:
        self._watch.ensure()
        return self._line.ask(call, on_late)

    def _is_closing(self) -> bool:
        return self._watch.is_closed()

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: str, policy: Policy) -> None:
        """While Redis is away: here, and there as soon as it is back."""
        try:
            self._ask(lambda primary: primary.declare(queue, policy))
        except EngineUnavailable:
            self._debts.declare(queue, policy)
        self._mirror.declare(queue, policy)

    def drop(self, queue: str, *, force: bool = False, by: str = "", why: str = "") -> int:
        self._ask(lambda primary: None)  # not while Redis is away
        here = self.spool.stats(queue)
        rest = here.depth + here.processing + here.dead
        if rest and not force:
            raise Conflict(f"{queue}: there are still messages in the spool; wait until they are moved")
        count = self._line.ask_long(lambda primary: primary.drop(queue, force=force, by=by, why=why))
        with suppress(Conflict):  # it went away meanwhile, and this was put after the drop
            self.spool.drop(queue, force=force, by=by, why=why)
        self._mirror.forget(queue)
        return count + rest

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        try:
            infos = self._ask(lambda primary: primary.queues(names))
        except EngineUnavailable:
            return self.spool.queues(names)
        for info in infos if names else ():
            self._mirror.note(info)
        return infos

    def stats(self, queue: str) -> QueueStats:
        """Those of the active side; `side` tells how much is in the spool."""
        try:
            return self._ask(lambda primary: primary.stats(queue))
        except EngineUnavailable:
            return self.spool.stats(queue)

    def memory(self) -> Memory | None:
        """That of Redis; nothing is known of it while it is away."""
        try:
            return self._ask(lambda primary: primary.memory())
        except EngineUnavailable:
            return None

    # --- putting ----------------------------------------------------------------------------

    def put(self, queue: str, messages: Sequence[NewMessage]) -> Accepted:
        self.check_put(messages)
        window = self._mirror.dedupe_window(queue)
        remembered = parcels.remembered(messages, window)
        error: EngineUnavailable | None = None
        if self._line.active:
            try:
                return self._ask(lambda primary: primary.put(queue, remembered))
            except Uncertain:
                self._doubts.note(messages)
                raise
            except EngineUnavailable as failed:
                error = failed
        unsure = error is not None and self._line.is_uncertain(error)
        with self._gate.entered():
            if error is not None or not self._line.active:
                held = unsure or self._doubts.about(messages) or parcels.may_be_repeated(messages, window)
                try:
                    return self._spool_put(queue, remembered, held)
                except PostroomError:
                    if unsure:  # the caller will repeat it, perhaps when nobody remembers why
                        self._doubts.note(messages)
                    raise
        return self.put(queue, messages)  # Redis came back meanwhile

    def _spool_put(self, queue: str, messages: list[NewMessage], hold: bool) -> Accepted:
        if any(message.unique_key for message in messages):
            raise EngineUnavailable(f"Redis is away, and only it can keep a unique_key: {self._line.reason}")
        self._bound.admit(messages)
        self._watch.ensure()
        accepted = self.spool.put(queue, parcels.held(messages, self._clock()) if hold else messages)
        self._bound.add(messages)
        if self._line.active:
            self._watch.hurry()
        return accepted

    # --- deliveries -------------------------------------------------------------------------

    def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        return self.turn(queue, (), (), request).claimed

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        """Each receipt goes to the side that gave it; the claim to the active one."""
        check_turn(queue, settlements, starts, request)
        settles, begins = Split([each.receipt for each in settlements]), Split(starts)
        any_near = settles.any_near or begins.any_near
        far, away = Turned([], [], Claimed([])), False
        if request or not any_near or settles.any_far or begins.any_far:
            far, away = self._far_turn(queue, settles.far(settlements), begins.far(starts), request)
        here = request if away else None
        near = Turned([], [], far.claimed)
        if any_near or here:
            ours = [bare_settlement(each) for each in settles.near(settlements)]
            try:
                near = self._near_turn(queue, ours, list(map(bare, begins.near(starts))), here)
            except BaseException:
                self._release(far)  # nobody will ever hear of what it claimed
                raise
        return Turned(
            settles.joined(near.settled, far.settled),
            begins.joined(near.started, far.started),
            near.claimed if here else far.claimed,
        )

    def _far_turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> tuple[Turned, bool]:
        """The turn in Redis; True: it is away, and what it had to be told is owed."""
        asked = with_waiter(request, lambda waiter: waiter.far) if request else None
        try:
            turned = self._ask(
                lambda primary: primary.turn(queue, settlements, starts, asked), on_late=self._release
            )
        except EngineUnavailable:
            # A start whose handler never runs must not count as an attempt.
            releases = [Settlement(receipt, Verb.RELEASE) for receipt in starts]
            self._owe([*settlements, *releases])
            return Turned([Outcome.OK] * len(settlements), [Outcome.LOST] * len(starts), Claimed([])), True
        self._debts.note(settlements)
        return turned, False

    def _release(self, late: Turned) -> None:
        """Hand back what a claim brought for which nobody waits any more."""
        deliveries = late.claimed.deliveries
        if deliveries:
            quietly(lambda: self._owe([Settlement(each.receipt, Verb.RELEASE) for each in deliveries]))

    def _owe(self, settlements: Sequence[Settlement]) -> None:
        self._debts.owe(settlements)
        if settlements and self._line.active:
            self._watch.hurry()

    def _near_turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        asked = with_waiter(request, lambda waiter: waiter.near) if request else None
        turned = self.spool.turn(queue, settlements, starts, asked)
        deliveries = [marked(leased) for leased in turned.claimed.deliveries]
        return turned._replace(claimed=turned.claimed._replace(deliveries=deliveries))

    def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Outcome]:
        return self.turn(queue, settlements, (), None).settled

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        """While Redis is away nobody can lose a delivery of it; its lease is renewed on return."""
        check_receipts(queue, receipts)
        check_span("lease", lease)
        split = Split(receipts)
        near = self.spool.renew(queue, split.bare(), lease) if split.any_near else []
        theirs = split.far(receipts)
        try:
            ask = theirs or not receipts  # to renew nothing is a call too
            far = self._ask(lambda primary: primary.renew(queue, theirs, lease)) if ask else []
        except EngineUnavailable:
            self._debts.renew(theirs, lease)
            far = [Outcome.OK] * len(theirs)
        return split.joined(near, far)

    def extend(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        span: int | None = None,
        lease: int | None = None,
        checkpoint: bytes | None = None,
    ) -> list[Outcome]:
        split = Split(receipts)
        theirs = split.far(receipts)

        def extend(engine: Engine, receipts: Sequence[Receipt]) -> list[Outcome]:
            return engine.extend(queue, receipts, span=span, lease=lease, checkpoint=checkpoint)

        far = self._ask(lambda primary: extend(primary, theirs)) if theirs or not receipts else []
        near = extend(self.spool, split.bare()) if split.any_near else []
        return split.joined(near, far)

    def sweep(self, queue: str, *, limit: int = 100, triggered_by: str = "scheduler") -> Swept:
        try:
            return self._ask(lambda primary: primary.sweep(queue, limit=limit, triggered_by=triggered_by))
        except EngineUnavailable:
            return self.spool.sweep(queue, limit=limit, triggered_by=triggered_by)

    def waiter(self, queues: Iterable[str], topics: Iterable[str] = ()) -> Waiter:
        names, about = frozenset(queues), frozenset(topics)
        near = self.spool.waiter(names, about)
        waiter = SpoolWaiter(self._line, near, lambda primary: primary.waiter(names, about))
        self._waiters.add(waiter)
        waiter.follow()  # the line may have changed before it was known
        return waiter

    def ring(self, queues: Iterable[str]) -> None:
        names = list(queues)
        self.spool.ring(names)
        quietly(lambda: self._ask(lambda primary: primary.ring(names)))

    # --- operating --------------------------------------------------------------------------

    def pause(self, queue: str, reason: str = "", *, span: int | None = None) -> None:
        self._ask(lambda primary: primary.pause(queue, reason, span=span))
        self._mirror.pause(queue, True, reason, None if span is None else self._clock() + span)

    def resume(self, queue: str) -> None:
        self._ask(lambda primary: primary.resume(queue))
        self._mirror.pause(queue, False)

    def purge(self, queue: str) -> int:
        """Of both sides: what waits in the spool for Redis waits too."""
        count = self._line.ask_long(lambda primary: primary.purge(queue))
        return count + self.spool.purge(queue)

    # --- the engine itself ------------------------------------------------------------------

    def now(self) -> int:
        try:
            return self._ask(lambda primary: primary.now())
        except EngineUnavailable:
            return self._clock()

    def inspect(self) -> list[Finding]:
        return inspect(self.side(), self.spool, self._ask)

    # --- the end, and forks -----------------------------------------------------------------

    def close(self) -> None:
        """What Redis is owed is told if it is there; what is in the spool stays there."""
        if self._line.is_closed:
            return
        self._watch.close()
        if self._debts.pending:
            quietly(lambda: self._ask(self._debts.pay))
        if owed := len(self._debts):
            extra = {"event": "spool.owed", "count": owed}
            log.warning(
                "closed while Redis is away: %d settles are lost, the work will be repeated",
                owed,
                extra=extra,
            )
        self._line.close()
        self._watch.join()
        self.spool.close()

    def after_fork_in_child(self) -> None:
        """Deliveries, waiters and threads belong to the parent."""
        if self._line.is_closed:
            return
        self._bound.forked()
        self._gate.forked()
        self._doubts.forked()
        self._waiters = weakref.WeakSet()
        self._debts.forget()
        self._line.forked()
        self._watch.forked()


_engines: weakref.WeakSet[SpoolEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork)
