"""The outside world, pretended: what happens to a message while it is worked on, and a note of it.

The notes are a file with a line for each piece of work that began or was done, appended by whichever
process did it. They know nothing of queues and stores: that is why they can judge them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

#: Where the notes are kept; without it nobody takes any.
NOTES = "MARKETPLACE_NOTES"
#: A file that is there once the bug is fixed: poison is healthy then.
FIXED = "MARKETPLACE_FIXED"
#: The seconds between two ticks of Celery's beat.
TICK = "MARKETPLACE_TICK"


class Work(Protocol):
    """A delivery, as a handler has it."""

    @property
    def queue(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def body(self) -> Any: ...


class Task(NamedTuple):
    """The same of a Celery task."""

    queue: str
    id: str
    attempt: int
    body: Any


class Unreachable(ConnectionError):
    """The other side does not answer; it will, later."""


def meet_fate(delivery: Work, seconds: float = 0.002) -> None:
    """Work for so long, unless the body says that the world has something else in mind.

    well     nothing happens
    flaky    the other side does not answer, as often as `times` says
    poison   no attempt will ever succeed, until the bug is fixed
    killer   the process is gone, without a word
    """
    fate = delivery.body.get("fate", "well")
    note(delivery, "began")
    time.sleep(seconds)
    match fate:
        case "flaky" if delivery.attempt < delivery.body["times"]:
            raise Unreachable("the payment provider does not answer")
        case "poison" if not is_fixed():
            raise ValueError(f"order {delivery.body['order']} has no customer")
        case "killer":
            os.kill(os.getpid(), signal.SIGKILL)
    note(delivery, "done")


def is_fixed() -> bool:
    """Whether somebody has repaired what made the poison poisonous."""
    file = os.environ.get(FIXED)
    return file is not None and Path(file).exists()


def note(delivery: Work, what: str) -> None:
    """One line in one write: lines of several processes do not mix."""
    if file := os.environ.get(NOTES):
        line = {"what": what, "queue": delivery.queue, "id": delivery.id, "pid": os.getpid()}
        with Path(file).open("ab", buffering=0) as notes:
            notes.write(json.dumps(line).encode() + b"\n")


def read_notes(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
