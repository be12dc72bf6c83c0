"""What the kernel says of a process: for tests that kill and stop real ones."""

from __future__ import annotations

import os
from pathlib import Path


def state(process: Path) -> str:
    """The letter of ps: R, S, D, T (stopped), Z (zombie); "" when it is gone.

    `process` is its folder in /proc, or the folder of one of its threads. It may go between the
    opening and the reading, which then says ESRCH.
    """
    try:
        stat = (process / "stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def has_ended(pid: int) -> bool:
    """Gone, or a zombie: not every init reaps whom a killed parent left behind."""
    return state(Path(f"/proc/{pid}")) in {"", "Z"}


def has_stopped(pid: int) -> bool:
    """Every thread of it: a signal takes a moment, and longer on a busy machine."""
    threads = map(state, Path(f"/proc/{pid}/task").iterdir())
    return all(letter in {"T", ""} for letter in threads)


def resident(group: int) -> int:
    """What the processes of a group have in memory together (bytes)."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(fields[2]) == group:
            pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")
