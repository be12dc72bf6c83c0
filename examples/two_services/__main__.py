"""Run both services, have five invoices paid, and help the one that fails out of the archive.

python -m examples.two_services                                     on a file, with nothing to install
python -m examples.two_services --broker amqp://localhost           on RabbitMQ
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

REPO = Path(__file__).parents[2]
PATIENCE = 120.0
_WORKER = ("--pool", "solo", "--loglevel", "INFO", "--without-mingle", "--without-gossip",
           "--without-heartbeat")  # fmt: skip


def say(text: str) -> None:
    """In one piece: several threads do."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Lines:
    """What the workers have logged so far; what the services themselves say is printed."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def listen(self, stream: IO[str]) -> None:
        for line in stream:
            self._said.append(line.rstrip())
            if spoken := re.search(r"WARNING/MainProcess\] ((billing|mailing): .*)", line):
                say(spoken[1])

    def last(self) -> str:
        return "\n".join(self._said[-40:])

    def has(self, text: str) -> bool:
        return any(text in line for line in self._said)


@contextmanager
def running(service: str, lines: Lines) -> Iterator[None]:
    """A worker of this service, as a process of its own."""
    command = [sys.executable, "-m", "celery", "-A", f"examples.two_services.{service}", "worker", *_WORKER,
               "--hostname", f"{service}@example"]  # fmt: skip
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    ear = threading.Thread(target=lines.listen, args=(process.stdout,), daemon=True)
    ear.start()
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        ear.join()


def until(lines: Lines, condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{lines.last()}\nnot within {PATIENCE:g} s: {what}")
        time.sleep(0.1)


def story(lines: Lines, notes: str) -> None:
    # Here and not above: the services read their broker from the environment.
    from examples.two_services import billing, mailing
    from postroom.celery.events import archive
    from postroom.deadletters import Filter

    until(lines, lambda: lines.has("billing@example ready"), "billing is ready")
    until(lines, lambda: lines.has("mailing@example ready"), "mailing is ready")
    for number in range(1, 6):
        billing.invoice_paid(number, f"customer{number}@example.org")
    for number in (1, 2, 3, 5):
        until(lines, lambda: lines.has(f"invoice {number} is ticked off"), f"invoice {number}")  # noqa: B023  # asked at once

    def failed() -> int:
        with archive.opened(mailing.app, notes) as dead:
            return len(dead.find().letters)

    until(lines, failed, "invoice 4 is in the archive")
    with archive.opened(mailing.app, notes) as dead:
        (group,) = dead.groups().groups
        say(f"archive of mailing: {group.count} × {group.exception}")
        mailing.REPAIRED.touch()
        say("the mail server is repaired; replay")
        dead.replay(Filter(group=group.group))
    until(lines, lambda: lines.has("invoice 4 is ticked off"), "invoice 4")
    say("every invoice has its letter, and billing knows")


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.two_services")
    parser.add_argument("--broker", help="such as amqp://localhost; without it, a file")
    given = parser.parse_args().broker
    with tempfile.TemporaryDirectory(prefix="two-services-") as folder:
        os.environ["BROKER"] = given or f"postroom+sqlite:///{folder}/events.db"
        os.environ["REPAIRED"] = f"{folder}/repaired"
        lines = Lines()
        with running("billing", lines), running("mailing", lines):
            story(lines, f"sqlite:///{folder}/notes.db")
        from postroom.celery import close_offices

        close_offices()


if __name__ == "__main__":
    main()
