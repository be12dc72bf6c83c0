"""`python -m bench` runs and shows what it measured. How fast it was is nobody's business here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import dashboard, guards
from bench.__main__ import GROUPS
from bench.goals import GOALS
from bench.measure import Case, Figure, Result, Target, percentile, run, wait_until
from bench.report import file_system, table
from bench.rivals import NAMES
from bench.stage import ENGINES, Stage
from bench.systems import KINDS
from tests.processes import has_ended

REPO = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *args]
    return subprocess.run(command, cwd=REPO, env=CLEAN, capture_output=True, text=True, check=False)


def test_the_table_has_a_row_for_each_figure(tmp_path: Path) -> None:
    found, names = tmp_path / "found.json", ["put, one by one", "put_many, 100 a call", "put_many"]
    run = bench("--engine", "memory", "--quick", "--only", "put", "--repeats", "1", "--json", str(found))
    assert run.returncode == 0, run.stderr
    machine, empty, *table, last = run.stdout.splitlines()
    assert f"CPython {sys.version.split()[0]}" in machine
    assert not empty
    assert not last
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0] == ["what", "median", "min..max", "target", "met"]
    assert [row[0] for row in rows[2:]] == names
    assert rows[4][3] == "≥ 100,000/s"
    assert rows[4][4] in ("yes", "no")
    assert all(row[1].endswith("/s") for row in rows[2:])
    assert "round 1 of 1: put_many" in run.stderr
    (memory,) = json.loads(found.read_text())["engines"]
    assert memory["engine"] == "memory"
    assert [figure["name"] for figure in memory["figures"]] == names


def test_an_engine_with_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    args = "--engine", "sqlite", "--only", "disk,wake,peers", "--quick", "--repeats", "1"
    run = bench(*args, "--dir", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| disk for a waiting message " in run.stdout
    assert "| other process: claimed p99 " in run.stdout
    assert "| dequeue+ack: turn ÷ plain SQLite " in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_measured_and_gone_afterwards(tmp_path: Path) -> None:
    args = "--engine", "sqlite", "--only", "http", "--quick", "--repeats", "1"
    run = bench(*args, "--dir", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| HTTP: put, 16 connections " in run.stdout
    assert re.search(r"\| HTTP: 20 listeners: events missed +\| +0 \|", run.stdout)
    assert list(tmp_path.iterdir()) == []


def test_redis_has_a_server_for_every_trial(tmp_path: Path) -> None:
    args = "--engine", "redis", "--only", "cost,pressure,purge,reclaim", "--quick", "--repeats", "1"
    run = bench(*args, "--dir", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| Redis CPU a message: put, claim, ack at batch 100 " in run.stdout
    assert "| delay lateness under full load p99 " in run.stdout
    assert "| purge of 50,000, some in flight: longest wait of a PING " in run.stdout
    assert "| overdue, busy: reclaimed after at most " in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_others_are_measured_on_the_same_redis_if_they_are_installed(tmp_path: Path) -> None:
    args = "--engine", "redis", "--only", "rivals", "--quick", "--repeats", "1"
    run = bench(*args, "--dir", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| drain of no-ops: Postroom " in run.stdout
    assert "| put, one by one: Postroom " in run.stdout
    others = [name for name in NAMES if importlib.util.find_spec(KINDS[name][1])][1:]
    assert all(f"| drain of no-ops: {name} " in run.stdout for name in others)
    assert ("÷ the fastest of the others" in run.stdout) == bool(others)
    assert ("Not measured, because not installed" in run.stdout) == (len(others) < len(NAMES) - 1)


@pytest.mark.parametrize("part", ["drain", "publish", "delay", "first"])
def test_celery_is_measured_beside_its_stock_transport(part: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"bench.celery.{part}")
    for case in module.cases(Stage("redis", tmp_path, quick=True))[-2:]:  # of the pools, the last will do
        values = case.trial()
        assert len(values) == len(case.figures)
        assert all(value > 0 for value in values) or "growth" in case.figures[0].name
    assert list(tmp_path.iterdir()) == []


def test_what_a_guard_adds_is_not_what_every_64th_put_costs(tmp_path: Path) -> None:
    cases = {case.name: case for case in guards.cases(Stage("redis", tmp_path))}
    idempotent, breaker, rate_key = cases["round trips of guards"].trial()
    assert (idempotent, rate_key) == (2, 1)
    assert breaker < 0.1


def test_the_dashboard_is_measured_in_a_browser(tmp_path: Path) -> None:
    with ExitStack() as kept:
        cases = dashboard.cases(Stage("sqlite", tmp_path, quick=True, kept=kept))
        found = {
            figure.name: value
            for case in cases
            for figure, value in zip(case.figures, case.trial(), strict=True)
        }
    assert 50 < found["dashboard: first load in all, compressed"] < 150
    assert found["dashboard: can be used after"] > 0
    assert found["dashboard: 2 k processing: scripts a second, all loaded"] > 0
    assert 20 < found["dashboard: 2 k processing: rows drawn at most"] < 80
    assert found["dashboard: 200 events/s: reached"] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_takes_the_server_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--engine", "redis", "--only", "delay", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPO, env=CLEAN, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr
        assert "round 1 of 5: delay" in run.stderr.readline()
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while not (servers := children.read_text(encoding="utf-8").split()):
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        assert run.stderr.read().endswith("stopped\n")
    wait_until(lambda: all(has_ended(int(server)) for server in servers), 30)
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--engine", "memory", "--only", "delay", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPO, env=CLEAN, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr
        assert "round 1 of 5: delay" in run.stderr.readline()
        assert list(tmp_path.iterdir()) != []
        run.send_signal(signal.SIGINT)
        assert run.stderr.read().endswith("stopped\n")
    assert run.returncode == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_goal_belongs_to_a_figure(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # whoever may be measured beside us
    stages = [Stage(engine, tmp_path, quick) for quick in (True, False)]
    cases = [case for stage in stages for group in GROUPS.values() for case in group(stage)]
    names = [figure.name for case in cases for figure in case.figures]
    assert set(GOALS[engine]) <= set(names)


def test_the_kind_of_file_system_is_known() -> None:
    assert file_system(Path("/proc/self")) == "proc"


def test_what_an_engine_does_not_have_is_said() -> None:
    run = bench("--engine", "memory", "--only", "disk")
    assert run.returncode == 2
    assert "memory: there is nothing to measure in disk" in run.stderr


def test_an_unknown_group_is_refused_with_those_there_are() -> None:
    run = bench("--only", "put,clam")
    assert run.returncode == 2
    assert "choose from put, claim, worker" in run.stderr
    assert "choose from memory, sqlite" in bench("--engine", "oracle").stderr


def test_the_measurements_of_dead_letters_run(tmp_path: Path) -> None:
    sizes = ("--letters", "200", "--discard", "300", "--repeats", "1", "--dir", str(tmp_path))
    command = [sys.executable, "-m", "bench.dead", *sizes]
    run = subprocess.run(command, cwd=REPO, env=CLEAN, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "| replay of 200 " in run.stdout
    assert "| discard of 300 " in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_help_teaches() -> None:
    run = bench("--help")
    assert run.returncode == 0
    assert 'make bench ARGS="--quick"' in run.stdout


def test_a_case_that_crashes_is_told_and_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    values = iter([3.0, 1.0, 2.0])
    good = Case(
        "good",
        (Figure("good", "ms", Target(2)), Figure("worst", "", summary=max)),
        lambda: [v := next(values), v],
    )
    bad = Case("bad", (Figure("bad", "/s"),), lambda: [1 / 0])
    results = run([bad, good], 3, 60, said.append)
    assert said.count("round 1 of 3: bad") == 1
    assert "round 2 of 3: bad" not in said
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert table(results).splitlines()[2:] == [
        "| bad   | crashed |              |        |     |",
        "| good  | 2.00 ms | [1.00..3.00] | ≤ 2 ms | yes |",
        "| worst |       3 |       [1..3] |        |     |",
    ]


def test_what_cannot_be_prepared_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    bad = Case("bad", (Figure("bad", "/s"),), lambda: [1.0], prepare=lambda: 1 / 0)
    (result,) = run([bad], 3, 60, said.append)
    assert (result.values, said) == ([], [])
    assert result.crash == "ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_no_round_begins_that_would_not_end_in_time() -> None:
    said: list[str] = []
    (result,) = run([Case("never", (Figure("never", "ms"),), lambda: [1.0])], 5, -1, said.append)
    assert result.values == []
    assert said == ["the time is up after 0 of 5 rounds"]


def test_a_figure_without_a_unit_hides_no_fraction() -> None:
    case = Case("trips", tuple(Figure(name, "", Target(1)) for name in ("one", "more", "many")), lambda: [])
    rows = table([Result(case, [[1.0, 1.01, 1_000.0]])]).splitlines()
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["1", "1.01", "1,000"]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 201)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (100, 198, 200)
    assert percentile([7.0], 99) == 7
