"""PASS or FAIL to every promise, from what the ledger says. Pure: no room, no clock.

A check answers True (kept), False (broken), or None: not shown, or not yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from postroom.cli.demo.ledger import CONSUMER, Job, Ledger
from postroom.cli.demo.tempo import ATTEMPTS, CAPACITY, LEASE, ORDERS
from postroom.model import State

#: The engine counts whole milliseconds, the ledger does not (seconds).
ROUNDING = 0.002
_RANK = {"high": 0, "normal": 1, "low": 2}

Answer = tuple[bool | None, str]
_NOT_PLAYED: Answer = None, "not reached"


@dataclass(frozen=True, slots=True)
class Check:
    """One promise in words, whether it was kept, and what shows it."""

    promise: str
    kept: bool | None
    evidence: str

    def verdict(self, interrupted: bool) -> str:
        """PASS or FAIL; what was not shown is a FAIL too, unless the demo was stopped before it."""
        if self.kept is None and interrupted:
            return "SKIP"
        return "PASS" if self.kept else "FAIL"


def judge(ledger: Ledger) -> list[Check]:
    """Every check, in the order in which a newcomer wants to know; and an accident, if there was one."""
    checks = [Check(promise, *check(ledger)) for promise, check in _CHECKS.items()]
    if ledger.celery.played:
        checks += [Check(promise, *check(ledger)) for promise, check in _CELERY_CHECKS.items()]
    if ledger.accident:
        checks.append(Check("no process ended by accident", False, ledger.accident))
    return checks


# ---- Nothing lost -----------------------------------------------------------------------------------


def _handled(ledger: Ledger) -> Answer:
    handled = ledger.handled()
    missing = [job.name for job in ledger.jobs.values() if not handled[job.number]]
    count = f"{len(ledger.jobs) - len(missing)} of {len(ledger.jobs)}"
    return (None, f"{count}; not {_some(missing)}") if missing else (True, count)


def _not_lost(ledger: Ledger) -> Answer:
    """Each message is handled or still in the room, and what a worker has done is no longer in it."""
    handled = ledger.handled()
    held = {number for number, _ in ledger.left}
    lost = [job.name for job in ledger.jobs.values() if not handled[job.number] and job.number not in held]
    if lost:
        return False, f"lost: {_some(lost)}"
    waiting = {number for number, state in ledger.left if state is not State.DEAD}
    # The work of a killed process may well still be there: the room never heard that it was done.
    reported = {run.number for run in ledger.all_runs() if run.succeeded and run.by not in ledger.crashed}
    if again := waiting & reported:
        return False, f"done, yet still there: {_some_of(ledger, again)}"
    return True, f"{len(ledger.jobs)} accepted, {len(waiting)} still waiting"


def _only_the_crash_twice(ledger: Ledger) -> Answer:
    """In hand is what the killed process said it took, before it began any of it."""
    in_hand = {taken.number for taken in ledger.taken}
    twice = {number for number, count in ledger.handled().items() if count > 1}
    if wrong := twice - in_hand:
        return False, f"also {_some_of(ledger, wrong)}"
    return True, f"{len(twice)} of {len(ledger.jobs)}"


# ---- In order and on time ---------------------------------------------------------------------------


def _urgent_first(ledger: Ledger) -> Answer:
    return _in_order(ledger, ledger.together)


def _in_order(ledger: Ledger, together: list[int]) -> Answer:
    """Whether what waited together began by urgency, and then as it was put."""
    jobs = [ledger.jobs[number] for number in together]
    began = [run.number for run in ledger.all_runs() if run.number in together]
    # Sorting is stable: within a level it stays the order in which they were put.
    right = [job.number for job in sorted(jobs, key=lambda job: _RANK[job.priority])]
    for wanted, number in zip(right, began, strict=False):
        if wanted != number:
            return False, f"{_named(ledger, number)} came before {_named(ledger, wanted)}"
    if not jobs or len(began) < len(right):
        return _NOT_PLAYED
    counts = (f"{sum(job.priority == level for job in jobs)} {level}" for level in _RANK)
    return True, ", ".join(counts)


def _never_early(ledger: Ledger) -> Answer:
    return _on_time(ledger, [job for job in ledger.jobs.values() if job.queue != ORDERS])


def _on_time(ledger: Ledger, jobs: list[Job]) -> Answer:
    waits = [wait for job in jobs for wait in _lateness(ledger, job)]
    if not waits:
        return _NOT_PLAYED
    if early := [-wait for wait in waits if wait < -ROUNDING]:
        return False, f"{len(early)} of {len(waits)} early, by up to {_ms(max(early))}"
    return True, f"{len(waits)} waits, at worst {_ms(max(0.0, *waits))} late"


def _lateness(ledger: Ledger, job: Job) -> list[float]:
    """How long after the allowed moment each delayed or repeated run of this job began."""
    runs = ledger.runs_of(job.number)
    first = [run.began - job.due for run in runs[:1] if job.delayed]
    return first + [
        after.began - before.not_before for before, after in pairwise(runs) if before.not_before is not None
    ]


def _paused(ledger: Ledger) -> Answer:
    if ledger.paused_at is None or ledger.resumed_at is None:
        return _NOT_PLAYED
    began = [run.began for run in ledger.all_runs() if run.number in ledger.together]
    early = sum(at < ledger.resumed_at for at in began)
    return not early, f"{early} of {len(ledger.together)} ran in {ledger.resumed_at - ledger.paused_at:.1f} s"


# ---- When work fails --------------------------------------------------------------------------------


def _retried(ledger: Ledger) -> Answer:
    flaky = [job for job in ledger.jobs.values() if job.fails]
    if not flaky:
        return _NOT_PLAYED
    unfinished = [job for job in flaky if not any(run.succeeded for run in ledger.runs_of(job.number))]
    if unfinished:
        return None, f"not yet {_some([job.name for job in unfinished])}"
    if wrong := [job.name for job in flaky if not _retried_as_planned(ledger, job)]:
        return False, f"not as planned: {_some(wrong)}"
    return True, f"{len(flaky)} invoices, {sum(job.fails for job in flaky)} failures"


def _retried_as_planned(ledger: Ledger, job: Job) -> bool:
    runs = ledger.runs_of(job.number)
    planned = [(attempt, attempt == job.fails) for attempt in range(job.fails + 1)]
    return [(run.attempt, run.succeeded) for run in runs] == planned


def _kept_as_dead(ledger: Ledger) -> Answer:
    if ledger.poison is None or ledger.buried is None:
        return _NOT_PLAYED
    failed = [run for run in ledger.runs_of(ledger.poison) if run.error]
    right = (
        ledger.buried.number == ledger.poison
        and ledger.buried.attempts == len(failed) == ATTEMPTS
        and ledger.buried.error == failed[-1].error
        and (ledger.poison, State.DEAD) in ledger.left
    )
    kind = ledger.buried.error.partition(":")[0] or "no error"
    return right, f"{ledger.buried.attempts} attempts, then {kind}"


def _replayed(ledger: Ledger) -> Answer:
    if ledger.poison is None or ledger.replayed_at is None:
        return _NOT_PLAYED
    after = [run for run in ledger.runs_of(ledger.poison) if run.began >= ledger.replayed_at]
    if not after:
        return None, "it did not run again"
    kept = len(after) == 1 and after[0].succeeded
    return kept, f"done by {after[0].by}" if kept else f"{len(after)} runs: {after[-1].error or 'done'}"


def _came_back(ledger: Ledger) -> Answer:
    if ledger.killed is None or not ledger.taken:
        return _NOT_PLAYED
    back: list[float] = []
    for taken in ledger.taken:
        later = (run for run in ledger.runs_of(taken.number) if run.began >= taken.asked)
        runs = [run for run in later if run.by != CONSUMER]
        if not any(run.succeeded for run in runs):
            return None, f"not yet {_named(ledger, taken.number)}"
        if runs[0].began < taken.asked + LEASE - ROUNDING:
            return False, f"{_named(ledger, taken.number)} was taken away within the lease"
        back.append(runs[0].began - taken.asked)
    return True, f"kill -9 {ledger.killed}: {max(back):.2f} s, lease {LEASE:g} s"


# ---- When a put is not taken ------------------------------------------------------------------------


def _absorbed(ledger: Ledger) -> Answer:
    if not ledger.repeats:
        return _NOT_PLAYED
    ran = [run.number for run in ledger.all_runs()]
    wrong = [
        repeat.number
        for repeat in ledger.repeats
        if repeat.created or repeat.id != repeat.first.id or repeat.number in ran
    ]
    times = ran.count(ledger.repeats[0].first.number)
    if wrong or times > 1:
        return False, f"{len(wrong)} of {len(ledger.repeats)} repeated puts made a message of their own"
    return True if times else None, f"{len(ledger.repeats)} repeated puts, 1 message"


def _refused(ledger: Ledger) -> Answer:
    refusal = ledger.refusal
    if refusal is None:
        return _NOT_PLAYED
    if not refusal.error or refusal.waiting != CAPACITY:
        answer = "refused" if refusal.error else "accepted"
        return False, f"{answer} with {refusal.waiting} of {CAPACITY} waiting"
    ran = bool(ledger.runs_of(refusal.number))
    return not ran, f"at {CAPACITY}; the next one {'ran' if ran else 'never ran'}"


# ---- Celery -----------------------------------------------------------------------------------------


def _celery_in_order(ledger: Ledger) -> Answer:
    return _in_order(ledger, ledger.celery.together)


def _celery_on_time(ledger: Ledger) -> Answer:
    return _on_time(ledger, [job for job in ledger.jobs.values() if job.queue == ORDERS])


def _celery_came_back(ledger: Ledger) -> Answer:
    """Begun by the killed worker, then once more, and to its end, by another."""
    killed = ledger.celery.killed
    if killed is None:
        return _NOT_PLAYED
    first, *later = ledger.runs_of(killed.number)
    if first.succeeded or first.began > killed.at:
        return False, f"{_named(ledger, killed.number)} was not in hand when the worker was killed"
    if not later:
        return None, f"not yet {_named(ledger, killed.number)}"
    if len(later) > 1 or later[0].by == first.by or later[0].began < killed.at:
        return False, f"{_named(ledger, killed.number)} ran {1 + len(later)} times"
    back = later[0].began - killed.at
    return later[0].succeeded or None, f"kill -9 {killed.pid}: {back:.2f} s, lease {LEASE:g} s"


_CHECKS: dict[str, Callable[[Ledger], Answer]] = {
    "every message was handled at least once": _handled,
    "nothing was lost": _not_lost,
    "handled more than once: only what the crash had in hand": _only_the_crash_twice,
    "urgent before normal before low, waiting together": _urgent_first,
    "nothing ran before its time": _never_early,
    "failed work was retried and succeeded": _retried,
    "a poison message became a dead letter with its error": _kept_as_dead,
    "repaired and replayed, the dead letter succeeded": _replayed,
    "work of the killed process came back after its lease": _came_back,
    "duplicates were absorbed by their unique key": _absorbed,
    "a full queue said no (QueueFull)": _refused,
    "a paused queue handed out nothing": _paused,
}
_CELERY_CHECKS: dict[str, Callable[[Ledger], Answer]] = {
    "Celery: urgent tasks first, waiting together": _celery_in_order,
    "Celery: no countdown ended early": _celery_on_time,
    "Celery: a killed worker's task ran again, in another": _celery_came_back,
}


# ---- Words ------------------------------------------------------------------------------------------


def _named(ledger: Ledger, number: int) -> str:
    return ledger.jobs[number].name if number in ledger.jobs else f"message {number}"


def _some_of(ledger: Ledger, numbers: set[int]) -> str:
    return _some([_named(ledger, number) for number in sorted(numbers)])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms"
