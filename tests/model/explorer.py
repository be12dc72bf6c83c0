"""Explores everything that a small model can do: every order of every step, breadth first.

A model says where it begins and which steps each state allows. States are plain values; equal ones are met
once. A step may be a *breach* of a property by itself, a state may break one, and from every state the end
must be within reach. Because the search is breadth first, the trace of what it finds is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

#: A model that grows beyond this is no small model: a mistake in it, or too large numbers.
MOST_STATES = 300_000
EVERY_MESSAGE_ENDS = "every message ends"


class Action(NamedTuple):
    """One step as people read it and as `replay` repeats it.

    verb      what is called or happens; `delivery` says with the receipt of which delivery
    how       which of its possibilities
    answer    what the store answered; `unheard`: the answer was lost on its way
    """

    verb: str
    delivery: int = 0
    how: str = ""
    answer: str = ""
    unheard: bool = False

    def __str__(self) -> str:
        whose = f"delivery {self.delivery}: " if self.delivery else ""
        how = f" ({self.how})" if self.how else ""
        answer = f" → {self.answer}" if self.answer else ""
        return f"{whose}{self.verb}{how}{answer}{', but nobody hears the answer' if self.unheard else ''}"


class Step(NamedTuple, Generic[S]):
    """A possible next state. `breach` names the property that this very step breaks."""

    action: Action
    state: S
    breach: str = ""


class Model(Protocol[S]):
    """What can be explored."""

    @property
    def initial(self) -> S: ...

    def steps(self, state: S) -> Iterable[Step[S]]:
        """Everything that can happen next."""

    def broken(self, state: S) -> str:
        """The property that does not hold in this state; "" if all hold."""

    def kind(self, state: S, step: Step[S]) -> Hashable:
        """Steps of one kind look the same to a store."""

    def is_end(self, state: S) -> bool:
        """Whether every message has ended."""


class Counterexample(NamedTuple, Generic[S]):
    """The shortest way to a state where `property` does not hold."""

    property: str
    trace: list[tuple[Action, S]]

    def __str__(self) -> str:
        lines = [
            f"{number:3}. {action}\n       {state}" for number, (action, state) in enumerate(self.trace, 1)
        ]
        return "\n".join([f"not so: {self.property}", *lines])


class Explored(NamedTuple, Generic[S]):
    """Everything that was met: how each state was reached first, and of every kind of step the first one.

    A step is given as the state it leaves, the action and the state it leads to.
    """

    reached: dict[S, tuple[S, Action] | None]
    kinds: dict[Hashable, tuple[S, Action, S]]
    counterexample: Counterexample[S] | None = None

    def trace(self, state: S) -> list[tuple[Action, S]]:
        """The shortest way to a state."""
        return _trace(self.reached, state)

    def traces(self) -> Iterator[list[tuple[Action, S]]]:
        """For every kind of step, the shortest way to where it can be made, and the step."""
        for before, action, after in self.kinds.values():
            yield [*self.trace(before), (action, after)]


def explore(model: Model[S]) -> Explored[S]:
    """Everything, or the first thing that breaks a property."""
    reached: dict[S, tuple[S, Action] | None] = {model.initial: None}
    before: dict[S, list[S]] = {}
    kinds: dict[Hashable, tuple[S, Action, S]] = {}
    queue = deque([model.initial])
    while queue:
        state = queue.popleft()
        for step in model.steps(state):
            action = step.action
            kinds.setdefault(model.kind(state, step), (state, action, step.state))
            new = step.state not in reached
            if new:
                reached[step.state] = state, action
                queue.append(step.state)
            before.setdefault(step.state, []).append(state)
            if breach := step.breach or (model.broken(step.state) if new else ""):
                trace = [*_trace(reached, state), (action, step.state)]
                return Explored(reached, kinds, Counterexample(breach, trace))
        assert len(reached) <= MOST_STATES, "the model has grown beyond what is explored in seconds"
    return Explored(reached, kinds, _endless(model, reached, before))


def _endless(
    model: Model[S], reached: dict[S, tuple[S, Action] | None], before: dict[S, list[S]]
) -> Counterexample[S] | None:
    """The first state from which no way leads to the end."""
    ending = {state for state in reached if model.is_end(state)}
    queue = deque(ending)
    while queue:
        for earlier in before.get(queue.popleft(), ()):
            if earlier not in ending:
                ending.add(earlier)
                queue.append(earlier)
    stuck = next((state for state in reached if state not in ending), None)
    return None if stuck is None else Counterexample(EVERY_MESSAGE_ENDS, _trace(reached, stuck))


def _trace(reached: dict[S, tuple[S, Action] | None], state: S) -> list[tuple[Action, S]]:
    trace = []
    while came := reached[state]:
        trace.append((came[1], state))
        state = came[0]
    return trace[::-1]
