"""The workers of the scenario: one process a role, started as people start them, and again when one dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.marketplace.outside import NOTES

#: Where `examples` can be imported from.
ROOT = Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "postroom.cli", "worker", "--role")
_PATIENCE = 60.0


class Workers:
    """`postroom worker --role …` for each role. Whoever was killed is started again, as by any supervisor."""

    def __init__(self, roles: Iterable[str], url: str, config: Path, notes: Path) -> None:
        self._environ = {
            **os.environ, "POSTROOM_URL": url, "POSTROOM_CONFIG": str(config), NOTES: str(notes),
        }  # fmt: skip
        self._roles = tuple(roles)
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
            process.kill()
            process.wait()

    def _start(self, role: str) -> None:
        with self._log.open("ab") as log:
            self._running[role] = subprocess.Popen(
                (*_COMMAND, role), cwd=ROOT, env=self._environ, stdout=log, stderr=log
            )

    def look(self) -> None:
        """Start again who was killed. Raises RuntimeError when one has ended in any other way."""
        for role, process in list(self._running.items()):
            if process.poll() == -signal.SIGKILL:
                self.killed += 1
                self._start(role)
            elif process.poll() is not None:
                raise RuntimeError(f"the worker of {role} ended with {process.returncode}: {self.log()}")

    def stop(self) -> list[int]:
        """Ask everybody to stop, wait for it, and tell the exit codes."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        return [process.wait(_PATIENCE) for process in self._running.values()]

    def log(self) -> str:
        """The last of what they said."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4_000:] if self._log.exists() else ""
