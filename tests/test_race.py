"""`python -m bench.race` and `python -m bench.scaling` run, and say what they measured and nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.measure import wait_until
from bench.race import page
from bench.race.field import FIELD, OURS
from bench.race.ledger import Ledger, LedgerWatch
from bench.race.track import kill_family
from bench.scaling import page as scaling
from tests.processes import has_ended

REPO = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}


def run(module: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *args]
    return subprocess.run(command, cwd=REPO, env=CLEAN, capture_output=True, text=True, check=False)


def test_the_race_measures_us_beside_a_peer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lanes, kept = tmp_path / "lanes", tmp_path / "race.json"
    args = ("--quick", "--only", "enqueue,drain", "--peers", "celery", "--rounds", "1")
    raced = run("bench.race", *args, "--dir", str(lanes), "--json", str(kept))
    assert raced.returncode == 0, raced.stdout + raced.stderr
    found = json.loads(kept.read_text(encoding="utf-8"))
    runners = {*OURS, "celery"}
    for name in ("enqueue", "drain"):
        measured = found["disciplines"][name]
        assert measured["runners"].keys() == runners
        assert all(
            len(figures["rate"]) == 1 and figures["rate"][0] > 0 for figures in measured["runners"].values()
        )
        assert len(measured["load"]) == 1
    assert found["versions"].keys() == runners
    assert re.search(r"^\| Celery \| [\d,]+ \| [\d.]+ \| [\d,]+ \| [\d.]+ \|$", raced.stdout, re.MULTILINE)
    assert "round 1 of 1: drain" in raced.stderr
    assert list(lanes.iterdir()) == []


def test_the_growth_of_costs_is_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    grounds, kept = tmp_path / "grounds", tmp_path / "scaling.json"
    args = ("--quick", "--only", "messages,queues,consumers", "--rounds", "1")
    grown = run("bench.scaling", *args, "--dir", str(grounds), "--json", str(kept))
    assert grown.returncode == 0, grown.stdout + grown.stderr
    found = json.loads(kept.read_text(encoding="utf-8"))["curves"]
    assert found.keys() == {"messages", "queues", "consumers"}
    assert all(curve["engines"].keys() == {"sqlite", "redis"} for curve in found.values())
    for size in found["messages"]["engines"]["sqlite"].values():
        assert all(value > 0 for values in size.values() for value in values)
    assert re.search(r"^\| redis \| 1,000 \|", grown.stdout, re.MULTILINE)
    assert list(grounds.iterdir()) == []


def test_an_unknown_discipline_is_refused_with_those_there_are() -> None:
    refused = run("bench.race", "--only", "enqueue,draining")
    assert refused.returncode == 2
    assert "choose from enqueue, bulk, drain" in refused.stderr


def values(**rates: list[float]) -> dict[str, Any]:
    runners = {slug.replace("_", "-"): {"rate": rate} for slug, rate in rates.items()}
    return {
        "machine": {"cores": 2, "processor": "P", "python": "CPython 3", "system": "Linux", "load": 1.5},
        "versions": dict.fromkeys(runners, "1.0"),
        "disciplines": {"enqueue": {"load": [1.5, 2.5, 3.5], "runners": runners, "crashes": {}}},
    }


def test_ratios_are_taken_within_a_round() -> None:
    found = values(postroom=[100, 1_000, 10], huey=[50, 4_000, 20])
    shown = page.tables(found)
    assert "| **Postroom** | 100 [10..1,000] |  |" in shown
    assert "| huey | 50 [20..4,000] | 0.50 |" in shown  # of 2.0, 0.25 and 0.5; the medians alone would say 2
    assert "enqueue 1.5, 2.5, 3.5" in shown


def test_who_is_not_first_is_told() -> None:
    shown = page.tables(values(postroom=[100, 100, 100], huey=[300, 300, 300], dramatiq=[200, 200, 200]))
    assert "| one by one, /s | Redis | huey (300) | 3. of 3 (100) |" in shown
    shown = page.tables(values(postroom=[400, 400, 400], huey=[300, 300, 300]))
    assert "| one by one, /s | Redis | **Postroom** (400) | first (400) |" in shown


def test_who_was_ahead_in_one_round_and_behind_in_another_is_level() -> None:
    found = values(postroom=[400, 400, 200], huey=[300, 300, 300])
    assert "| **Postroom** (400) | level with huey (400) |" in page.tables(found)
    found = values(postroom=[400, 400, 200], huey=[300, 300, 300], dramatiq=[900, 900, 900])
    assert "| dramatiq (900) | 2. of 3, level with huey (400) |" in page.tables(found)


def test_what_a_peer_cannot_do_is_no_zero() -> None:
    found = values(postroom=[9, 9, 9], huey=[8, 8, 8], dramatiq=[7, 7, 7])
    found["disciplines"]["bulk"] = {"load": [1], "runners": {"postroom": {"rate": [9]}}, "crashes": {}}
    found["disciplines"]["enqueue"]["runners"].pop("dramatiq")
    found["disciplines"]["enqueue"]["crashes"]["dramatiq"] = "TimeoutError"
    shown = page.tables(found)
    assert "| huey | 8 | 1.12 | — (2) |" in shown
    assert "| dramatiq | — (1) |  | — (2) |" in shown
    assert "(2) has no call that takes many jobs." in shown
    assert "(1) did not finish" in shown


def test_the_page_has_the_tables_of_the_published_values() -> None:
    text = (REPO / page.PAGE).read_text(encoding="utf-8")
    published = (REPO / page.VALUES).read_text(encoding="utf-8")
    assert page.written(text, json.loads(published)) == text
    assert not re.search(r"/(work|home|tmp|root)\b", published)


def test_the_page_about_growth_has_the_tables_of_the_published_values() -> None:
    text = (REPO / scaling.PAGE).read_text(encoding="utf-8")
    published = (REPO / scaling.VALUES).read_text(encoding="utf-8")
    assert scaling.written(text, json.loads(published)) == text
    assert not re.search(r"/(work|home|tmp|root)\b", published)


def test_every_runner_has_a_kind_and_a_name_of_its_own() -> None:
    from bench.systems import KINDS

    assert {runner.system for runner in FIELD} <= KINDS.keys()
    assert len({(runner.name, runner.store) for runner in FIELD}) == len(FIELD)


def test_a_ledger_outlives_its_writer_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path, 3)
    writes = (
        f"from bench.race.ledger import Ledger; from pathlib import Path; book = Ledger(Path({str(path)!r}));"
    )
    kills = "[book.note(key) for key in (5, 6, 7, 8)]; import os; os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", writes + kills], cwd=REPO, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [entry.key for entry in ledger.entries()] == [5, 6, 7]
    assert [entry.key for entry in ledger.entries(2)] == [7]
    assert ledger.entries()[0].at <= ledger.entries()[1].at


def test_a_gate_holds_only_who_waits_for_it(tmp_path: Path) -> None:
    watch = LedgerWatch(Ledger(tmp_path / "ledger", 1), "", tmp_path / "gate")
    assert not watch.is_held({"key": 1})
    assert watch.is_held({"key": 1, "gate": True})
    (tmp_path / "gate").touch()
    assert not watch.is_held({"key": 1, "gate": True})
    assert LedgerWatch(Ledger(tmp_path / "ledger", 1), "all", tmp_path / "gate").is_held({})


def test_a_kill_takes_the_children_in_other_groups_too(tmp_path: Path) -> None:
    told = tmp_path / "child"
    code = (
        "import os, pathlib, subprocess, sys\n"
        "waits = [sys.executable, '-c', 'input()']\n"
        "child = subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True)\n"
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid))\n"
        "child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_until(lambda: told.exists() and told.read_text() != "", 60)
        child = int(told.read_text())
        kill_family(parent.pid)
        assert parent.wait(30) == -signal.SIGKILL
    wait_until(lambda: has_ended(child), 30)
