"""The one thread of a worker that talks to the engine.

Every turn settles what the hands have finished, reports what they begin next and claims more, in
one round trip. It reaches ahead only as far as the pace of the handlers allows, and a start is
reported before its handler runs: a killed worker costs an attempt only to what it had begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from postroom.breaker import Breaker
from postroom.delivery import Delivery
from postroom.engine import ClaimRequest
from postroom.errors import EngineUnavailable
from postroom.limits import MAX_BATCH
from postroom.model import BlockedBy, Claimed, Outcome, Settlement, Verb
from postroom.recent import RecentSettles
from postroom.role import Share
from postroom.room import Room
from postroom.rotation import Rotation
from postroom.worker.attention import Attention
from postroom.worker.crew import Crew
from postroom.worker.hands import Hands, Starts
from postroom.worker.held import Held
from postroom.worker.listener import Listener

log: logging.Logger = logging.getLogger(__name__)

#: Work that no hand could begin for this long is handed back (s): it should have begun within a moment.
_STALL = 0.1
#: A worker that has enough to do still looks for a suspect this often (seconds).
_SUSPECTS = 1.0
#: A queue that gave nothing and wants to be asked again at once is left alone for this long (seconds).
_LEAST_WAIT = 0.005
#: A queue whose breaker is open is looked at again at least this often (seconds).
_BREAKER = 1.0
#: The name under which the hands ring; no queue can have it.
_HANDS = "\0hands"

Pending = tuple[Delivery, Settlement]


class Dispatcher:
    """What a worker holds, and the rounds in which it comes and goes."""

    def __init__(
        self,
        room: Room,
        rotation: Rotation,
        crew: Crew,
        concurrency: int,
        prefetch: int | None,
        shares: Mapping[str, Share],
        name: str,
        breakers: Mapping[str, Breaker],
    ) -> None:
        self._room = room
        self._rotation = rotation
        self._crew = crew
        self._prefetch = prefetch
        self._shares = {queue: shares[queue] for queue in rotation.queues if queue in shares}
        self._name = name
        self._breakers = breakers
        #: Queues that were not asked because of their breaker.
        self._held_up: set[str] = set()
        self._listener = Listener(room, rotation.queues, self._shares)
        self._asleep = False
        #: Everything this worker has not settled yet: what the heartbeat renews.
        self._ours: set[Delivery] = set()
        self._held = Held(rotation.queues)
        self._pending: dict[str, list[Pending]] = {queue: [] for queue in rotation.queues}
        self._recent = RecentSettles()
        self._hands = Hands(concurrency, prefetch, self._shares, crew.pace, self._held)
        #: When a hand last finished something, or a free one was given something.
        self._moved_at = time.monotonic()
        self._attention = Attention()
        self._leaving = False
        #: When a hand was last kept for a suspect.
        self._suspects_at = time.monotonic()
        #: When to ask each queue again, what of ours stood in the way, which had nothing when last asked.
        self._ask_at = dict.fromkeys(rotation.queues, 0.0)
        self._blocked: dict[str, BlockedBy | None] = {}
        self._dry: set[str] = set()
        self._sure = False

    def holding(self) -> list[Delivery]:
        return list(self._ours)

    def wake(self) -> None:
        """Have the dispatcher look at what the hands have finished."""
        if self._asleep:
            self._asleep = False
            self._listener.ring(_HANDS)

    def interrupt(self) -> None:
        """Have the dispatcher look whether it should stop."""
        self._listener.ring()

    def close(self) -> None:
        self._listener.close()

    @property
    def busy(self) -> bool:
        """Whether anything is in hand, held, or not yet settled."""
        return bool(self._ours)

    def done(self) -> bool:
        """Whether nothing is left: nothing here, and nothing ready in any queue when asked once more.

        Asked once more because a queue that had nothing may have got something from the last handlers.
        """
        if self.busy or any(map(self._has_ready, self._rotation.queues)):
            self._sure = False
        elif not self._sure:
            self._sure = True
            self._dry.clear()
            self.ask_again()
            return False
        return self._sure

    def _has_ready(self, queue: str) -> bool:
        # A queue that gave nothing because of its rate or its limit may have had nothing anyway.
        return queue not in self._dry and self._room.engine.stats(queue).ready > 0

    # --- rounds -----------------------------------------------------------------------------

    def round(self, *, claiming: bool = True) -> bool:
        """Exchange with every queue what there is to exchange; whether there was anything.

        When the engine cannot be reached this raises, and everything is kept for the next round.
        """
        self._collect()
        self._unstall()
        if self._attention.is_lost():
            self.ask_again()
        self._heed_breakers()
        starts = self._choose_starts() if claiming else {}
        did = False
        try:
            for queue in self._sequence(claiming):
                request = self._request(queue, starts) if claiming else None
                if self._pending[queue] or starts.get(queue) or request:
                    self._turn(queue, starts, request)
                    did = True
        except Exception:
            for queue, unstarted in starts.items():
                self._held.put_back(queue, unstarted)
            raise
        self._attention.regained()
        return did

    def rest(self, limit: float) -> None:
        """Sleep until there is something to do, at most `limit` seconds."""
        roomy = [] if self._leaving else self._roomy()
        # Whoever cannot take more hands its ring on; whoever can, asks once more before it sleeps.
        if new := self._listener.arm(roomy):
            self._ask_at |= dict.fromkeys(new, 0.0)
            return
        self._asleep = True
        if not self._crew.finished:
            self._heard(self._listener.wait(self._nap(limit, roomy)))
            if roomy:
                self._attention.heard()
        self._asleep = False

    def let_go(self) -> None:
        """Hand back whatever no handler has begun, and take no more."""
        self._leaving = True
        self._release_started()
        self._release_held(0)

    def come_back(self) -> None:
        """Take again, after `let_go`."""
        self._leaving = False
        self.ask_again()

    def _nap(self, limit: float, roomy: list[str]) -> float:
        if self._waits_behind():
            limit = min(limit, _STALL)
        if roomy:
            limit = min(limit, min(self._ask_at[queue] for queue in roomy) - time.monotonic())
        return max(0.0, limit)

    def _heard(self, names: frozenset[str]) -> None:
        if "" in names:
            self.ask_again()
        for name in names & self._ask_at.keys():
            self._ask_at[name] = 0.0

    def ask_again(self) -> None:
        """Forget what the queues have answered: the next round asks them all."""
        self._ask_at = dict.fromkeys(self._ask_at, 0.0)

    # --- what goes into a turn --------------------------------------------------------------

    def _collect(self) -> None:
        """What the hands have finished since the last round."""
        finished = self._crew.finished
        if finished:
            self._moved_at = time.monotonic()
        while finished:
            delivery, settlement = finished.popleft()
            self._hands.leave(delivery.queue)
            if settlement is None:
                self._ours.discard(delivery)
            else:
                self._settle_later(delivery, settlement)

    def _settle_later(self, delivery: Delivery, settlement: Settlement) -> None:
        self._pending[delivery.queue].append((delivery, settlement))

    def _hand_back(self, delivery: Delivery) -> None:
        self._settle_later(delivery, Settlement(delivery.receipt, Verb.RELEASE))

    def _unstall(self) -> None:
        """All hands are busy with something long: let others have what waits behind it."""
        if self._waits_behind() and time.monotonic() - self._moved_at > _STALL:
            self._crew.pace.note_stall(_STALL)
            self._release_started()
            self._release_held(self._hands.ahead())

    def _waits_behind(self) -> bool:
        """Whether others could have something that waits for a hand; a given prefetch is ours to hold."""
        behind = self._hands.are_behind and self._crew.backlog > 0
        return behind or (self._prefetch is None and len(self._held) > 0)

    def _release_started(self) -> None:
        for delivery in self._crew.take_back():
            self._hands.leave(delivery.queue)
            self._hand_back(delivery)

    def _release_held(self, keep: int) -> None:
        """Hand back what is held beyond so many."""
        for delivery in self._held.give_up_beyond(keep):
            self._hand_back(delivery)

    def _heed_breakers(self) -> None:
        """Hand back what was claimed before its breaker opened, and go on where one let us."""
        for queue in self._breakers.keys() & self._ask_at.keys():
            probes = self._probes(queue)
            while probes is not None and self._held.of(queue):
                self._hand_back(self._held.give_up(queue))
            if probes == 0:
                self._held_up.add(queue)
                wait = self._breakers[queue].retry_after() or _BREAKER
                self._ask_at[queue] = time.monotonic() + min(wait, _BREAKER)
            elif queue in self._held_up:
                self._held_up.discard(queue)
                self._ask_at[queue] = 0.0

    def _probes(self, queue: str) -> int | None:
        """How many more of this queue its breaker lets through; None: as many as come."""
        breaker = self._breakers.get(queue)
        limit = breaker.limit() if breaker else None
        if not limit:
            return limit
        return max(0, limit - sum(receipt.queue == queue for receipt in self._ours))

    def _roomy(self) -> list[str]:
        """The queues of which something more can be taken now."""
        if self._hands.space() <= 0:
            return []
        return [
            queue
            for queue in self._rotation.queues
            if queue not in self._shares or self._hands.claimable(queue, self._hands.startable(queue, {}))
        ]

    def _choose_starts(self) -> Starts:
        """Held messages for the free hands, taking turns between queues."""
        starts: Starts = {}
        free = self._hands.free() - self._kept_for_a_suspect()
        while free > 0 and (queue := self._next_to_start(starts)):
            delivery = self._held.take(queue)
            self._rotation.gave(queue)
            if delivery.lost:
                self._ours.discard(delivery)
                continue
            starts.setdefault(queue, []).append(delivery)
            free -= 1
        return starts

    def _next_to_start(self, starts: Starts) -> str | None:
        """The queue whose turn it is, of those that have something held and may start it."""
        if not self._held:
            return None
        for queue in self._rotation.sequence(self._urgency):
            if self._held.of(queue) and (queue not in self._shares or self._hands.startable(queue, starts)):
                return queue
        return None

    def _kept_for_a_suspect(self) -> bool:
        """Whether to leave a hand to the coming claim: only that brings a suspect, or it would starve."""
        now = time.monotonic()
        keep = now - self._suspects_at > _SUSPECTS and min(self._ask_at.values()) <= now
        if keep:
            self._suspects_at = now
        return keep

    def _urgency(self, queue: str) -> int:
        """The priority of the next message held; below all priorities if there is none."""
        held = self._held.of(queue)
        return held[0].priority if held else -1

    def _sequence(self, claiming: bool) -> list[str]:
        # The order matters only to a claim, and by priority it costs a question to every queue.
        return (
            self._rotation.sequence() if claiming and self._hands.space() > 0 else list(self._rotation.queues)
        )

    def _request(self, queue: str, starts: Starts) -> ClaimRequest | None:
        early = time.monotonic() < self._ask_at[queue]
        if early and not self._blocked.get(queue):
            return None  # mostly so, and with many queues this is what a round consists of
        start = self._hands.startable(queue, starts)
        space = min(self._hands.space(sum(map(len, starts.values()))), self._hands.claimable(queue, start))
        early = early and not self._lifts(queue, start)
        probes = self._probes(queue)
        if probes is not None:
            # What is not begun at once would only be handed back.
            space = min(space, start, probes)
        if early or space <= 0:
            return None
        return ClaimRequest(
            n=min(space, MAX_BATCH),
            start=start,
            # A suspect always comes started, so somebody must be free to begin it.
            suspects=start > 0,
            lease=self._room.policy(queue, among=self._rotation.queues).lease,
            consumer=self._name,
            waiter=self._listener.waiter(queue),
        )

    def _lifts(self, queue: str, start: int) -> bool:
        """Whether this turn itself lifts what stood in the way: it settles, or has a hand for a suspect."""
        blocked = self._blocked.get(queue)
        if blocked is BlockedBy.MAX_IN_FLIGHT:
            return bool(self._pending[queue])
        return blocked is BlockedBy.SUSPECT and start > 0

    # --- a turn -----------------------------------------------------------------------------

    def _turn(self, queue: str, starts: Starts, request: ClaimRequest | None) -> None:
        pending = self._pending[queue][:MAX_BATCH]
        starting = starts.get(queue, [])
        try:
            deliveries, turned = self._room.turn(
                queue,
                [settlement for _, settlement in pending],
                [delivery.receipt for delivery in starting],
                request,
            )
        except EngineUnavailable:
            for delivery, _ in pending:
                delivery.unanswered = True
            raise
        starts.pop(queue, None)
        del self._pending[queue][: len(pending)]
        self._recent.note([settlement for _, settlement in pending], time.monotonic())
        for (delivery, settlement), outcome in zip(pending, turned.settled, strict=True):
            self._settled(delivery, settlement, outcome)
        for delivery, outcome in zip(starting, turned.started, strict=True):
            self._begin(delivery, outcome)
        if request:
            self._claimed(queue, deliveries, turned.claimed, request)

    def repeat(self) -> None:
        """The store was away: settle again what it may have lost."""
        self._recent.repeat(self._room.engine)

    def _settled(self, delivery: Delivery, settlement: Settlement, outcome: Outcome) -> None:
        verb = settlement.verb
        self._ours.discard(delivery)
        if not delivery.note_settled(verb, outcome):
            extra = {"event": "delivery.lost", "outcome": str(outcome), **delivery.log_extra}
            log.warning(
                "settled too late: %r is %s; raise its ack_timeout, or extend it",
                delivery,
                outcome,
                extra=extra,
            )

    def _begin(self, delivery: Delivery, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            if not self._hands.are_busy:
                self._moved_at = time.monotonic()
            self._hands.take(delivery.queue)
            self._crew.hand(delivery)
        else:
            self._ours.discard(delivery)

    def _claimed(
        self, queue: str, deliveries: list[Delivery], claimed: Claimed, request: ClaimRequest
    ) -> None:
        for delivery, leased in zip(deliveries, claimed.deliveries, strict=True):
            self._ours.add(delivery)
            if leased.started:
                self._begin(delivery, Outcome.OK)
            else:
                self._held.add(queue, delivery)
        if deliveries:
            self._sure = False
            self._dry.discard(queue)
            self._rotation.gave(queue)
            return
        # Never in a tight circle, whatever a queue answers.
        self._ask_at[queue] = time.monotonic() + (claimed.next_wake / 1_000 or _LEAST_WAIT)
        busy_elsewhere = claimed.blocked_by is BlockedBy.SUSPECT and request.suspects
        self._blocked[queue] = None if busy_elsewhere else claimed.blocked_by
        if claimed.blocked_by in (None, BlockedBy.PAUSE):
            self._dry.add(queue)
        else:
            self._dry.discard(queue)
