"""Celery workers as processes: started, listened to, and ended with all their children."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Whoever says nothing for so long has lost something (seconds).
_PATIENCE = 100


class CeleryWorker:
    """One of them; see `bench.celery.worker` for what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")

    def next(self) -> dict[str, Any]:
        """What it says next. Raises if it ended, or is silent for too long."""
        while line := self._said.get(timeout=_PATIENCE):
            if line.startswith("{"):  # Celery itself prints a banner
                said: dict[str, Any] = json.loads(line)
                return said
        raise RuntimeError("the worker ended")

    def memory(self) -> int:
        """Its resident memory (bytes)."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def celery_worker(whose: str, url: str, *arguments: str, **settings: Any) -> Iterator[CeleryWorker]:
    """A worker that is ready; killed with its pool at the end."""
    command = [sys.executable, "-m", "bench.celery.worker", whose, url, json.dumps(settings), *arguments]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield CeleryWorker(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else is in there
