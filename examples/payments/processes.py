"""The processes of the examples with payments: each ends with whoever started it, however that ends."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Where `python -m examples.…` is found.
ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module of this example as a process; its stdin is its lifeline, its stdout what it says."""
    command = [sys.executable, "-m", f"examples.payments.{module}", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process says. Raises if it ends without one."""
    assert process.stdout is not None
    said = process.stdout.readline()
    if not said:
        raise RuntimeError(f"a process ended with {process.wait()} before it began to work")
    return said


class Provider:
    """The payment provider, which can be told to be down."""

    def __init__(self, ledger: str) -> None:
        self._ledger = ledger
        self.port = 0

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        with started("provider", self._ledger) as process:
            self.port = int(line(process))
            yield

    def go_down(self) -> None:
        self._tell("/down")

    def come_up(self) -> None:
        self._tell("/up")

    def _tell(self, path: str) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        client.request("POST", path)
        client.getresponse().read()
        client.close()
