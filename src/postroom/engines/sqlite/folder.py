"""The folder of a file: whether anything in it was made, removed or renamed, in one system call."""

from __future__ import annotations

import os
import time

#: A change this old (ns) cannot share its time with a later one: kernels stamp every 1 to 10 ms …
_SETTLED = 20_000_000
#: … and some filesystems only every second or two.
_SETTLED_WHOLE_SECONDS = 2_500_000_000

#: The device, inode and time of a folder.
Stamp = tuple[int, int, int]


def stamp_of(folder: str) -> Stamp | None:
    """What was true of the names in a folder after this stays true for as long as this is the same.

    None if the next change might not show in it, because the last one is too new.
    """
    try:
        found = os.stat(folder)  # noqa: PTH116 - after every commit, Path costs as much again
    except OSError:
        return None
    changed = found.st_mtime_ns
    return (found.st_dev, found.st_ino, changed) if is_settled(changed) else None


def is_settled(changed: int) -> bool:
    """Whether any later change of a folder gets another time than this (ns)."""
    needed = _SETTLED if changed % 1_000_000_000 else _SETTLED_WHOLE_SECONDS
    return time.time_ns() - changed > needed
