"""What the demo and its processes say to each other, a line of JSON each time.

Down a process's stdin come its part and, if that is to wait for one, a cue; up its stdout come reports of
what it really does. None of it passes through the engine, so the ledger can judge the engine by it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import msgspec


class Part(msgspec.Struct, frozen=True):
    """What a process is to do: work on every queue, or, on its cue, `take` so many payments."""

    name: str
    # Not an argument of the command: a URL may hold a password, and arguments are for all to see.
    url: str
    seconds: float
    take: int = 0


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process has opened its room and begins with its part."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A handler begins; `run` is its number within the process, `number` that of the job."""

    run: int
    number: int
    attempt: int
    at: float


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A handler is done, well or with an error; after `retry_in` seconds it may run again."""

    run: int
    at: float
    error: str = ""
    retry_in: float | None = None


class Took(msgspec.Struct, frozen=True, tag="took"):
    """These jobs are in the hands of the process, from one claim that it `asked` for at that time."""

    numbers: list[int]
    asked: float


Report = Ready | Began | Ended | Took

_reports = msgspec.json.Decoder[Report](Report)


class _Line:
    """Where reports go: stdout, or what was stdout."""

    descriptor = 1


def keep_to_reports() -> None:
    """From now on stdout is for reports alone: whatever else this process prints goes to stderr."""
    _Line.descriptor = os.dup(1)
    os.dup2(2, 1)


def send(report: Report) -> None:
    """Tell the demo; when this returns it is said, even if the process is killed at once.

    One write a line: a pipe does not mix what two threads say as long as it is short.
    """
    os.write(_Line.descriptor, msgspec.json.encode(report) + b"\n")


def reports(lines: Iterable[bytes]) -> Iterator[Report]:
    """What was said. The last line of a killed process may be cut off: then it was not said."""
    return (_reports.decode(line) for line in lines if line.endswith(b"\n"))


def part() -> Part | None:
    """The part of this process, as soon as the demo gives it out; None if it ends without."""
    line = sys.stdin.buffer.readline()
    return msgspec.json.decode(line, type=Part) if line else None


def cue() -> bool:
    """Wait for the cue; False if the demo ended without one."""
    return bool(sys.stdin.buffer.readline())
