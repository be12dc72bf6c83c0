"""`python -m bench` runs and shows what it measured. How fast it was is nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import Case, Figure, Target, percentile, run
from bench.report import table

REPO = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *args]
    return subprocess.run(command, cwd=REPO, env=CLEAN, capture_output=True, text=True, check=False)


def test_the_table_has_a_row_for_each_figure(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    run = bench("--quick", "--only", "put", "--repeats", "1", "--json", str(found))
    assert run.returncode == 0, run.stderr
    machine, empty, *table = run.stdout.splitlines()
    assert f"CPython {sys.version.split()[0]}" in machine
    assert not empty
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0] == ["what", "median", "min..max", "target", "met"]
    assert [row[0] for row in rows[2:]] == ["put, one by one", "put_many"]
    assert rows[3][3] == "≥ 100,000/s"
    assert rows[3][4] in ("yes", "no")
    assert all(row[1].endswith("/s") for row in rows[2:])
    assert "round 1 of 1: put_many" in run.stderr
    assert [figure["name"] for figure in json.loads(found.read_text())["figures"]] == [
        "put, one by one",
        "put_many",
    ]


def test_an_unknown_group_is_refused_with_those_there_are() -> None:
    run = bench("--only", "put,clam")
    assert run.returncode == 2
    assert "choose from put, claim, worker" in run.stderr


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


def test_no_round_begins_that_would_not_end_in_time() -> None:
    said: list[str] = []
    (result,) = run([Case("never", (Figure("never", "ms"),), lambda: [1.0])], 5, -1, said.append)
    assert result.values == []
    assert said == ["the time is up after 0 of 5 rounds"]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 201)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (100, 198, 200)
    assert percentile([7.0], 99) == 7
