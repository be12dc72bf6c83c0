"""The ground that everybody runs on: a store of its own for each trial, and the processes of a runner."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg

from bench.measure import wait_until
from bench.race.field import Runner
from bench.race.ledger import Ledger
from bench.server import Books, redis_server
from bench.systems import Terms
from tests.sql import postgres

REPO = Path(__file__).parents[2]
#: Whoever says nothing for so long has lost something (seconds).
_PATIENCE = 180
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
#: What Redis's own documentation advises who wants to keep something; the same for all.
AOF = ("--appendonly", "yes", "--appendfsync", "everysec")
_DURABLE = ("fsync=on", "synchronous_commit=on", "shared_buffers=128MB")


class Track:
    """Where the race is: files below this folder, and one PostgreSQL, started when it is first needed."""

    def __init__(self, folder: Path, kept: ExitStack) -> None:
        self._folder = folder
        self._kept = kept
        self._postgres: postgres.Postgres | None = None
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def lane(self, runner: Runner, terms: Terms) -> Iterator[Lane]:
        """A store that nobody has used, for one runner. It and all its processes are gone afterwards."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
            url = stack.enter_context(self._store(runner.store, folder))
            stores = folder / "files"
            lane = Lane(runner, url, folder, stores, terms)
            stack.callback(lane.end)
            yield lane

    @contextmanager
    def _store(self, kind: str, folder: Path) -> Iterator[str]:
        (folder / "files").mkdir()
        if kind == "sqlite":
            yield f"sqlite:///{folder / 'files' / 'room.db'}"
        elif kind == "redis":
            with redis_server(folder, 0, *AOF) as port:
                yield f"redis://127.0.0.1:{port}/0"
        else:
            yield self._new_database()

    def _new_database(self) -> str:
        with self._lock:
            if self._postgres is None:
                self._postgres = self._kept.enter_context(postgres.running(*_DURABLE))
        name = f"race{next(self._numbers)}"
        with self._postgres.connect() as line:
            line.autocommit = True
            line.execute(f"CREATE DATABASE {name}".encode())
        return f"host={self._postgres.folder} user=postroom dbname={name}"


class Lane:
    """One runner with its store."""

    def __init__(self, runner: Runner, url: str, folder: Path, stores: Path, terms: Terms) -> None:
        self.runner = runner
        self.gate = folder / "gate"
        self._url, self._folder, self._stores = url, folder, stores
        self._terms = json.dumps(asdict(terms))
        self._children: list[subprocess.Popen[str]] = []
        self._numbers = itertools.count()

    def sender(self) -> Sender:
        return Sender(self._start("bench.race.sender", self._common()))

    def worker(self, capacity: int, held: str = "") -> Worker:
        """One that works at once; its ledger has room for so many."""
        path = self._folder / f"ledger{next(self._numbers)}"
        ledger = Ledger(path, capacity)
        child = self._start("bench.race.worker", [*self._common(), str(path), held])
        return Worker(child, ledger, path)

    def end(self) -> None:
        for child in self._children:
            kill_family(child.pid)
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def size(self) -> int:
        """Bytes that the store takes, by its own books; of files, when everybody has closed them."""
        if self.runner.store == "redis":
            with Books(self._url) as books:
                return books.memory()
        if self.runner.store == "sqlite":
            return sum(file.stat().st_size for file in self._stores.rglob("*") if file.is_file())
        with psycopg.connect(self._url) as line:
            asked = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
            where = " ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r'"
            row = line.execute((asked + where).encode()).fetchone()
            assert row
            return int(row[0])

    def _common(self) -> list[str]:
        return [self.runner.system, self._url, self._terms]

    def _start(self, module: str, arguments: list[str]) -> subprocess.Popen[str]:
        command = [*_DIES_WITH_US, str(self.runner.python(REPO)), "-m", module, *arguments]
        log = self._folder / "processes.log"
        with log.open("ab") as errors:
            child = subprocess.Popen(
                command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._children.append(child)
        return child

    def last_words(self) -> str:
        """What its processes said last on the standard error."""
        with contextlib.suppress(OSError):
            return (self._folder / "processes.log").read_text(encoding="utf-8", errors="replace")[-2_000:]
        return ""


class Sender:
    """A process that puts; see `bench.race.sender`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._next()

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._next()

    def close(self) -> None:
        """Let it close what it opened."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(_PATIENCE)

    def _listen(self) -> None:
        assert self._process.stdout
        with contextlib.suppress(ValueError):  # closed by whoever ended it
            for line in self._process.stdout:
                if line.startswith("{"):
                    self._said.put(line)
        self._said.put("")

    def _next(self) -> dict[str, Any]:
        if line := self._said.get(timeout=_PATIENCE):
            said: dict[str, Any] = json.loads(line)
            return said
        raise RuntimeError("the sender ended")


class Worker:
    """A process that works, and what it noted."""

    def __init__(self, process: subprocess.Popen[str], ledger: Ledger, path: Path) -> None:
        self._process, self.ledger, self.path = process, ledger, path
        # Nobody reads what workers print, but a full pipe would stop them.
        threading.Thread(target=self._drain, daemon=True).start()

    def wait_for(self, count: int, seconds: float = _PATIENCE) -> None:
        """Until it began so many jobs."""
        wait_until(lambda: len(self.ledger) >= count or self._ended(), seconds)

    def kill(self) -> None:
        """As when the machine dies: nothing of it is left, and it could not say goodbye."""
        kill_family(self._process.pid)
        self._process.wait()

    def _ended(self) -> bool:
        if self._process.poll() is None:
            return False
        raise RuntimeError(f"the worker ended with {self._process.returncode}")

    def _drain(self) -> None:
        assert self._process.stdout
        with contextlib.suppress(ValueError):
            for _ in self._process.stdout:
                pass


def kill_family(pid: int) -> None:
    """This process and all it started; some of them are in groups of their own."""
    family = _family(pid)
    for member in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:  # grows while we go through it
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def missing(runner: Runner) -> bool:
    """Whether it is not installed."""
    from bench.systems import KINDS

    python = runner.python(REPO)
    if not shutil.which(str(python)):
        return True
    asked = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({KINDS[runner.system][1]!r}) is None)"
    )
    return subprocess.run([python, "-c", asked], check=False, stderr=sys.stderr).returncode != 0


def version(runner: Runner) -> str:
    asked = f"import importlib.metadata as m; print(m.version({runner.package!r}))"
    told = subprocess.run([runner.python(REPO), "-c", asked], check=True, capture_output=True, text=True)
    return told.stdout.strip()
