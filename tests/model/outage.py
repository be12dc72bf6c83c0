"""One lease, a worker with a heart, a store that goes away: who lives keeps its message, who died does not.

A lease lasts three ticks and a heart beats at every tick, as in `postroom.worker`. While the store is away
nobody is heard and time goes on, so that a lease may run out though its worker lives. After such a silence
nothing is reclaimed for a tick (promise 11): the living report, and whoever does not is taken for dead.
What is assumed of the store: once it is back, it stays until the living have reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tests.model.explorer import Action, Step

#: In ticks: `Policy.grace` is a third of a lease, after a silence of more than half of one.
LEASE, GRACE = 3, 1
OUTAGES = 2
#: So many ticks after a death with the store there all the time, a sweep has found out.
MOST_MOURNED = LEASE + GRACE

LIVING_KEEP = "who lives keeps its message, whatever the store does"
DEAD_ARE_FOUND = "who died is found out in time"


class Rules(NamedTuple):
    """What the grace consists of. Each can be left out, and then a property must break."""

    silence_gives_grace: bool = True
    half_a_lease_is_a_silence: bool = True
    grace_begins_with_the_first_call: bool = True
    a_heart_beats_every_third: bool = True
    waiters_stay_in_touch: bool = True
    grace_ends: bool = True
    a_return_lasts: bool = True


#: The protocol as it is.
ALL = Rules()


class State(NamedTuple):
    """The message, the books of its queue, its worker, and what only the judge knows. Times are in ticks."""

    place: str = "processing"
    left: int = LEASE
    silence: int = 0
    grace: int = 0
    up: bool = True
    alive: bool = True
    beat: bool = False
    touched: bool = True
    just_back: bool = False
    outages: int = 0
    mourned: int = 0

    def __str__(self) -> str:
        store = f"there, silent for {self.silence}, grace {self.grace}" if self.up else "away"
        worker = "dead" if not self.alive else "to report" if self.beat else "lives"
        return f"{self.place}, {self.left} ticks left; the store is {store}; the worker: {worker}"


class OutageModel:
    """All that a worker, those who look, the store and time can do, by these rules."""

    initial = State()

    def __init__(self, rules: Rules = ALL) -> None:
        self.rules = rules

    def steps(self, state: State) -> Iterator[Step[State]]:
        if state.place != "processing":
            return
        yield from self._store(state)
        yield from self._worker(state)
        yield from self._sweep(state)
        yield from self._tick(state)

    def broken(self, state: State) -> str:
        return ""  # a step is a breach by itself here

    def kind(self, state: State, step: Step[State]) -> Hashable:
        return step.action, state._replace(mourned=0)

    def is_end(self, state: State) -> bool:
        return state.place != "processing"

    def _store(self, state: State) -> Iterator[Step[State]]:
        unheard = state.just_back and state.alive and self.rules.a_return_lasts
        if state.up and state.outages < OUTAGES and not unheard:
            away = state._replace(up=False, outages=state.outages + 1)
            yield Step(Action("store", how="goes away"), away)
        if not state.up:
            back = state._replace(up=True, touched=False, just_back=True, mourned=0)
            yield Step(Action("store", how="comes back"), back)

    def _worker(self, state: State) -> Iterator[Step[State]]:
        """`Engine.renew` at every third of the lease, and the ack (steps/settle.py: renew)."""
        if not state.alive:
            return
        yield Step(Action("die"), state._replace(alive=False, mourned=0))
        if not state.up:
            return
        heard = self._reached(state)
        if state.beat or state.just_back:
            yield Step(Action("renew", answer="ok"), heard._replace(left=LEASE, beat=False, just_back=False))
        yield Step(Action("ack", answer="ok"), heard._replace(place="done"))

    def _sweep(self, state: State) -> Iterator[Step[State]]:
        """`Engine.sweep`, by the keeper or by a claim of whoever waits (steps/sweep.py: reclaim)."""
        if not state.up:
            return
        heard = self._reached(state)
        if heard.left == 0 and heard.grace == 0:
            robbed = LIVING_KEEP if state.alive else ""
            yield Step(Action("sweep", answer="reclaimed"), heard._replace(place="ready"), robbed)
        else:
            late = DEAD_ARE_FOUND if not state.alive and state.mourned > MOST_MOURNED else ""
            yield Step(Action("sweep", answer="nothing"), heard, late)

    def _reached(self, state: State) -> State:
        """A call came through (steps/books.py: reached; `Policy.grace`)."""
        rules = self.rules
        silent = 2 * state.silence > LEASE if rules.half_a_lease_is_a_silence else state.silence > LEASE
        grace = state.grace
        if silent and rules.silence_gives_grace:
            since = 0 if rules.grace_begins_with_the_first_call else state.silence
            grace = max(0, GRACE - since)
        return state._replace(silence=0, grace=grace, touched=True)

    def _tick(self, state: State) -> Iterator[Step[State]]:
        """Time passes. While the store is there a heart does not skip a beat, nor do all fall silent."""
        missed = self.rules.a_heart_beats_every_third and state.alive and state.beat
        quiet = self.rules.waiters_stay_in_touch and not state.touched
        if state.up and (missed or quiet):
            return
        grace = max(0, state.grace - 1) if self.rules.grace_ends else state.grace
        mourned = min(state.mourned + (state.up and not state.alive), MOST_MOURNED + 1)
        later = state._replace(
            left=max(0, state.left - 1),
            silence=min(state.silence + 1, LEASE + 1),
            grace=grace,
            beat=state.alive,
            touched=False,
            just_back=False,
            mourned=mourned,
        )
        yield Step(Action("tick"), later)
