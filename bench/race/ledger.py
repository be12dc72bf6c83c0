"""What jobs did, where a killed process cannot take it along: a file in memory that two processes share.

A worker notes the key of a job and the time (monotonic, nanoseconds, the same for all processes) when it
begins; whoever measures reads along.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench.systems import Body

_HEAD = struct.Struct("=q")
_ENTRY = struct.Struct("=qq")


class Begun(NamedTuple):
    key: int
    at: int


class Ledger:
    """Written by the threads of one process, or by its children one at a time."""

    def __init__(self, path: Path, capacity: int = 0) -> None:
        """With a capacity a new one, of at most so many entries; without, one that is there."""
        if capacity:
            path.write_bytes(bytes(_HEAD.size + capacity * _ENTRY.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._lock = threading.Lock()

    def note(self, key: int) -> None:
        with self._lock:
            (count,) = _HEAD.unpack_from(self._map)
            place = _HEAD.size + count * _ENTRY.size
            if place < len(self._map):  # the bound: who reads wants no more than it made room for
                _ENTRY.pack_into(self._map, place, key, time.monotonic_ns())
                _HEAD.pack_into(self._map, 0, count + 1)

    def __len__(self) -> int:
        count: int = _HEAD.unpack_from(self._map)[0]
        return count

    def entries(self, first: int = 0) -> list[Begun]:
        """From this one on."""
        places = range(_HEAD.size + first * _ENTRY.size, _HEAD.size + len(self) * _ENTRY.size, _ENTRY.size)
        return [Begun(*_ENTRY.unpack_from(self._map, place)) for place in places]


class LedgerWatch:
    """Notes every job. Held are all, if it says so, and else those with a gate, until that is open."""

    def __init__(self, ledger: Ledger, held: str, gate: Path) -> None:
        self._ledger, self._held, self._gate = ledger, held, gate

    def begin(self, body: Body) -> None:
        self._ledger.note(body.get("key", 0))

    def is_held(self, body: Body) -> bool:
        if self._held == "all":
            return True
        return "gate" in body and not self._gate.exists()
