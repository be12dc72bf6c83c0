"""One message, two consumers and a clock: claim, start, renew, settle, sweep, and all that goes wrong.

At any moment a consumer may die, an answer may be lost, a heartbeat may fail to come and a sweep may be late.
`Store` is what an engine keeps of the message, with the same words; the functions on it stand for the steps
of `postroom.engines.steps`, named in their docstrings. `replay` holds both against each other.
Times are counted in ticks that are left, so that there is no end of different clocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tests.model.explorer import Action, Step

LEASE, ACK_TIMEOUT, MAX_ATTEMPTS, SUSPECT_AFTER = 1, 2, 2, 2
CONSUMERS, RELEASES, DELAY = 2, 1, 1
#: Every claim ends in an attempt, a stray or a release, and each of them is limited.
MOST_DELIVERIES = MAX_ATTEMPTS + SUSPECT_AFTER + RELEASES

NO_LOSS = "no loss"
NO_DOUBLE_SETTLE = "no double settle"
NO_STALE_ANSWER = "no ok for a stale holder"
LEASES_LAST = "nobody loses a lease before its deadline"
ONE_HOLDER = "one holder at a time"
WORK_IN_TIME = "no work beyond its ack_timeout"
BOUNDED = "bounded deliveries"
PUT_ONCE = "one put is one message"


class Rules(NamedTuple):
    """What the protocol consists of. Each can be left out, and then a property must break."""

    put_knows_ids: bool = True
    claim_is_one_step: bool = True
    settle_checks_token: bool = True
    holding_on_checks_token: bool = True
    token_is_new_with_every_claim: bool = True
    token_ends_with_the_settle: bool = True
    token_ends_with_the_reclaim: bool = True
    start_is_asked_for: bool = True
    ack_follows_the_effect: bool = True
    retry_is_one_step: bool = True
    renewal_stays_within_ack_timeout: bool = True
    overdue_are_reclaimed: bool = True
    sweep_waits_for_the_deadline: bool = True
    run_outs_are_counted: bool = True
    strays_become_suspects: bool = True
    exhausted_are_kept: bool = True
    due_are_promoted: bool = True


#: The protocol as it is.
ALL = Rules()


class Store(NamedTuple):
    """The message in its store; `holder` is the delivery whose token is good, the times are ticks left."""

    place: str = "absent"
    holder: int = 0
    started: bool = False
    left: int = 0
    ack_left: int = 0
    due_left: int = 0
    attempt: int = 0
    deliveries: int = 0
    ran_out: bool = False
    strays: int = 0

    @property
    def overdue(self) -> bool:
        return self.place == "processing" and self.left == 0


class Hand(NamedTuple):
    """A consumer with a delivery. `trust` is for how long it knows that nobody else can have it."""

    delivery: int
    phase: str
    trust: int


class State(NamedTuple):
    """Everything: the producer, the store, the consumers, and what only the judge knows."""

    producer: str = "new"
    store: Store = Store()
    hands: tuple[Hand, ...] = ()
    released: int = 0
    created: int = 0
    effect: bool = False
    settled: frozenset[int] = frozenset()

    def __str__(self) -> str:
        store, hands = self.store, ", ".join(f"{hand.delivery} {hand.phase}" for hand in self.hands)
        held = f" by delivery {store.holder}, {store.left} ticks left" if store.place == "processing" else ""
        return f"{store.place}{held}; attempt {store.attempt}; at the consumers: {hands or 'nothing'}"

    def with_hand(self, hand: Hand) -> State:
        others = [other for other in self.hands if other.delivery != hand.delivery]
        return self._replace(hands=tuple(sorted([*others, hand])))

    def without(self, delivery: int) -> State:
        return self._replace(hands=tuple(hand for hand in self.hands if hand.delivery != delivery))


class LeaseModel:
    """All that producer, consumers, keeper and time can do, by these rules."""

    initial = State()

    def __init__(self, rules: Rules = ALL) -> None:
        self.rules = rules

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._put(state)
        yield from self._claim(state)
        for hand in state.hands:
            yield from self._work(state, hand)
            yield from self._settle(state, hand)
            yield from self._hold_on(state, hand)
            yield Step(Action("die", hand.delivery), state.without(hand.delivery))
        yield from self._sweep(state)
        yield from self._tick(state)

    def broken(self, state: State) -> str:
        store, alive = state.store, {hand.phase for hand in state.hands}
        if state.created > 1:
            return PUT_ONCE
        if state.created and store.place == "absent" and not alive & {"popped", "putting back"}:
            return NO_LOSS
        if store.place == "done" and not state.effect and "acked early" not in alive:
            return NO_LOSS
        if sum(hand.trust > 0 for hand in state.hands) > 1:
            return ONE_HOLDER
        if store.started and store.left > store.ack_left:
            return WORK_IN_TIME
        return BOUNDED if store.deliveries > MOST_DELIVERIES else ""

    def kind(self, state: State, step: Step[State]) -> Hashable:
        return step.action, state.store, step.state.store

    def is_end(self, state: State) -> bool:
        return state.store.place in {"done", "dead"}

    # --- the producer -----------------------------------------------------------------------

    def _put(self, state: State) -> Iterator[Step[State]]:
        """`Engine.put`, repeated under the same id until it is answered (steps/put.py)."""
        if state.producer == "told":
            return
        known = state.created and self.rules.put_knows_ids
        new = state if known else state._replace(store=Store("ready"), created=state.created + 1)
        answer = "known" if known else "created"
        yield Step(Action("put", answer=answer), new._replace(producer="told"))
        yield Step(Action("put", answer=answer, unheard=True), new._replace(producer="unsure"))

    # --- claims -----------------------------------------------------------------------------

    def _claim(self, state: State) -> Iterator[Step[State]]:
        """`Engine.claim`: reclaim, promote, then lease in the same step (steps/claim.py)."""
        if len(state.hands) == CONSUMERS:
            return
        store = self._promoted(self._reclaimed(state.store))
        swept = self._swept(state, store)
        if store.place != "ready":
            if store != state.store:
                yield Step(Action("claim", answer="nothing"), swept.state, swept.breach)
            return
        if not self.rules.claim_is_one_step:
            taken = Hand(store.deliveries + 1, "popped", LEASE)
            yield Step(Action("claim", how="pop"), state._replace(store=Store()).with_hand(taken))
            return
        for how in ("started", "prefetched"):
            leased = self._leased(store, how == "started")
            number, next = leased.holder, swept.state._replace(store=leased)
            phase = "works" if leased.started else "holds"
            hand = Hand(number, phase, leased.left)
            answer = f"delivery {number}"
            yield Step(Action("claim", how=how, answer=answer), next.with_hand(hand), swept.breach)
            yield Step(Action("claim", how=how, answer=answer, unheard=True), next, swept.breach)

    def _leased(self, store: Store, started: bool) -> Store:
        """A fresh token and a deadline; a suspect is claimed as started (steps/claim.py: _lease)."""
        suspect = store.ran_out or (self.rules.strays_become_suspects and store.strays >= SUSPECT_AFTER)
        number = store.deliveries + 1
        leased = store._replace(place="processing", holder=number, deliveries=number, left=LEASE)
        return _begun(leased) if started or suspect else leased

    # --- at the consumer --------------------------------------------------------------------

    def _work(self, state: State, hand: Hand) -> Iterator[Step[State]]:
        """The handler, which nobody sees from outside: it has its effect, or it fails."""
        if hand.phase == "popped":  # only if a claim is two steps
            kept = self._leased(Store("ready", deliveries=hand.delivery - 1), True)
            yield Step(
                Action("keep", hand.delivery),
                state._replace(store=kept).with_hand(hand._replace(phase="works")),
            )
        if hand.phase in {"works", "acked early"}:
            did = state.without(hand.delivery)
            if hand.phase == "works":
                did = state.with_hand(hand._replace(phase="did"))
            yield Step(Action("work", hand.delivery, "has its effect"), did._replace(effect=True))
        if hand.phase == "works":
            yield Step(Action("work", hand.delivery, "fails"), state.with_hand(hand._replace(phase="failed")))

    def _hold_on(self, state: State, hand: Hand) -> Iterator[Step[State]]:
        """`Engine.renew` and `Engine.extend`, `Engine.turn` with a start (steps/settle.py: renew, extend)."""
        store, fits = state.store, self._may_hold_on(state.store, hand)
        if hand.phase in {"holds", "works", "did"}:
            longest = (
                store.ack_left if store.started and self.rules.renewal_stays_within_ack_timeout else LEASE
            )
            renewed = store._replace(left=min(LEASE, longest)) if fits else store
            yield from self._asked(state, hand, Action("renew", hand.delivery), renewed, hand.phase)
        if hand.phase in {"works", "did"}:
            extended = _begun(store) if fits else store
            yield from self._asked(state, hand, Action("extend", hand.delivery), extended, hand.phase)
        if hand.phase == "holds":
            begun = _begun(store) if fits and not store.started else store
            yield from self._asked(state, hand, Action("start", hand.delivery), begun, "works")

    def _asked(
        self, state: State, hand: Hand, action: Action, store: Store, phase: str
    ) -> Iterator[Step[State]]:
        """A call that may prolong a delivery: answered, and not heard."""
        fits = self._may_hold_on(state.store, hand)
        action = action._replace(answer=self._answer(state.store, fits))
        breach = NO_STALE_ANSWER if fits and not _holds(state.store, hand) else ""
        next = state._replace(store=store)
        if fits:
            yield Step(action, next.with_hand(hand._replace(phase=phase, trust=store.left)), breach)
        elif action.verb == "start" and self.rules.start_is_asked_for:
            yield Step(action, next.without(hand.delivery))
        elif action.verb == "start":  # it works all the same, without a token
            yield Step(action, next.with_hand(hand._replace(phase="works", trust=0)), NO_STALE_ANSWER)
        else:
            yield Step(action, next.with_hand(hand._replace(trust=0)))
        yield Step(action._replace(unheard=True), next, breach)

    # --- settling ---------------------------------------------------------------------------

    def _settle(self, state: State, hand: Hand) -> Iterator[Step[State]]:
        """`Engine.settle`: ack, retry, release, bury (steps/settle.py)."""
        if hand.phase in {"did", "repeats ack"}:
            yield from self._ended(state, hand, "ack", state.store._replace(place="done"))
        if hand.phase == "works" and not self.rules.ack_follows_the_effect:
            yield from self._ended(state, hand, "ack", state.store._replace(place="done"), "acked early")
        if hand.phase in {"failed", "repeats retry"}:
            yield from self._retry(state, hand)
        if hand.phase in {"failed", "repeats bury"}:
            yield from self._ended(state, hand, "bury", self._failed(state.store)._replace(place="dead"))
        if hand.phase in {"holds", "works"} and state.released < RELEASES:
            more = state._replace(released=state.released + 1)
            yield from self._ended(more, hand, "release", state.store._replace(place="ready"))
        if hand.phase == "repeats release":
            yield from self._ended(state, hand, "release", state.store._replace(place="ready"))
        if hand.phase == "putting back":  # only if a retry is two steps
            back = state.without(hand.delivery)._replace(store=Store("ready", deliveries=hand.delivery))
            yield Step(Action("put back", hand.delivery), back)

    def _retry(self, state: State, hand: Hand) -> Iterator[Step[State]]:
        failed = self._failed(state.store)
        if not self.rules.retry_is_one_step:
            yield from self._ended(state, hand, "retry", Store(), "putting back")
        elif failed.attempt >= MAX_ATTEMPTS:
            yield from self._ended(state, hand, "retry", failed._replace(place="dead"))
        else:
            waiting = failed._replace(place="scheduled", due_left=DELAY)
            yield from self._ended(state, hand, "retry", waiting)

    def _ended(
        self, state: State, hand: Hand, verb: str, store: Store, phase: str = ""
    ) -> Iterator[Step[State]]:
        """The delivery ends if the receipt fits; answered, and not heard (then the consumer repeats it)."""
        fits = self._fits(state.store, hand) or not (
            self.rules.settle_checks_token or state.store.place != "processing"
        )
        action = Action(verb, hand.delivery, answer=self._answer(state.store, fits))
        next, breach = state, ""
        if fits:
            laid = _laid_down(store, self.rules.token_ends_with_the_settle)
            next = state._replace(store=laid, settled=state.settled | {hand.delivery})
            breach = self._unfair(state, hand)
        heard = next.with_hand(hand._replace(phase=phase)) if fits and phase else next.without(hand.delivery)
        yield Step(action, heard, breach)
        if not phase:
            waits = hand._replace(phase=f"repeats {verb}", trust=0)
            yield Step(action._replace(unheard=True), next.with_hand(waits), breach)

    @staticmethod
    def _unfair(state: State, hand: Hand) -> str:
        """What the judge says to a settle that was answered ok."""
        if state.store.place != "processing" and hand.delivery in state.settled:
            return NO_DOUBLE_SETTLE
        return "" if _holds(state.store, hand) else NO_STALE_ANSWER

    def _fits(self, store: Store, hand: Hand) -> bool:
        """Whether the store takes this receipt for the present delivery's (QueueState.held)."""
        if store.place == "processing" and not self.rules.token_is_new_with_every_claim:
            return True
        return store.holder == hand.delivery

    def _may_hold_on(self, store: Store, hand: Hand) -> bool:
        """The same for what prolongs a delivery (steps/settle.py: _each_held)."""
        anybody = store.place == "processing" and not self.rules.holding_on_checks_token
        return anybody or self._fits(store, hand)

    @staticmethod
    def _answer(store: Store, fits: bool) -> str:
        """steps/settle.py: _missing."""
        return "ok" if fits else "gone" if store.place in {"absent", "done"} else "lost"

    @staticmethod
    def _failed(store: Store) -> Store:
        return store._replace(attempt=store.attempt + 1)

    # --- time -------------------------------------------------------------------------------

    def _sweep(self, state: State) -> Iterator[Step[State]]:
        """`Engine.sweep`: reclaim the overdue, promote the due (steps/sweep.py)."""
        store = self._promoted(self._reclaimed(state.store))
        if store != state.store:
            swept = self._swept(state, store)
            yield Step(Action("sweep", answer=store.place), swept.state, swept.breach)

    def _swept(self, state: State, store: Store) -> Step[State]:
        """The state after a sweep, and whether it took something from somebody who could trust in it."""
        taken = state.store.place == "processing" != store.place
        robbed = taken and any(h.trust and h.delivery == state.store.holder for h in state.hands)
        return Step(Action("sweep"), state._replace(store=store), LEASES_LAST if robbed else "")

    def _reclaimed(self, store: Store) -> Store:
        """Back to its place, or dead when its attempts are used up (steps/sweep.py: _come_back)."""
        ripe = store.overdue or not self.rules.sweep_waits_for_the_deadline
        if store.place != "processing" or not ripe or not self.rules.overdue_are_reclaimed:
            return store
        token_ends = self.rules.token_ends_with_the_reclaim
        if not store.started:
            strays = min(store.strays + 1, SUSPECT_AFTER)
            return _laid_down(store._replace(place="ready", strays=strays), token_ends)
        counted = self._failed(store) if self.rules.run_outs_are_counted else store
        if counted.attempt >= MAX_ATTEMPTS:
            place = "dead" if self.rules.exhausted_are_kept else "absent"
            return _laid_down(counted._replace(place=place, ran_out=True), token_ends)
        return _laid_down(counted._replace(place="ready", ran_out=True), token_ends)

    def _promoted(self, store: Store) -> Store:
        """steps/sweep.py: promote."""
        due = store.place == "scheduled" and store.due_left == 0 and self.rules.due_are_promoted
        return store._replace(place="ready") if due else store

    def _tick(self, state: State) -> Iterator[Step[State]]:
        """Time passes, by the clock of the store; nobody has to notice."""
        old = state.store
        store = old._replace(
            left=max(0, old.left - 1), ack_left=max(0, old.ack_left - 1), due_left=max(0, old.due_left - 1)
        )
        hands = tuple(hand._replace(trust=max(0, hand.trust - 1)) for hand in state.hands)
        if store != old or hands != state.hands:
            yield Step(Action("tick"), state._replace(store=store, hands=hands))


def _holds(store: Store, hand: Hand) -> bool:
    """The truth about a receipt, whatever the store makes of it."""
    return store.place == "processing" and store.holder == hand.delivery


def _begun(store: Store) -> Store:
    """The work begins: from here the ack_timeout counts (steps/settle.py: start)."""
    return store._replace(started=True, ack_left=ACK_TIMEOUT, left=min(LEASE, ACK_TIMEOUT))


def _laid_down(store: Store, token_ends: bool = True) -> Store:
    """Nobody holds it any more: no old receipt fits (Slot.lay_down)."""
    return store._replace(holder=0 if token_ends else store.holder, started=False, left=0, ack_left=0)
