"""Other processes for the faults: they run some lines with the store's path, say lines, and can be killed."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import postroom
from postroom.errors import EngineUnavailable
from postroom.room import Room
from tests.processes import has_stopped
from tests.sqlite import outside

REPO = Path(__file__).parents[2]
#: Far more than anything takes, on a machine that is busy with something else (seconds).
PATIENCE = 60.0

_PRELUDE = """
import os, signal, sqlite3, sys, threading, time
import postroom
from postroom import Policy, Worker
from postroom.errors import *
from tests.chaos.outside import eventually, url_of
path = sys.argv[1]
def say(*words): print(*words, flush=True)
"""

#: Gives the child a blow in its next step: when only the COMMIT is missing, or right after it.
BLOW = """
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.transaction import Transaction

blows, connect = [], File.connect

def hit():
    say("inside")
    os.kill(os.getpid(), blows.pop())

def seen(statement):
    if statement == "COMMIT" and blows and threading.current_thread() is threading.main_thread():
        hit()

def watched(file, **options):
    connection = connect(file, **options)
    if not options.get("readonly"):
        connection.set_trace_callback(seen)
    return connection

File.connect = watched

def before_commit(blow):
    blows.append(blow)

def after_commit(blow):
    Transaction.committed = lambda transaction: os.kill(os.getpid(), blow)
"""


class Child(outside.Child):
    """Another process, which knows the whole of Postroom."""

    prelude = _PRELUDE

    def wait_until_stopped(self) -> None:
        wait_until_stopped(self.process.pid)


def wait_until_stopped(pid: int) -> None:
    eventually(lambda: has_stopped(pid))


def url_of(path: Path | str, **options: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"sqlite:///{path}" + (f"?{query}" if query else "")


def opened(url: str) -> Room:
    """A room of this store, which on a machine that is much too busy may not answer at once."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return postroom.open(url)
        except EngineUnavailable:
            if time.monotonic() > end:
                raise


def eventually(true: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, f"not within {patience} s"
        time.sleep(0.005)


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that is in the store, seen by somebody else."""
    with closing(sqlite3.connect(path)) as connection:
        named = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in named}


def check_sound(path: Path) -> None:
    """Seen by somebody else: the file is whole, and its counters say what its rows say."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = connection.execute(
            "SELECT sum(ready + suspects), sum(scheduled), sum(processing), sum(dead) FROM postroom_queue"
        )
        rows = connection.execute(
            "SELECT sum(state = 1), sum(state = 0), sum(state = 2), sum(state = 4) FROM postroom_message"
        )
        assert [n or 0 for n in rows.fetchone()] == [n or 0 for n in counted.fetchone()]
        orphans = "SELECT count(*) FROM postroom_body WHERE message NOT IN (SELECT key FROM postroom_message)"
        assert connection.execute(orphans).fetchone() == (0,)


def on_mount(mount: str, code: str, path: Path) -> list[str]:
    return outside.on_mount(mount, code, path, _PRELUDE)
