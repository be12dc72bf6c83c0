"""What a page tells to `make` is made, by make: as it stands there, and small."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from bench.race import page as race
from bench.scaling import page as scaling
from tests.cli.shell import CLEAN
from tests.docs.blocks import BLOCKS, REPO, commands

pytestmark = pytest.mark.timeout(900)

#: Neither this make nor this pytest is the one that is started.
ENVIRON = {name: value for name, value in CLEAN.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
#: What makes it small, where the page does not say it otherwise.
UNSAID = {"bench": {"--only": "cost"}, "race": {"--peers": "huey"}}
#: And what does in any case: of two that are given, the last counts.
SMALL = {
    "bench": "--quick --repeats 1",
    "race": "--quick --rounds 1 --minutes 0.01",
    "scaling": "--quick --rounds 1 --minutes 0.01 --most 1000",
    "run": "--seconds 10",
    "test": "tests/test_duration.py",
}


#: Each `make` of our pages, in their order: its target, and the arguments.
LINES = [
    (words[1], "".join(words[2:]).removeprefix("ARGS="))
    for block in BLOCKS
    if block.kind == "sh"
    for words in commands(block.text)
    if words[0] == "make"
]


def told(target: str) -> list[str]:
    return [said for name, said in LINES if name == target]


def make(target: str, said: str, *more: str) -> str:
    unsaid = [word for pair in UNSAID.get(target, {}).items() if pair[0] not in said for word in pair]
    args = " ".join([said, *unsaid, SMALL[target], *more])
    ran = subprocess.run(
        ["make", target, f"ARGS={args}"], check=False, cwd=REPO, env=ENVIRON, capture_output=True, text=True
    )
    assert ran.returncode == 0, f"{args}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def test_every_make_of_a_page_is_made_here() -> None:
    assert {target for target, _ in LINES} == SMALL.keys()


@pytest.mark.parametrize("said", told("bench"))
def test_measurements(said: str, tmp_path: Path) -> None:
    assert "| what " in make("bench", said, f"--dir {tmp_path}")


@pytest.mark.parametrize(
    ("target", "page", "parts"), [("race", race, "disciplines"), ("scaling", scaling, "curves")]
)
def test_rounds_that_are_published_and_gone_on_with(
    target: str, page: ModuleType, parts: str, tmp_path: Path
) -> None:
    """The time is up after the first part, each time; whoever resumes takes the next."""
    for name in (page.VALUES, page.PAGE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    (tmp_path / "docs" / "images").mkdir()
    kept, measured = tmp_path / "kept.json", list[int]()
    for said in told(target):
        publish = f"--publish {tmp_path}" if "--publish" in said else ""
        make(target, said, f"--dir {tmp_path} --json {kept}", publish)
        measured.append(len(json.loads(kept.read_text())[parts]))
        if publish:
            text = (tmp_path / page.PAGE).read_text(encoding="utf-8")
            assert text == page.written(text, json.loads((tmp_path / page.VALUES).read_text()))
            assert text != (REPO / page.PAGE).read_text(encoding="utf-8")
    assert 2 in measured, "nobody went on"
    assert list((tmp_path / "docs" / "images").glob(f"{target}-*.png"))


def test_the_two_commands() -> None:
    assert "checks passed" in make("run", "")
    assert " passed" in make("test", "")
