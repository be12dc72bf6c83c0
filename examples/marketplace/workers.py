"""The workers of the scenario: one process a role, started as people start them, and again when one dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.marketplace.outside import FIXED, NOTES

#: Where `examples` can be imported from.
ROOT = Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "postroom.cli")
_PATIENCE = 60.0
#: No role of the matrix: the process that reads the clock for Celery.
CLOCK = "clock"


def by_postroom(role: str) -> Sequence[str]:
    return (*_COMMAND, "worker", "--role", role)


def by_celery(role: str) -> Sequence[str]:
    """A pool of processes where a message may kill one, and threads where they do; and Celery's beat."""
    if role == CLOCK:
        celery = (sys.executable, "-m", "celery", "-A", "examples.marketplace.tasks")
        return (*celery, "beat", "-S", "postroom.celery.beat:Scheduler", "--pidfile=", "-l", "INFO")
    pool = "prefork" if role == "fast" else "threads"
    app = ("--app", "examples.marketplace.tasks:app", "-n", f"{role}@market", "--pool", pool, "-l", "INFO")
    return (*_COMMAND, "celery", "worker", "--role", role, *app)


class Workers:
    """A worker process for each role. Whoever was killed is started again, as by any supervisor."""

    def __init__(
        self,
        roles: Iterable[str],
        url: str,
        config: Path,
        notes: Path,
        command: Callable[[str], Sequence[str]] = by_postroom,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.environ = {
            **os.environ, **(environ or {}), "POSTROOM_URL": url, "POSTROOM_CONFIG": str(config),
            NOTES: str(notes), FIXED: str(notes.with_name("fixed")),
        }  # fmt: skip
        self._roles = tuple(roles)
        self._command = command
        self._log = config.with_name("workers.log")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed = 0

    def __enter__(self) -> Self:
        for role in self._roles:
            self._start(role)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            # The whole group: a pool's processes must not outlive their parent.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, role: str) -> None:
        with self._log.open("ab") as log:
            self._running[role] = subprocess.Popen(
                self._command(role),
                cwd=ROOT,
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def look(self) -> None:
        """Start again who was killed. Raises RuntimeError when one has ended in any other way."""
        for role, process in list(self._running.items()):
            if process.poll() == -signal.SIGKILL:
                self.killed += 1
                self._start(role)
            elif process.poll() is not None:
                raise RuntimeError(f"the worker of {role} ended with {process.returncode}: {self.log()}")

    def kill(self, role: str) -> None:
        """As by kill -9, and another one takes its place; not counted as killed by a message."""
        self._running[role].kill()
        self._running[role].wait()
        self._start(role)

    def stop(self) -> list[int]:
        """Ask everybody to stop, wait for it, and tell the exit codes."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        return [process.wait(_PATIENCE) for process in self._running.values()]

    def log(self) -> str:
        """The last of what they said."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4_000:] if self._log.exists() else ""
