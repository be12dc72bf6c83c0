"""`postroom bench` measures and leaves nothing behind; `postroom completion` is a script that completes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import postroom
from tests.cli.shell import CLEAN, Shell

FIGURES = [
    "put, one by one",
    "claim 100 at a time, ack each",
    "put_many",
    "a worker of 2 drains",
    "an idle worker wakes, median",
]


def test_bench_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        room.queue("mine").put("x")
        arguments = ("bench", "--url", url, "--messages", "300", "--concurrency", "2")
        figures = json.loads(Shell(tmp_path).run(*arguments, "--json").stdout)
        assert [figure["name"] for figure in figures] == FIGURES
        assert all(figure["value"] > 0 for figure in figures)
        assert [info.name for info in room.queues()] == ["mine"]
        assert room.queue("mine").stats().ready == 1


def test_bench_is_a_table_to_people(tmp_path: Path) -> None:
    lines = Shell(tmp_path).run("bench", "--url", "memory://", "--messages", "20").stdout.splitlines()
    assert lines[1].startswith("put, one by one  ")
    assert lines[1].endswith("/s")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(tmp_path: Path, shell: str) -> None:
    assert "_POSTROOM_COMPLETE" in Shell(tmp_path).run("completion", shell).stdout


def test_another_shell_is_a_matter_of_usage(tmp_path: Path) -> None:
    Shell(tmp_path).run("completion", "cmd", code=2)


COMMAND = f"""#!{sys.executable}
import sys
from postroom.cli import main
sys.argv[0] = "postroom"
sys.exit(main())
"""
ASK = """
COMP_WORDS=(postroom comp)
COMP_CWORD=1
_postroom_completion "$PWD/postroom"
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_by_it(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    (tmp_path / "postroom").write_text(COMMAND, encoding="utf-8")
    (tmp_path / "postroom").chmod(0o755)
    script = Shell(tmp_path).run("completion", "bash").stdout + ASK
    ran = subprocess.run(
        [bash, "-c", script], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, check=True, timeout=100
    )
    assert ran.stdout.split() == ["completion"]
