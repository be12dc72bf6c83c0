"""The checks of `postroom demo`: a check that cannot fail is no check."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from postroom.cli.demo.checks import judge
from postroom.cli.demo.ledger import (
    CONSUMER,
    Buried,
    CeleryPart,
    Job,
    Killed,
    Ledger,
    Refusal,
    Repeat,
    Run,
    Taken,
)
from postroom.cli.demo.live import LiveScreen
from postroom.cli.demo.screen import Picture
from postroom.cli.demo.tempo import CAPACITY, LEASE, ORDERS
from postroom.model import State

NOW = 1_000_000.0
ERROR = "ValueError: bad card"
FIRST = "celery worker 1"


def honest_ledger() -> Ledger:
    """What a perfect run leaves behind, as small as it can be."""
    ledger = Ledger()

    def put(number: int, priority: str = "normal", **facts: float) -> Job:
        fails, due = int(facts.get("fails", 0)), facts.get("due", NOW)
        name = f"job {number}"
        return ledger.accept(Job(number, name, "q", f"id-{number}", priority, due, "due" in facts, fails))

    def ran(number: int, at: float, *, attempt: int = 0, error: str = "", by: str = "worker 1") -> None:
        run = ledger.begin(number, by, attempt, NOW + at)
        ledger.end(run, NOW + at + 0.01, error, 0.1 if error and attempt < 2 else None)

    first = put(1, "low")
    put(2, "high")
    put(3, due=NOW + 1)
    put(4, fails=1)
    put(5)
    put(6)
    ledger.together, ledger.paused_at, ledger.resumed_at = [1, 2], NOW, NOW + 1
    ledger.repeats = [Repeat(first, 7, first.id, created=False)]
    ledger.refusal = Refusal(8, CAPACITY, "full")
    ran(3, 1.004)
    ran(2, 1.1)
    ran(1, 1.2)
    ran(4, 1.3, error="ConnectionError: busy")
    ran(4, 1.5, attempt=1)
    for attempt in range(3):
        ran(5, 1.6 + attempt, attempt=attempt, error=ERROR)
    ledger.poison, ledger.buried = 5, Buried(5, ERROR, 3)
    ledger.replayed_at = NOW + 4
    ran(5, 4.1)
    ledger.taken, ledger.killed = [Taken(6, NOW + 2)], 4711
    ran(6, 2.05, by=CONSUMER)
    ran(6, 2.1 + LEASE, attempt=1)
    ledger.left = [(5, State.DEAD)]
    order(ledger)
    return ledger


def order(ledger: Ledger) -> None:
    """The part of Celery: two that waited together, one with a countdown, one in hand at the kill."""
    ledger.celery.played = True
    for number, priority, delay in ((20, "low", 0), (21, "high", 0), (22, "normal", 2), (23, "normal", 0)):
        job = Job(number, f"order {number}", ORDERS, f"id-{number}", priority, NOW + delay, delay > 0)
        ledger.accept(job)
    ledger.celery.together = [20, 21]
    for number, at in ((21, 1.0), (20, 1.1), (22, 2.003)):
        ledger.end(ledger.begin(number, FIRST, 0, NOW + at), NOW + at + 0.01)
    ledger.begin(23, FIRST, 0, NOW + 2.1)
    ledger.celery.killed = Killed(4712, 23, NOW + 2.2)
    ledger.end(ledger.begin(23, "celery worker 2", 1, NOW + 5), NOW + 5.01)


def lose(ledger: Ledger, number: int) -> None:
    ledger.runs = [run for run in ledger.runs if run.number != number]
    ledger._by_number.pop(number, None)


def earlier(ledger: Ledger, number: int, by: float, nth: int = 0) -> None:
    ledger.runs_of(number)[nth].began -= by


def again(ledger: Ledger, number: int, by: str = "worker 2") -> None:
    ledger.end(ledger.begin(number, by, 0, NOW + 6), NOW + 6.01)


def fail(ledger: Ledger, number: int) -> None:
    ledger.runs_of(number)[-1].error = "ValueError: again"


def have(thing: Ledger | Run | CeleryPart, **facts: object) -> None:
    for name, value in facts.items():
        setattr(thing, name, value)


LIES: list[tuple[str, Callable[[Ledger], None]]] = [
    ("every message was handled", lambda ledger: lose(ledger, 3)),
    ("every message was handled", lambda ledger: fail(ledger, 3)),
    ("nothing was lost", lambda ledger: lose(ledger, 3)),
    ("nothing was lost", lambda ledger: ledger.left.append((3, State.READY))),
    ("handled more than once", lambda ledger: again(ledger, 3)),
    ("urgent before normal", lambda ledger: earlier(ledger, 1, 0.15)),
    ("handled more than once", lambda ledger: again(ledger, 3, by=CONSUMER)),
    ("urgent before normal", lambda ledger: lose(ledger, 1)),
    ("nothing ran before its time", lambda ledger: earlier(ledger, 3, 0.01)),
    ("nothing ran before its time", lambda ledger: earlier(ledger, 4, 0.15, nth=1)),
    ("failed work was retried", lambda ledger: fail(ledger, 4)),
    ("failed work was retried", lambda ledger: have(ledger.runs_of(4)[1], attempt=0)),
    ("a poison message became a dead letter", lambda ledger: have(ledger, left=[])),
    ("a poison message became a dead letter", lambda ledger: have(ledger, buried=None)),
    ("a poison message became a dead letter", lambda ledger: have(ledger, buried=Buried(5, "Lost", 3))),
    ("a poison message became a dead letter", lambda ledger: have(ledger, buried=Buried(5, ERROR, 2))),
    ("repaired and replayed", lambda ledger: have(ledger, replayed_at=NOW + 5)),
    ("repaired and replayed", lambda ledger: fail(ledger, 5)),
    ("work of the killed process", lambda ledger: earlier(ledger, 6, 0.2, nth=1)),
    ("work of the killed process", lambda ledger: fail(ledger, 6)),
    ("work of the killed process", lambda ledger: have(ledger, taken=[])),
    ("work of the killed process", lambda ledger: have(ledger, killed=None)),
    ("duplicates were absorbed", lambda ledger: again(ledger, 7)),
    ("duplicates were absorbed", lambda ledger: ledger.repeats.append(Repeat(ledger.jobs[1], 9, "9", True))),
    ("a full queue said no", lambda ledger: have(ledger, refusal=Refusal(8, CAPACITY, ""))),
    ("a full queue said no", lambda ledger: have(ledger, refusal=Refusal(8, 3, "full"))),
    ("a full queue said no", lambda ledger: again(ledger, 8)),
    ("a paused queue handed out nothing", lambda ledger: earlier(ledger, 1, 1)),
    ("Celery: urgent tasks first", lambda ledger: earlier(ledger, 20, 0.2)),
    ("Celery: urgent tasks first", lambda ledger: lose(ledger, 21)),
    ("Celery: no countdown ended early", lambda ledger: earlier(ledger, 22, 0.1)),
    ("Celery: no countdown ended early", lambda ledger: lose(ledger, 22)),
    ("Celery: a killed worker's task", lambda ledger: have(ledger.celery, killed=None)),
    ("Celery: a killed worker's task", lambda ledger: have(ledger.runs_of(23)[0], ended=NOW + 2.2)),
    ("Celery: a killed worker's task", lambda ledger: have(ledger.runs_of(23)[1], by=FIRST)),
    ("Celery: a killed worker's task", lambda ledger: earlier(ledger, 23, 2.85, nth=1)),
    ("Celery: a killed worker's task", lambda ledger: again(ledger, 23)),
    ("Celery: a killed worker's task", lambda ledger: fail(ledger, 23)),
]  # fmt: skip


def test_an_honest_ledger_passes_every_check() -> None:
    assert [check for check in judge(honest_ledger()) if not check.kept] == []


@pytest.mark.parametrize(
    ("promise", "lie"), LIES, ids=[f"{n}-{promise}" for n, (promise, _) in enumerate(LIES)]
)
def test_each_check_can_fail(promise: str, lie: Callable[[Ledger], None]) -> None:
    ledger = honest_ledger()
    lie(ledger)
    (check,) = [check for check in judge(ledger) if check.promise.startswith(promise)]
    assert check.verdict(interrupted=False) == "FAIL", check


def test_reports_may_arrive_in_another_order_than_that_in_which_things_happened() -> None:
    ledger = honest_ledger()
    ledger.runs.reverse()
    assert [check for check in judge(ledger) if not check.kept] == []


def test_an_accident_is_a_check_of_its_own_and_has_failed() -> None:
    ledger = honest_ledger()
    ledger.accident = "worker 1 (pid 4711) was ended by SIGSEGV"
    *others, check = judge(ledger)
    assert all(other.kept for other in others)
    assert check.verdict(interrupted=True) == "FAIL"
    assert check.evidence == ledger.accident


def test_what_a_crashed_worker_had_done_may_still_be_there() -> None:
    ledger = honest_ledger()
    ledger.left.append((3, State.PROCESSING))
    ledger.crashed.add("worker 1")
    (check,) = [check for check in judge(ledger) if check.promise == "nothing was lost"]
    assert check.kept


def test_every_check_has_a_lie() -> None:
    assert all(any(check.promise.startswith(p) for p, _ in LIES) for check in judge(honest_ledger()))


def test_on_a_terminal_every_promise_has_its_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    checks = judge(honest_ledger())
    LiveScreen().end(Picture([], [], 4.56, 6), checks, interrupted=False)
    shown = capsys.readouterr().out
    for check in checks:
        assert re.search(f"PASS +{re.escape(check.promise)} +{re.escape(check.evidence)}", shown)
    assert f"all {len(checks)} checks passed (4.6 s)" in shown


def test_an_empty_ledger_proves_next_to_nothing() -> None:
    shown = [check.promise for check in judge(Ledger()) if check.kept]
    assert len(shown) <= 3, shown
