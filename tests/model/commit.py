"""Two callers, one connection, one disk: a group commit that is interrupted or refused anywhere.

Whoever finds the writer free commits for all who wait (`postroom.engines.sqlite.writer`). An interrupt
(Ctrl-C) may hit the leader between any two steps, a step may fail, and the commit may be refused. A step is
a write of one row, so that the disk tells how often it was done. A kill of the process needs no step of its
own: it leaves the disk as it is, and what was told before was compared with it when it was told.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tests.model.explorer import Action, Step

CALLERS = (1, 2)
INTERRUPTS, REFUSALS = 1, 1

ON_DISK = "who is told ok has it on disk"
NOTHING_LEFT = "who is told of an error has left nothing"
ONCE = "a step is done once"
ALONE = "who fails takes nobody along"


class Rules(NamedTuple):
    """What the group commit consists of. Each can be left out, and then a property must break."""

    answered_after_the_commit: bool = True
    steps_fail_alone: bool = True
    what_failed_is_undone: bool = True
    a_commit_is_read_off_the_connection: bool = True
    what_was_interrupted_is_rolled_back: bool = True
    a_refused_commit_is_no_commit: bool = True
    sleepers_look_by_themselves: bool = True


#: The protocol as it is.
ALL = Rules()


class State(NamedTuple):
    """The callers, the writer, its connection, the disk. Callers are numbers, and so are their steps.

    phases     of each caller: calls, sleeps, leads, woken, ok, error, interrupted
    at         where the leader is; 0: nobody leads
    jobs       of the transaction, None: there is none; `committing` and `over` are its own words
    open       rows written in the open transaction, None: none is open
    """

    phases: tuple[str, ...] = ("calls", "calls")
    leader: int = 0
    at: str = ""
    queue: tuple[int, ...] = ()
    jobs: tuple[int, ...] | None = None
    committing: bool = False
    over: tuple[int, ...] = ()
    failed: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    open: tuple[int, ...] | None = None
    disk: tuple[int, ...] = ()
    interrupts: int = 0
    refusals: int = 0

    def __str__(self) -> str:
        who = ", ".join(f"{caller} {phase}" for caller, phase in zip(CALLERS, self.phases, strict=True))
        return f"{who}; at {self.at or 'nothing'}; open: {self.open}; on disk: {self.disk}"

    def phase(self, caller: int) -> str:
        return self.phases[caller - 1]

    def with_phase(self, caller: int, phase: str) -> State:
        return self._replace(phases=(*self.phases[: caller - 1], phase, *self.phases[caller:]))


class CommitModel:
    """All that the callers, the disk and whoever kills them can do, by these rules."""

    initial = State()

    def __init__(self, rules: Rules = ALL) -> None:
        self.rules = rules

    def steps(self, state: State) -> Iterator[Step[State]]:
        for caller in CALLERS:
            yield from self._call(state, caller)
        if state.leader:
            yield from self._lead(state)
            yield from self._interrupt(state)

    def broken(self, state: State) -> str:
        return ONCE if len(set(state.disk)) < len(state.disk) else ""

    def kind(self, state: State, step: Step[State]) -> Hashable:
        return step.action

    def is_end(self, state: State) -> bool:
        return set(state.phases) <= {"ok", "error", "interrupted"}

    # --- the callers ------------------------------------------------------------------------

    def _call(self, state: State, caller: int) -> Iterator[Step[State]]:
        """`Writer.run`: queue the step, then lead or sleep until it is over."""
        phase = state.phase(caller)
        if phase == "calls":
            queued = state._replace(queue=(*state.queue, caller)).with_phase(caller, "woken")
            yield Step(Action("call", caller), queued)
        elif caller in state.over and caller != state.leader and phase in {"sleeps", "woken"}:
            yield self._told(state, caller)
        elif phase == "woken" and state.leader:
            yield Step(Action("sleep", caller), state.with_phase(caller, "sleeps"))
        elif phase == "woken":
            leads = state._replace(leader=caller, at="looks").with_phase(caller, "leads")
            yield Step(Action("lead", caller), leads)
        elif phase == "sleeps" and self.rules.sleepers_look_by_themselves:
            yield Step(Action("look", caller), state.with_phase(caller, "woken"))

    def _told(self, state: State, caller: int) -> Step[State]:
        """`_Job.outcome`."""
        there = caller in state.disk
        if caller not in state.failed | state.refused:
            return Step(Action("ok", caller), state.with_phase(caller, "ok"), "" if there else ON_DISK)
        taken_along = caller not in state.failed and not state.refusals
        breach = NOTHING_LEFT if there else ALONE if taken_along else ""
        return Step(Action("error", caller), state.with_phase(caller, "error"), breach)

    # --- who leads --------------------------------------------------------------------------

    def _lead(self, state: State) -> Iterator[Step[State]]:
        """`Writer._lead`, `Writer._commit` and `Writer._attempt`, one after the other."""
        leader = state.leader
        if state.at == "looks":
            clear = self._clear_up(state)
            at = "leaves" if leader in clear.over else "begins"
            yield Step(Action("clear up"), clear._replace(at=at))
        elif state.at == "begins":
            waiting = tuple(each for each in state.queue if state.phase(each) != "interrupted")
            jobs = (leader, *(each for each in waiting if each != leader))
            taken = state._replace(at="runs", jobs=jobs, queue=(), open=state.open or ())
            yield Step(Action("begin"), taken)
        elif state.at == "runs":
            yield from self._run(state)
        elif state.at == "commits":
            yield from self._commit(state)
        elif state.at == "is over":
            yield Step(Action("over"), _over(state)._replace(jobs=None, committing=False, at="leaves"))
        elif state.at == "is refused":
            refused = _over(state)._replace(refused=frozenset(state.jobs or ()), jobs=None, committing=False)
            yield Step(Action("over", how="refused"), refused._replace(at="leaves"))
        elif state.at == "leaves":
            yield Step(Action("unlock"), state._replace(at="wakes"))
        elif state.at == "wakes":
            yield self._wake(state)

    def _run(self, state: State) -> Iterator[Step[State]]:
        """`Writer._run`: each in a savepoint, so that one may fail (the second, here) and the other not."""
        assert state.jobs is not None and state.open is not None
        rows = (*state.open, *state.jobs)
        ready = state._replace(
            committing=True, at="commits" if self.rules.answered_after_the_commit else "is over"
        )
        yield Step(Action("run"), ready._replace(open=rows))
        if len(state.jobs) == 2 and not state.failed:
            bad = state.jobs[1]
            if not self.rules.steps_fail_alone:
                gone = state._replace(open=None, failed=frozenset({bad}), refused=frozenset(state.jobs))
                yield Step(Action("fail", bad), gone._replace(at="is over"))
                return
            kept = tuple(row for row in rows if row != bad) if self.rules.what_failed_is_undone else rows
            yield Step(Action("fail", bad), ready._replace(open=kept, failed=frozenset({bad})))

    def _commit(self, state: State) -> Iterator[Step[State]]:
        assert state.jobs is not None and state.open is not None
        yield Step(Action("commit"), state._replace(disk=(*state.disk, *state.open), open=None, at="is over"))
        if state.refusals < REFUSALS:
            committing = not self.rules.a_refused_commit_is_no_commit
            rolled_back = state._replace(
                open=None, committing=committing, refusals=state.refusals + 1, at="is refused"
            )
            yield Step(Action("commit", how="refused"), rolled_back)

    def _wake(self, state: State) -> Step[State]:
        """`Writer._wake_next`, and who is over wakes the next of its transaction."""
        free = state._replace(leader=0, at="")
        for caller in CALLERS:
            if free.phase(caller) == "sleeps":
                free = free.with_phase(caller, "woken")
        told = self._told(free, state.leader)
        return Step(Action("wake", state.leader, told.action.verb), told.state, told.breach)

    def _interrupt(self, state: State) -> Iterator[Step[State]]:
        """The leader is gone and the lock free; it may or may not have cleared up, and woken somebody."""
        if state.interrupts == INTERRUPTS:
            return
        gone = state.with_phase(state.leader, "interrupted")._replace(
            leader=0, at="", interrupts=state.interrupts + 1
        )
        yield Step(Action("interrupt", state.leader), gone)
        cleared = self._clear_up(gone)
        if cleared != gone:
            yield Step(Action("interrupt", state.leader, "clears up"), cleared)

    def _clear_up(self, state: State) -> State:
        """What became of a transaction that was broken off (`Writer._clear_up`)."""
        if state.jobs is None:
            return state
        rules = self.rules
        if state.committing and state.open is None and rules.a_commit_is_read_off_the_connection:
            return _over(state)._replace(jobs=None, committing=False)
        left = None if rules.what_was_interrupted_is_rolled_back else state.open
        return state._replace(
            jobs=None, committing=False, open=left, failed=frozenset(), queue=(*state.jobs, *state.queue)
        )


def _over(state: State) -> State:
    return state._replace(over=(*state.over, *(state.jobs or ())))
