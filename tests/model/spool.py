"""One message between Redis and a spool: put, worked on, moved — while Redis goes away and comes back.

A process with a spool puts the message, works on what is in the spool and moves it over; consumers elsewhere
work on what is in Redis. Answers are lost, calls arrive late, the process dies, leases run out at any time.
Each step names the code it stands for; `test_spool` replays what can be replayed on the engine itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tests.model.explorer import Action, Step

#: How often Redis goes away, a side gives the message out, and a mover gives up or dies.
OUTAGES, CLAIMS, STOPS = 2, 2, 2

NO_LOSS = "no loss"
NO_DOUBLE_SETTLE = "no double settle"
SETTLES_COUNT = "who holds a message can settle it"


class Rules(NamedTuple):
    """What the spool consists of. Each can be left out, and then a property must break."""

    uncertain_are_held: bool = True
    repeatable_are_held: bool = True
    parked_before_moved: bool = True
    put_before_removed: bool = True
    moved_are_remembered: bool = True
    settle_goes_where_it_came_from: bool = True
    owed_settles_are_paid: bool = True
    spool_outlives_the_process: bool = True


#: The protocol as it is.
ALL = Rules()


class Side(NamedTuple):
    """The message on one side: absent, ready, held (the spool only), parked, processing or done."""

    place: str = "absent"
    holder: int = 0
    claims: int = 0

    @property
    def is_there(self) -> bool:
        return self.place != "absent"


class Hand(NamedTuple):
    """A consumer with a delivery of one side: it works, or it owes a settle to a Redis that is away."""

    near: bool
    delivery: int
    phase: str


class State(NamedTuple):
    """Both sides, the way between them, those who work and move, and what only the judge knows."""

    producer: str = "new"
    up: bool = True
    active: bool = True
    flying: bool = False
    far: Side = Side()
    near: Side = Side()
    hands: tuple[Hand, ...] = ()
    movers: tuple[str, ...] = ()
    outages: int = 0
    stops: int = 0
    acks: int = 0

    def __str__(self) -> str:
        redis = f"Redis {'up' if self.up else 'away'}: {self.far.place}"
        hands = ", ".join(f"{_name(hand)} {hand.phase}" for hand in self.hands)
        movers = ", ".join(self.movers) or "none"
        return f"{redis}; spool: {self.near.place}; movers: {movers}; at consumers: {hands or 'nothing'}"

    def side(self, near: bool) -> Side:
        return self.near if near else self.far

    def with_side(self, near: bool, side: Side) -> State:
        return self._replace(near=side) if near else self._replace(far=side)

    def with_hand(self, hand: Hand) -> State:
        return self._replace(hands=tuple(sorted([*self.without(hand).hands, hand])))

    def without(self, hand: Hand) -> State:
        return self._replace(hands=tuple(h for h in self.hands if h[:2] != hand[:2]))

    def with_mover(self, old: str, new: str) -> State:
        movers = list(self.movers)
        if old:
            movers.remove(old)
        return self._replace(movers=tuple(sorted([*movers, *([new] if new else [])])))


class SpoolModel:
    """All that a process with a spool, consumers elsewhere, and Redis can do, by these rules."""

    initial = State()

    def __init__(self, rules: Rules = ALL) -> None:
        self.rules = rules

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._put(state)
        yield from self._redis(state)
        for near in (True, False):
            yield from self._claim(state, near)
        for hand in state.hands:
            yield from self._settle(state, hand)
        yield from self._mover(state)
        yield from self._process(state)

    def broken(self, state: State) -> str:
        kept = state.far.is_there or state.near.is_there or state.flying or "parked" in state.movers
        if state.producer == "told" and not kept:
            return NO_LOSS
        return NO_DOUBLE_SETTLE if state.acks > 1 else ""

    def kind(self, state: State, step: Step[State]) -> Hashable:
        after = step.state
        return step.action, state.producer, state.up, state.far, state.near, after.far, after.near

    def is_end(self, state: State) -> bool:
        return state.acks == 1

    # --- putting ----------------------------------------------------------------------------

    def _put(self, state: State) -> Iterator[Step[State]]:
        """`SpoolEngine.put` (spool/engine.py), by one of two kinds of producers: a plain one puts once; one
        with `remember` may die before it hears the answer, and repeats the put under the same id."""
        if state.producer == "new":
            yield Step(Action("producer", how="remembers"), state._replace(producer="remembers"))
        if state.producer == "told":
            return
        repeats, told = state.producer == "remembers", state._replace(producer="told")
        hold = repeats and self.rules.repeatable_are_held
        if not state.active:
            yield Step(Action("put", how="Redis is away"), self._spooled(told, hold))
            return
        if state.up:
            there = self._arrived(state)
            yield Step(Action("put", answer="ok"), there._replace(producer="told"))
            if repeats and there != state:
                yield Step(Action("put", unheard=True), there)
            yield from self._put_without_answer(told, there._replace(producer="told"))
        if state.outages < OUTAGES:
            yield Step(Action("put", how="refused"), self._spooled(_away(told), hold))

    def _put_without_answer(self, before: State, arrived: State) -> Iterator[Step[State]]:
        """Done and not heard of; on its way and done later."""
        if before.outages == OUTAGES:
            return
        hold = self.rules.uncertain_are_held
        yield Step(Action("put", how="no answer, done"), self._spooled(_away(arrived), hold))
        late = self._spooled(_away(before), hold)._replace(flying=True)
        yield Step(Action("put", how="no answer, on its way"), late)

    def _spooled(self, state: State, hold: bool) -> State:
        """Idempotent by id there too (spool/engine.py: _spool_put; spool/parcels.py: held)."""
        if state.near.is_there:
            return state
        return state._replace(near=Side("held" if hold else "ready"))

    def _arrived(self, state: State) -> State:
        """`Engine.put` in Redis: by id, also for a day after its end (spool/parcels.py: remembered)."""
        forgotten = state.far.place == "done" and not self.rules.moved_are_remembered
        if state.far.is_there and not forgotten:
            return state
        return state._replace(far=Side("ready", claims=state.far.claims))

    # --- Redis ------------------------------------------------------------------------------

    def _redis(self, state: State) -> Iterator[Step[State]]:
        if state.up and state.outages < OUTAGES:
            yield Step(Action("redis", how="goes away"), _away(state))
        if not state.up:
            yield Step(Action("redis", how="comes back"), state._replace(up=True))
        if state.up and state.flying:
            yield Step(Action("redis", how="gets a late put"), self._arrived(state)._replace(flying=False))
        owes = any(hand.phase == "owes" and not hand.near for hand in state.hands)
        if state.up and not state.active and not owes:
            yield Step(Action("back"), state._replace(active=True))

    # --- claims and settles -----------------------------------------------------------------

    def _claim(self, state: State, near: bool) -> Iterator[Step[State]]:
        """`Engine.claim` on a side; in the spool only while Redis is away for this process. A lease that
        runs out (`Engine.sweep`) does so at any time, also of one who lives."""
        side, who = state.side(near), "in the spool" if near else "in Redis"
        reached = not state.active if near else state.up
        if side.place == "ready" and reached and side.claims < CLAIMS:
            claims = side.claims + 1
            leased = state.with_side(near, Side("processing", claims, claims))
            yield Step(Action("claim", claims, who), leased.with_hand(Hand(near, claims, "works")))
        if side.place == "processing" and (near or state.up) and side.claims < CLAIMS:
            free = state.with_side(near, Side("ready", 0, side.claims))
            yield Step(Action("sweep", side.holder, who), free)

    def _settle(self, state: State, hand: Hand) -> Iterator[Step[State]]:
        """`SpoolEngine.settle`: to the side that gave it, owed while that is away (spool/debts.py).

        A settle that was owed is told on return. Whoever holds the last delivery does not die: the model
        ends there, the store does not.
        """
        if hand.near or state.up:
            to_near = hand.near if self.rules.settle_goes_where_it_came_from else not state.active
            yield from self._acked(state, hand, to_near)
        elif hand.phase == "works":
            kept = state.with_hand(hand._replace(phase="owes"))
            next = kept if self.rules.owed_settles_are_paid else state.without(hand)
            breach = SETTLES_COUNT if next != kept and _holds(state, hand) else ""
            yield Step(Action("ack", hand.delivery, _where(hand), "ok, and owed"), next, breach)
        if hand.delivery < CLAIMS and hand.phase == "works":
            yield Step(Action("die", hand.delivery, _where(hand)), state.without(hand))

    def _acked(self, state: State, hand: Hand, near: bool) -> Iterator[Step[State]]:
        side, next, breach = state.side(near), state.without(hand), ""
        answer = "gone" if side.place in {"absent", "done"} else "lost"
        if near == hand.near and side.place == "processing" and side.holder == hand.delivery:
            answer = "ok"
            next = next.with_side(near, side._replace(place="done", holder=0))._replace(acks=state.acks + 1)
        elif _holds(state, hand):
            breach = SETTLES_COUNT
        yield Step(Action("ack", hand.delivery, _where(hand), answer), next, breach)

    # --- moving -----------------------------------------------------------------------------

    def _mover(self, state: State) -> Iterator[Step[State]]:
        """`Mover.move` (spool/mover.py): read a page, park it, put it to Redis, remove it; two at once."""
        if state.up and len(state.movers) < 2 and state.near.place in {"ready", "held", "parked"}:
            found = "parked" if state.near.place != "ready" else "read"
            yield Step(Action("mover", how="reads"), state.with_mover("", self._first(found)))
        for phase in sorted(set(state.movers)):
            yield from self._move(state, phase)
            if state.stops < STOPS:
                stopped = state.with_mover(phase, "")._replace(stops=state.stops + 1)
                yield Step(Action("mover", how=f"stops, {phase}"), stopped)

    def _first(self, found: str) -> str:
        if found == "read" and not self.rules.parked_before_moved:
            found = "parked"
        return "put" if found == "parked" and not self.rules.put_before_removed else found

    def _move(self, state: State, phase: str) -> Iterator[Step[State]]:
        if phase == "read":  # Action.RESCHEDULE to the end of time: not what is processing
            free = state.near.place in {"ready", "parked"}
            parked = state._replace(near=state.near._replace(place="parked")) if free else state
            next = self._first("parked") if free else ""
            yield Step(
                Action("mover", how="parks", answer="ok" if free else "taken"), parked.with_mover(phase, next)
            )
        after_put, after_removal = ("put", "") if self.rules.put_before_removed else ("", "parked")
        if phase == "parked" and state.up:
            yield Step(Action("mover", how="puts"), self._arrived(state).with_mover(phase, after_put))
        if phase == "put":  # Action.CANCEL: not what is processing
            waits = state.near.place in {"ready", "held", "parked"}
            gone = state._replace(near=Side(claims=state.near.claims)) if waits else state
            yield Step(Action("mover", how="removes"), gone.with_mover(phase, after_removal))

    def _process(self, state: State) -> Iterator[Step[State]]:
        """The process dies, with its movers, debts and local work; the spool stays."""
        if state.stops == STOPS or any(hand.delivery == CLAIMS for hand in state.hands):
            return
        left = tuple(hand for hand in state.hands if not hand.near and hand.phase != "owes")
        spool = state.near if self.rules.spool_outlives_the_process else Side()
        dead = state._replace(hands=left, movers=(), near=spool, stops=state.stops + 1)
        if dead._replace(stops=state.stops) != state:
            yield Step(Action("process", how="dies and starts again"), dead)


def _away(state: State) -> State:
    return state._replace(up=False, active=False, outages=state.outages + 1)


def _holds(state: State, hand: Hand) -> bool:
    side = state.side(hand.near)
    return side.place == "processing" and side.holder == hand.delivery


def _name(hand: Hand) -> str:
    return f"{hand.delivery} {_where(hand)}"


def _where(hand: Hand) -> str:
    return "of the spool" if hand.near else "of Redis"
