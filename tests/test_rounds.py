"""`bench.rounds`: what was measured outlives an interruption, and the rest goes on from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.rounds import Book

PLAN = [(number, name) for number in (1, 2) for name in ("put", "drain")]


def measured(
    path: Path, *, resume: bool, stop_before: int = 99, minutes: float = 60.0
) -> tuple[list[str], list[str]]:
    """Go through the plan until something goes wrong before that turn; what was done, and what was said."""
    said: list[str] = []
    done: list[str] = []
    book = Book(path, "parts", {"machine": {}}, resume)
    for number, name in book.turns(PLAN, minutes, said.append):
        if len(done) == stop_before:
            raise KeyboardInterrupt
        book.parts.setdefault(name, {"values": []})["values"].append(number)
        done.append(f"{name} {number}")
    return done, said


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kept.json"
    with pytest.raises(KeyboardInterrupt):
        measured(path, resume=False, stop_before=3)
    kept = json.loads(path.read_text(encoding="utf-8"))["parts"]
    assert [kept[name]["values"] for name in ("put", "drain")] == [[1, 2], [1]], (
        "what was cut off is not there"
    )
    assert measured(path, resume=True)[0] == ["drain 2"]
    kept = json.loads(path.read_text(encoding="utf-8"))["parts"]
    assert [kept[name]["values"] for name in ("put", "drain")] == [[1, 2], [1, 2]]
    assert measured(path, resume=True) == ([], [])
    assert len(measured(path, resume=False)[0]) == 4, "without the word it begins anew"


def test_how_long_the_rest_takes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text(json.dumps({"parts": {"put": {"values": [1], "seconds": [120]}}}), encoding="utf-8")
    said = measured(path, resume=True)[1]
    assert said[0] == "round 1 of 2: drain; more than 2 minutes to go"
    assert said[-1].startswith("round 2 of 2: drain; 0 minutes to go")


def test_nothing_begins_when_the_time_is_up(tmp_path: Path) -> None:
    done, said = measured(tmp_path / "kept.json", resume=False, minutes=-1)
    assert (done, said) == ([], ["the time is up before round 1 of 2: put; --resume goes on from here"])
