"""Records: the part of the contract about small values beside the messages.

Locks, breakers, what was done already, and the buckets of rates by key.
"""

from __future__ import annotations

import abc
import struct
from typing import NamedTuple

from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH, check_between, check_key, check_name
from postroom.logs import Record
from postroom.policy import Rate


class Records(abc.ABC):
    """Small versioned values with a time to live: locks, breakers, idempotency, notes, heartbeats.

    Keys live inside a kind; values are at most 64 KB. A version is never used twice, so
    compare-and-set is safe even after a delete or an expiry in between.
    """

    @abc.abstractmethod
    def get(self, kind: str, key: str) -> Record | None:
        """The record, unless it was never put, was deleted or has expired."""

    @abc.abstractmethod
    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        """Write and return the new version; None, and nothing changed, if `expect` does not fit.

        `expect` is the version the caller saw; 0: only if there is none; None: whatever is there.
        """

    @abc.abstractmethod
    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        """Remove the record if it is there and, with `expect`, still of that version."""

    @abc.abstractmethod
    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        """Records of one kind by key, beginning behind the key `after`."""

    @abc.abstractmethod
    def take(self, kind: str, key: str, n: int, *, rate: Rate, burst: int) -> int:
        """Take `n` from the bucket of this key: 0, or how long until they are there, and nothing taken.

        The bucket holds `burst` at most and fills by the rate; one that nobody took from is full, and
        is forgotten when it is full again. Always ask for the same rate and burst of one key. Raises
        InvalidInput for more than `burst`, which would never be there.
        """


class Bucket(NamedTuple):
    """What is left of a burst, in whole numbers, so that every engine counts alike.

    A millisecond earns `rate.count`, one costs `rate.per`: `level` is what had been earned at `at`.
    """

    level: int
    at: int

    @classmethod
    def of(cls, value: bytes | None, now: int, rate: Rate, burst: int) -> Bucket:
        """The bucket as it was kept (None: nobody took from it lately), filled up to now."""
        full = burst * rate.per
        kept = cls(full, now) if value is None else cls(*_BUCKET.unpack(value))
        if kept.at > now + _GLITCH:
            return cls(full, now)  # it would earn nothing until then
        return cls(min(full, kept.level + max(0, now - kept.at) * rate.count), max(now, kept.at))

    def missing(self, n: int, rate: Rate) -> int:
        """How long until `n` are there (ms)."""
        return max(0, -(-(n * rate.per - self.level) // rate.count))

    def less(self, n: int, rate: Rate) -> Bucket:
        return Bucket(self.level - n * rate.per, self.at)

    def until_full(self, rate: Rate, burst: int) -> int:
        return -(-(burst * rate.per - self.level) // rate.count)

    def pack(self) -> bytes:
        return _BUCKET.pack(*self)


_BUCKET = struct.Struct(">QQ")
#: Noted so far ahead, it was by a clock that was wrong for a moment (ms).
_GLITCH = 60_000


def check_take(kind: str, key: str, n: int, burst: int) -> None:
    check_name(kind, "record kind")
    check_key(key, "record key")
    check_between("n", n, 1, MAX_BATCH)
    if n > burst:
        raise InvalidInput(f"{n:,} at once are more than the {burst:,} that the rate ever allows")
