"""What a page starts and leaves running is started here too: it says when it is ready, and stops if asked."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.shell import CLEAN, COMMAND
from tests.docs.blocks import commands, of, write_files
from tests.docs.conftest import Neighbours
from tests.docs.shell import read_postroom
from tests.docs.test_blocks import ELSEWHERE
from tests.redis.servers import PATIENCE, certificate

#: What a page takes for granted: its reader has an app, and roles.
APP = """
import os

from celery import Celery

app = Celery("shop", broker="postroom+" + os.environ["POSTROOM_URL"])
"""
ROLES = """
[roles.fast]
queues = ["emails"]

[roles.heavy]
queues = ["emails"]
"""
#: And handlers, where it shows none.
JOBS = "shop.jobs:handlers"
HANDLERS = "handlers = dict.fromkeys(['emails', 'payouts'], print)\n"
CELERY = [sys.executable, "-m", "celery"]


class Lasting(NamedTuple):
    """A command of a page, and what it says when it is ready."""

    page: str
    args: tuple[str, ...]
    says: str

    def __str__(self) -> str:
        return f"{self.page.rpartition('/')[2]}: {' '.join(self.args)}"


def says_when_ready(args: list[str]) -> str:
    """Nothing: it ends by itself, and another test runs it. (Workers are also run until nothing is left.)"""
    if args[0] == "celery":
        return {"worker": "ready", "beat": "beat: Starting"}.get(args[3], "")
    command = " ".join(read_postroom(args[1:])) if args[0] == "postroom" else ""
    says = {"serve": r"https?://127\.0\.0\.1:\d+", "celery worker": "ready", "worker": r" works: "}
    return says.get(command, "")


def lasting() -> list[Lasting]:
    """Each once; the runbook and the examples have tests of their own."""
    found = [
        Lasting(block.page, tuple(args), says)
        for block in of("sh")
        if not block.page.startswith(ELSEWHERE)
        for args in commands(block.text)
        if (says := says_when_ready(args))
    ]
    return list(dict.fromkeys(found))


def test_there_are_some() -> None:
    started = {each.args[:2] for each in lasting()}
    assert started >= {("postroom", "serve"), ("postroom", "worker"), ("celery", "-A")}
    assert len(lasting()) >= 12


@pytest.mark.parametrize("one", lasting(), ids=str)
def test_it_starts_and_stops_when_it_is_asked(one: Lasting, tmp_path: Path, neighbours: Neighbours) -> None:
    furnish(one.page, tmp_path)
    program, *args = (neighbours.met(word) for word in one.args)
    if "serve" in args:
        args = [*without(args, "--port"), "--port", "0"]
    elif "celery" in (program, args[0]) and "--loglevel" not in args:
        args += ["--loglevel", "INFO"]
    environ = CLEAN | {"POSTROOM_URL": f"sqlite:///{tmp_path}/page.db", "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*(CELERY if program == "celery" else COMMAND), *args],
            cwd=tmp_path, env=environ, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        wait_for(process, log, one.says)
        process.terminate()
        # A server says where it will serve just before it listens to signals.
        assert process.wait(PATIENCE) in {0, -signal.SIGTERM}, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


def furnish(page: str, folder: Path) -> None:
    write_files(page, folder)
    settings = folder / "postroom.toml"
    given = settings.read_text(encoding="utf-8") if settings.exists() else ""
    if "[roles" not in given:
        given += ROLES
    if "\napp = " not in given:
        given = f'app = "{JOBS}"\n{given}'
    settings.write_text(given, encoding="utf-8")
    if not (folder / "shop.py").exists():
        set_up_shop(folder / "shop")
    made = certificate(folder)
    made.rename(folder / "cert.pem")
    made.with_suffix(".key").rename(folder / "key.pem")


def set_up_shop(shop: Path) -> None:
    shop.mkdir(exist_ok=True)
    shown = {"__init__": APP, "tasks": "from shop import app as app\n", "jobs": HANDLERS, "payouts": HANDLERS}
    for module, text in shown.items():
        file = shop / f"{module}.py"
        if not file.exists():
            file.write_text(text, encoding="utf-8")


def without(args: list[str], option: str) -> list[str]:
    if option not in args:
        return args
    at = args.index(option)
    return args[:at] + args[at + 2 :]


def wait_for(process: subprocess.Popen[bytes], log: Path, says: str) -> None:
    end = time.monotonic() + PATIENCE
    while not re.search(says, log.read_text()):
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)
