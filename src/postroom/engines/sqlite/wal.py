"""How full the write-ahead log is, read from the file itself.

A log that was copied is not cut off but written again from its start, so its size says little. Each round has
two salts of its own, in the header and in every frame: frames with the header's salts are of this round.

Only the `-wal` file may be opened like this. Closing any descriptor of the database or its `-shm` would drop
the locks that SQLite holds on them in this process.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

#: The size to which a log may grow, and which its file keeps while somebody writes (bytes).
WAL_LIMIT = 16 * 1024 * 1024

_HEADER = struct.Struct(">8xI4x8s8x")  # the page size and the salts of 32 bytes
_FRAME = struct.Struct(">8x8s8x")  # the salts of 24 bytes; the page follows


class Wal(NamedTuple):
    """What is in the log: which round, how many frames of it, and how large they and the file are."""

    round: bytes = b""
    frames: int = 0
    filled: int = 0
    size: int = 0


def read_wal(path: str) -> Wal:
    """The state of this log, in about a dozen small reads; nothing if there is none."""
    try:
        log = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Wal()
    try:
        return _measure(log)
    finally:
        os.close(log)


def _measure(log: int) -> Wal:
    size = os.fstat(log).st_size
    header = os.pread(log, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return Wal(size=size)
    page, salts = _HEADER.unpack(header)
    step = _FRAME.size + page
    low, high = 0, (size - _HEADER.size) // step
    while low < high:  # the frames of this round come first, without a gap
        middle = (low + high) // 2
        frame = os.pread(log, _FRAME.size, _HEADER.size + middle * step)
        if len(frame) == _FRAME.size and _FRAME.unpack(frame)[0] == salts:
            low = middle + 1
        else:
            high = middle
    return Wal(salts, low, _HEADER.size + low * step, size)
