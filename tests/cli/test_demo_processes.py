"""The processes of `postroom demo`: what they say is heard, and how they end is noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec
import pytest

from postroom.cli.demo import processes, wire
from postroom.cli.demo.ledger import Ledger, Taken
from postroom.cli.demo.processes import Member

PATIENCE = 60.0

REPORTS: list[wire.Report] = [
    wire.Ready(),
    wire.Took([7, 8], 1.0),
    wire.Began(0, 7, 1, 2.0),
    wire.Ended(0, 3.0, "ValueError: no", 0.5),
    wire.Began(1, 8, 0, 4.0),
]
LINES = [msgspec.json.encode(report) + b"\n" for report in REPORTS]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


class Stage:
    """Starts a process that runs this code instead of a part."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ledger = ledger
        self._monkeypatch = monkeypatch
        self.members: list[Member] = []

    def start(self, code: str) -> Member:
        self._monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", code))
        self.members.append(Member("worker 1", self._ledger))
        return self.members[-1]


@pytest.fixture
def stage(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(ledger, monkeypatch)
    yield stage
    for member in stage.members:
        member.kill()
        member.close()


@pytest.mark.parametrize("cut", [1, 10, len(LINES[-1]) - 1])
def test_a_last_line_that_is_cut_off_was_not_said(cut: int) -> None:
    assert list(wire.reports(LINES)) == REPORTS
    assert list(wire.reports([*LINES[:-1], LINES[-1][:cut]])) == REPORTS[:-1]


def test_what_a_process_reports_is_in_the_ledger_even_if_it_is_killed(stage: Stage, ledger: Ledger) -> None:
    said = b"".join(LINES)[:-5]
    member = stage.start(f"import os, signal; os.write(1, {said!r}); signal.pause()")
    assert member.has_done.wait(PATIENCE)
    member.kill()
    assert member.is_ready.is_set()
    assert ledger.taken == [Taken(7, 1.0), Taken(8, 1.0)]
    (run,) = ledger.all_runs()
    assert (run.number, run.by, run.attempt, run.began, run.ended) == (7, "worker 1", 1, 2.0, 3.0)
    assert (run.error, run.not_before) == ("ValueError: no", 3.5)
    assert ledger.accident == "", "it was meant to be killed"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('the disk is full')", "ended with exit code 1: the disk is full"),
        ("1 / 0", "ended with exit code 1: ZeroDivisionError: division by zero"),
        ("pass", "ended with exit code 0: it gave no reason"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import signal; print('hello', flush=True); signal.pause()", "said what is no report: "),
    ],
)
def test_a_process_that_ends_by_itself_is_an_accident(
    code: str, words: str, stage: Stage, ledger: Ledger
) -> None:
    member = stage.start(code)
    assert member.has_ended(within=PATIENCE)
    assert ledger.accident.startswith(f"worker 1 (pid {member.pid}) {words}")


def test_a_process_that_fails_while_it_stops_is_an_accident_too(stage: Stage, ledger: Ledger) -> None:
    # Waited for, not handled: a handler that runs in the moment before a `pause` would leave that for ever.
    deaf = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {15}); "
    told = f"os.write(1, {LINES[2] + LINES[3]!r}); "
    member = stage.start(f"{deaf}{told}signal.sigwait({{15}}); sys.exit(3)")
    assert member.has_done.wait(PATIENCE)
    member.ask_to_stop()
    assert member.has_ended(within=PATIENCE)
    assert "ended with exit code 3" in ledger.accident
