"""Records are those of Redis, and of nobody else."""

from __future__ import annotations

from postroom.engines.spool.line import Line
from postroom.logs import Record
from postroom.records import Records


class SpoolRecords(Records):
    """The records in Redis: a lock or a breaker that every host keeps for itself would be none."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self, kind: str, key: str) -> Record | None:
        return self._line.ask(lambda primary: primary.records.get(kind, key))

    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        return self._line.ask(lambda primary: primary.records.put(kind, key, value, ttl=ttl, expect=expect))

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        return self._line.ask(lambda primary: primary.records.delete(kind, key, expect=expect))

    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        return self._line.ask(lambda primary: primary.records.list(kind, after=after, limit=limit))
