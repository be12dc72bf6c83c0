"""`postroom demo`, run as people run it: in a pipe, on a terminal, and stopped in the middle."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import postroom
from postroom.cli.demo.checks import judge
from postroom.cli.demo.ledger import VANISHED, Buried, Job, Ledger, Refusal, Repeat, Run, Taken
from postroom.cli.demo.screen import PlainScreen
from postroom.cli.demo.show import Show
from postroom.cli.demo.staff import CAPACITY
from postroom.errors import Conflict
from postroom.model import State

COMMAND = [sys.executable, "-c", "import sys; from postroom.cli import main; sys.exit(main())", "demo"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "NO_COLOR"))}
ESCAPE = "\x1b"
CHECKS = 12


def run(
    *args: str, code: int, folder: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *args], cwd=folder, env=CLEAN | environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


# ---- The whole of it ------------------------------------------------------------------------------


def test_in_a_pipe_it_tells_in_plain_lines_and_everything_passes(tmp_path: Path) -> None:
    # Somebody's real configuration, and a broken one: the demo plays neither with it nor in it.
    (tmp_path / "postroom.toml").write_text("nonsense = [", encoding="utf-8")
    began = time.monotonic()
    done = run("--seconds", "6", code=0, folder=tmp_path, POSTROOM_URL="redis://production", FORCE_COLOR="1")
    assert time.monotonic() - began < 15
    assert ESCAPE not in done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("FAIL")] == []
    assert len([line for line in lines if line.startswith("PASS  ")]) == CHECKS
    assert f"all {CHECKS} checks passed" in lines
    assert lines.index("what next:") == len(lines) - 4
    # One line a second for where things stand, and the room's own history between the story's lines.
    assert len([line for line in lines if re.search(r"s  all +ready \d+  scheduled", line)]) >= 3
    told = {line.split()[1] for line in lines if re.match(r" *\d+\.\d+s  ", line)}
    assert told == {"story", "all", "emails", "payments", "reports"}
    for event in ("paused", "resumed", "to be tried again", "dead letter", "came back", "replayed"):
        assert event in done.stdout


def test_on_a_terminal_there_is_a_live_table_and_then_the_verdicts() -> None:
    ours, its = pty.openpty()
    env = CLEAN | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([*COMMAND, "--seconds", "5"], env=env, stdout=its, stderr=its)
    os.close(its)
    output = b""
    try:
        while chunk := os.read(ours, 65_536):
            output += chunk
    except OSError:  # Linux says so when the last writer has closed the terminal
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=30) == 0
    screen = output.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert plain.count("what happens") >= 5, "the table is drawn again and again"
    assert re.search(r"queue +ready +scheduled +processing +overdue +dead +done +oldest", plain)
    assert "reports  paused" in plain
    assert plain.count("PASS") == CHECKS
    assert f"all {CHECKS} checks passed" in plain
    assert screen.count(f"{ESCAPE}[?25l") == screen.count(f"{ESCAPE}[?25h") == 1, "the cursor comes back"


@pytest.mark.parametrize(("name", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_the_middle_it_says_what_was_done_so_far(name: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        COMMAND, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        said = ""
        while "unique key" not in said:
            said = process.stdout.readline()
            assert said, process.stderr.read()
        process.send_signal(name)
        began = time.monotonic()
        rest = process.stdout.read()
        assert process.wait(timeout=10) == code
        assert time.monotonic() - began < 3
        assert process.stderr.read() == ""
    assert "stopped early:" in rest
    assert "FAIL" not in rest
    assert re.search(
        "^PASS  nothing was lost +[1-9][0-9]* accepted, [1-9][0-9]* still waiting$", rest, re.MULTILINE
    )
    assert re.search("^SKIP  a paused queue handed out nothing +not reached$", rest, re.MULTILINE)


# ---- How it is asked for ----------------------------------------------------------------------------


def test_the_help_teaches() -> None:
    text = run("--help", code=0).stdout
    for word in ("--seconds", "--url", "5<=x<=600", "postroom demo --seconds 6 | cat", "Exit codes", "130"):
        assert word in text
    assert "demo" in subprocess.run(
        [*COMMAND[:-1], "--help"], env=CLEAN, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@pytest.mark.parametrize("seconds", ["4", "601", "soon"])
def test_seconds_that_make_no_sense_are_a_usage_error(seconds: str) -> None:
    done = run("--seconds", seconds, code=2)
    assert "--seconds" in done.stderr
    assert done.stdout == ""


def test_a_url_without_an_engine_is_one_line() -> None:
    done = run("--url", "carrier-pigeon://coop", code=1)
    assert done.stderr.count("\n") == 1
    assert "carrier-pigeon" in done.stderr


def test_it_does_not_mix_its_messages_with_those_of_others() -> None:
    with postroom.open("memory://") as room:
        room.queue("payments").put({"amount": 100})
        with pytest.raises(Conflict, match="payments"):
            Show(room, 5, PlainScreen()).play()
        assert room.queue("payments").stats().ready == 1


# ---- A check that cannot fail is no check -------------------------------------------------------------

NOW = 1_000_000.0
LEASE = 1.0
ERROR = "ValueError: bad card"


def honest_ledger() -> Ledger:
    """What a perfect run leaves behind, as small as it can be."""
    ledger = Ledger(lease=LEASE)

    def put(number: int, priority: str = "normal", **facts: float) -> Job:
        fails, due = int(facts.get("fails", 0)), facts.get("due", NOW)
        name = f"job {number}"
        return ledger.accept(Job(number, name, "q", f"id-{number}", priority, due, "due" in facts, fails))

    def ran(number: int, at: float, *, attempt: int = 0, error: str = "", by: str = "worker 1") -> None:
        run = ledger.begin(number, by, attempt)
        ledger.end(run, error)
        run.began, run.ended = NOW + at, NOW + at + 0.01
        run.not_before = run.ended + 0.1 if error and attempt < 2 else None

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
    ledger.taken, ledger.vanished_at = [Taken(6, NOW + 2)], NOW + 2.1
    ran(6, 2.05, by=VANISHED)
    ran(6, 3.1, attempt=1)
    ledger.left = [(5, State.DEAD)]
    return ledger


def lose(ledger: Ledger, number: int) -> None:
    ledger.runs = [run for run in ledger.runs if run.number != number]


def earlier(ledger: Ledger, number: int, by: float, nth: int = 0) -> None:
    ledger.runs_of(number)[nth].began -= by


def swap(ledger: Ledger) -> None:
    one, other = (next(i for i, run in enumerate(ledger.runs) if run.number == n) for n in (1, 2))
    ledger.runs[one], ledger.runs[other] = ledger.runs[other], ledger.runs[one]


def again(ledger: Ledger, number: int) -> None:
    ledger.end(ledger.begin(number, "worker 2", 0))


def fail(ledger: Ledger, number: int) -> None:
    ledger.runs_of(number)[-1].error = "ValueError: again"


def have(thing: Ledger | Run, **facts: object) -> None:
    for name, value in facts.items():
        setattr(thing, name, value)


LIES: list[tuple[str, Callable[[Ledger], None]]] = [
    ("every message was handled", lambda ledger: lose(ledger, 3)),
    ("every message was handled", lambda ledger: fail(ledger, 3)),
    ("nothing was lost", lambda ledger: lose(ledger, 3)),
    ("nothing was lost", lambda ledger: ledger.left.append((3, State.READY))),
    ("handled more than once", lambda ledger: again(ledger, 3)),
    ("urgent before normal", swap),
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
    ("work of the vanished consumer", lambda ledger: earlier(ledger, 6, 0.2, nth=1)),
    ("work of the vanished consumer", lambda ledger: fail(ledger, 6)),
    ("work of the vanished consumer", lambda ledger: have(ledger, taken=[])),
    ("duplicates were absorbed", lambda ledger: again(ledger, 7)),
    ("duplicates were absorbed", lambda ledger: ledger.repeats.append(Repeat(ledger.jobs[1], 9, "9", True))),
    ("a full queue said no", lambda ledger: have(ledger, refusal=Refusal(8, CAPACITY, ""))),
    ("a full queue said no", lambda ledger: have(ledger, refusal=Refusal(8, 3, "full"))),
    ("a full queue said no", lambda ledger: again(ledger, 8)),
    ("a paused queue handed out nothing", lambda ledger: earlier(ledger, 1, 1)),
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


def test_every_check_has_a_lie() -> None:
    assert all(any(check.promise.startswith(p) for p, _ in LIES) for check in judge(honest_ledger()))


def test_an_empty_ledger_proves_next_to_nothing() -> None:
    shown = [check.promise for check in judge(Ledger()) if check.kept]
    assert len(shown) <= 3, shown
