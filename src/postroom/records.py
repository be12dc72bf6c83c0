"""Records: the part of the contract about small values beside the messages."""

from __future__ import annotations

import abc

from postroom.logs import Record


class Records(abc.ABC):
    """Small versioned values with a time to live: locks, breakers, notes, heartbeats.

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
