"""Every block of code on every page is run, or read by the program it is meant for.

- `python`: all of a page in order, in one interpreter, in a folder of their own.
- `sh`: every `postroom`, `celery` and `make` command is read by the real one; what ends by itself is run, and
  what does not is started and stopped by `test_lasting`. `test_making` has the rest of `make`.
- `toml`: loaded as a configuration, by the loader that users have.
- `text`: what comes out of something; `test_samples` makes it, and compares `mermaid` and `markdown`.
"""

from __future__ import annotations

import codeop
import importlib.util
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from postroom.config import load
from tests.cli.inside import Inside
from tests.cli.shell import CLEAN, Shell
from tests.docs.blocks import BLOCKS, REPO, Block, commands, of, write_files
from tests.docs.conftest import Neighbours
from tests.docs.shell import read_celery, read_curl, read_postroom

#: Languages that somebody here knows how to try, and those that are there to be looked at.
TRIED = {"python", "sh", "toml", "yaml", "ini", "conf"}
SEEN = {"text", "mermaid", "markdown"}


def pages(kind: str) -> list[str]:
    return list(dict.fromkeys(block.page for block in of(kind)))


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in BLOCKS if block.kind not in TRIED | SEEN] == []
    assert len(BLOCKS) > 90


# ---- Python ----------------------------------------------------------------------------------------


def scripts(page: str) -> list[str]:
    """What is no file: to be run as it stands, one after the other."""
    return [block.text for block in of("python", page) if not block.file]


@pytest.mark.parametrize("page", [page for page in pages("python") if scripts(page)])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, neighbours: Neighbours) -> None:
    write_files(page, tmp_path)
    script = tmp_path / "page.py"
    script.write_text(neighbours.met("\n".join(scripts(page))), encoding="utf-8")
    command = [sys.executable, str(script)]
    ran = subprocess.run(
        command, check=False, cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=250
    )
    assert ran.returncode == 0, ran.stderr


def test_the_tutorial_can_be_pasted_into_an_interpreter() -> None:
    """There a block ends with an empty line, and what follows it without one is a mistake."""
    for block in of("python", "docs/tutorial.md"):
        compiler, pending = codeop.CommandCompiler(), list[str]()
        for line in [*block.text.splitlines(), ""]:
            pending.append(line)
            if compiler("\n".join(pending), str(block), "single"):
                pending.clear()
        assert not "".join(pending), block


# ---- Shell -----------------------------------------------------------------------------------------

#: The runbook is one long script and has a test of its own; examples are run by theirs.
ELSEWHERE = ("docs/how-to/dead-letters.md", "examples/")
#: What has to be told to end, and what never does.
ENDS_BY = {"top": ["--once"], "event tail": ["--for", "100ms"], "worker": ["--drain"]}
#: Carried out by test_deploying and test_systemd.
DEPLOYED = {"cd", "runuser", "systemctl", "uvicorn"}
#: The files that a page shows.
FILES = {page: {block.file for block in BLOCKS if block.page == page} for page in pages("sh")}
NEVER_ENDS = {"serve", "keeper run", "celery worker", "events worker", "demo"}


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_commands_are_read_by_the_real_ones(block: Block) -> None:
    for program, *args in commands(block.text):
        match program:
            case "postroom":
                read_postroom(args)
            case "celery":
                read_celery(args)
            case "curl":
                read_curl(args)
            case "make":
                subprocess.run(["make", "-n", *args], check=True, cwd=REPO, capture_output=True)
            case "python" if args[0] == "-m":
                assert importlib.util.find_spec(args[1]), args
            case "python":
                assert args[0] == "-c" or args[0] in FILES[block.page] | {"order.py"}, args
            case _:
                assert program in DEPLOYED or block.page.startswith(ELSEWHERE), program


@pytest.mark.parametrize("page", [page for page in pages("sh") if not page.startswith(ELSEWHERE)])
def test_what_ends_by_itself_is_carried_out(
    page: str,
    tmp_path: Path,
    neighbours: Neighbours,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_URL", f"sqlite:///{tmp_path}/page.db")
    inside = Inside(monkeypatch, capsys)
    for block in of("sh", page):
        for program, *args in commands(neighbours.met(block.text)):
            if program == "python":
                subprocess.run([sys.executable, *args], check=True, capture_output=True)
            elif program == "postroom" and (ends := ending(args, tmp_path)):
                if ends[0] == "worker":  # imports what other pages call the same
                    Shell(tmp_path).run(*ends, POSTROOM_URL=os.environ["POSTROOM_URL"])
                else:
                    inside.run(*ends, stdin="y\n")


def ending(args: list[str], folder: Path) -> list[str]:
    """The arguments with which it ends by itself; none if it does not, or needs what is not on the page."""
    command = " ".join(read_postroom(args))
    elsewhere = any("://" in word and not re.search(r"127\.0\.0\.1|sqlite:///\w", word) for word in args)
    elsewhere = elsewhere or "--service" in args  # an app that is not there to be loaded
    if command in NEVER_ENDS or elsewhere or (command == "worker" and not has_handlers(args, folder)):
        return []
    return [*args, *ENDS_BY.get(command, [])]


def has_handlers(args: list[str], folder: Path) -> bool:
    """Whether the page shows what this worker would run."""
    given = dict(pairwise(args))
    app = given.get("--app") or load().app or ""
    return bool(app) and (folder / f"{app.partition(':')[0].replace('.', '/')}.py").exists()


# ---- TOML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_a_configuration_can_be_loaded(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "postroom.toml"
    file.write_text(block.text, encoding="utf-8")
    assert load(file, environ={}).file
