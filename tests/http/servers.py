"""A real `postroom serve` in a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom.http import server

PATIENCE = 60.0


class Served:
    """The process, and where it serves."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address
        self.api = f"{address}/api/v1"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)


@contextmanager
def serving(url: str, folder: Path, *options: str, **variables: str) -> Iterator[Served]:
    """`postroom serve` on this store; killed at the end if it still runs."""
    command = [sys.executable, "-m", "postroom.cli", "serve", "--url", url, "--port", "0", *options]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    with (folder / "serve.log").open("a") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            cwd=folder, env=environ | variables, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdout
    with process.stdout:
        try:
            line = process.stdout.readline()
            found = re.search(r"https?://\S+", line)
            assert found, (folder / "serve.log").read_text()
            yield Served(process, found[0])
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextmanager
def served_here(app: Any) -> Iterator[str]:
    """An application, served over a real socket by a thread of this process; its address."""
    with server.listen("127.0.0.1", 0) as bound:
        running = server.Server(app, on_stop=app.state.hub.dismiss)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield server.address(bound)
        finally:
            running.should_exit = True
            thread.join(PATIENCE)
