"""What tests of a file share: the plainest context, and other processes, which can be stopped and killed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.writer import Writer, _Job

REPO = Path(__file__).parents[2]

#: A version of the file that is enough to write something down.
SCHEMA = {1_000: "CREATE TABLE note (text TEXT);"}

#: Seconds: far more than anything here takes, on a machine that is busy with something else.
PATIENCE = 60.0

_PRELUDE = """
import os, signal, sqlite3, sys, threading, time
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.reader import Reader
from postroom.engines.sqlite.writer import Writer
from postroom.errors import *
from tests.sqlite.outside import SCHEMA, Notes, note, notes_in, writer_on
path = sys.argv[1]
def say(*words): print(*words, flush=True)
"""


class Notes:
    """A context that keeps its connection for the step."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def committed(self) -> None:
        pass


def file_at(path: Path | str, busy_timeout: int = 5_000) -> File:
    return File(str(path), schemas=SCHEMA, busy_timeout=busy_timeout)


def writer_on(path: Path | str, busy_timeout: int = 5_000) -> Writer[Notes]:
    return Writer(file_at(path, busy_timeout), Notes)


def note(text: str) -> Callable[[Notes], None]:
    """A step that writes it down."""

    def step(context: Notes) -> None:
        context.connection.execute("INSERT INTO note VALUES (?)", (text,))

    return step


def notes_in(path: Path | str) -> list[str]:
    """What is in the store, seen by somebody else."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [text for (text,) in connection.execute("SELECT text FROM note ORDER BY rowid")]
    finally:
        connection.close()


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


class Sleepers:
    """The threads that wait for their turn at a writer: whoever is called goes on, in the order they came.

    Otherwise each looks by itself now and then, and may find the writer free before the first was called.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asleep: set[_Job] = set()
        #: Set by who needs that they look by themselves.
        self.may_look = threading.Event()
        patch.setattr(_Job, "sleep", lambda job: self._sleep(job))  # noqa: PLW0108 - a method of the job

    def _sleep(self, job: _Job) -> None:
        self.asleep.add(job)
        while not job._gate.acquire(timeout=0.02) and not self.may_look.is_set():
            pass

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.asleep) >= count)


class Child:
    """Another process, which runs the code with `path` and says lines; it is gone when the block ends."""

    prelude = _PRELUDE

    def __init__(self, code: str, path: Path | str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.prelude + code, str(path)],
            cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def on_mount(mount: str, code: str, path: Path, prelude: str = _PRELUDE) -> list[str]:
    """The lines of a process that sees this mount, and nobody else does; skips where that is not allowed."""
    unshare = [shutil.which("unshare") or "unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mounts of one's own here: {error}")
    script = f'set -e; folder=$(dirname "$1"); {mount}; exec "$2" -c "$3" "$1"'
    run = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", str(path), sys.executable, prelude + code],
        cwd=REPO, check=False, capture_output=True, text=True, timeout=1.5 * PATIENCE,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3_000:]
    return run.stdout.splitlines()
