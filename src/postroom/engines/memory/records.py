"""Small versioned values in a dict."""

from __future__ import annotations

import threading
from collections.abc import Callable

from postroom.engines.memory.indexes import TimeIndex
from postroom.limits import check_limit, check_record, check_span
from postroom.logs import Record
from postroom.records import Records

_PRUNE = 100


class MemoryRecords(Records):
    def __init__(self, now: Callable[[], int], lock: threading.Lock) -> None:
        self._now = now
        self._lock = lock
        self._kinds: dict[str, dict[str, Record]] = {}
        self._expiring = TimeIndex()
        self._last_version = 0

    def get(self, kind: str, key: str) -> Record | None:
        with self._lock:
            return self._live(kind, key, self._now())

    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        check_record(kind, key, value)
        check_span("ttl", ttl)
        with self._lock:
            now = self._now()
            self._prune(now)
            if not self._fits(kind, key, expect, now):
                return None
            # One count for all records: a version seen once never comes back.
            self._last_version += 1
            expires = None if ttl is None else now + ttl
            record = Record(key, value, self._last_version, expires)
            self._kinds.setdefault(kind, {})[key] = record
            self._expiring.discard(f"{kind}\0{key}")
            if expires is not None:
                self._expiring.set(f"{kind}\0{key}", expires)
            return record.version

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        with self._lock:
            now = self._now()
            if self._live(kind, key, now) is None or not self._fits(kind, key, expect, now):
                return False
            del self._kinds[kind][key]
            return True

    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        check_limit(limit)
        with self._lock:
            now = self._now()
            keys = sorted(key for key in self._kinds.get(kind, {}) if key > after)
            live = (record for key in keys if (record := self._live(kind, key, now)))
            return [record for record, _ in zip(live, range(limit), strict=False)]

    def _prune(self, now: int) -> None:
        """Let go of some records whose time is over and that nobody asked for."""
        for name in self._expiring.pop_until(now, _PRUNE):
            kind, _, key = name.partition("\0")  # no kind holds a control character
            self._live(kind, key, now)

    def _live(self, kind: str, key: str, now: int) -> Record | None:
        record = self._kinds.get(kind, {}).get(key)
        if record and record.expires is not None and record.expires <= now:
            del self._kinds[kind][key]
            return None
        return record

    def _fits(self, kind: str, key: str, expect: int | None, now: int) -> bool:
        record = self._live(kind, key, now)
        return expect is None or (record.version if record else 0) == expect
