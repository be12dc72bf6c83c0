"""Small versioned values: a hash and two sorted sets a kind."""

from __future__ import annotations

import struct
from collections.abc import Callable

from postroom.engines.redis import scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.packing import utf8
from postroom.limits import check_limit, check_name, check_record, check_span
from postroom.logs import Record
from postroom.records import Records

#: Kinds whose records only add up; at the server's memory limit they are refused, all others are not.
_ADDITIONS = frozenset({"note", "sample", "binding"})
_HEAD = struct.Struct(">QQ")


class RedisRecords(Records):
    def __init__(self, now: Callable[[], str], client: Client, prefix: str) -> None:
        """`now` is the time of a test's clock, or ''; it raises Closed."""
        self._now = now
        self._client = client
        self._prefix = prefix

    def get(self, kind: str, key: str) -> Record | None:
        now = self._now()
        found = self._client.run(scripts.RECORD_GET, self._keys(kind), (now, utf8(key, "record key")))
        return _record(key, found) if found else None

    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        check_record(kind, key, value)
        check_span("ttl", ttl)
        script = scripts.RECORD_ADD if kind in _ADDITIONS else scripts.RECORD_PUT
        args = (self._now(), key, value, _text(ttl), _text(expect))
        return int(self._client.run(script, self._keys(kind), args)) or None

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        args = (self._now(), utf8(key, "record key"), _text(expect))
        return bool(self._client.run(scripts.RECORD_DELETE, self._keys(kind), args))

    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        check_limit(limit)
        args = (self._now(), utf8(after, "after"), limit)
        found = self._client.run(scripts.RECORD_LIST, self._keys(kind), args)
        return [_record(found[at].decode(), found[at + 1]) for at in range(0, len(found), 2)]

    def _keys(self, kind: str) -> tuple[bytes, bytes, bytes]:
        name = f"{self._prefix}:record:{{{check_name(kind, 'record kind')}}}"
        return name.encode(), f"{name}:keys".encode(), f"{name}:expiring".encode()


def _record(key: str, found: bytes) -> Record:
    version, expires = _HEAD.unpack_from(found)
    return Record(key, found[_HEAD.size :], version, expires or None)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
