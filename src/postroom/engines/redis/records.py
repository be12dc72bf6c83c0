"""Small versioned values: a hash and two sorted sets a kind."""

from __future__ import annotations

import struct
from collections.abc import Callable

from postroom.engines.redis import scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.names import Names
from postroom.engines.redis.packing import utf8
from postroom.limits import check_limit, check_record, check_span
from postroom.logs import Record
from postroom.policy import Rate
from postroom.records import Records, check_take

#: Kinds whose records only add up; at the server's memory limit they are refused, all others are not.
_ADDITIONS = frozenset({"note", "sample", "binding"})
_HEAD = struct.Struct(">QQ")


class RedisRecords(Records):
    def __init__(self, now: Callable[[], str], client: Client, names: Names) -> None:
        """`now` is the time of a test's clock, or ''; it raises Closed."""
        self._now = now
        self._client = client
        self._names = names

    def get(self, kind: str, key: str) -> Record | None:
        now = self._now()
        found = self._client.run(
            scripts.RECORD_GET, self._names.records(kind), (now, utf8(key, "record key"))
        )
        return _record(key, found) if found else None

    def put(
        self, kind: str, key: str, value: bytes, *, ttl: int | None = None, expect: int | None = None
    ) -> int | None:
        check_record(kind, key, value)
        check_span("ttl", ttl)
        script = scripts.RECORD_ADD if kind in _ADDITIONS else scripts.RECORD_PUT
        args = (self._now(), key, value, _text(ttl), _text(expect))
        return int(self._client.run(script, self._names.records(kind), args)) or None

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        args = (self._now(), utf8(key, "record key"), _text(expect))
        return bool(self._client.run(scripts.RECORD_DELETE, self._names.records(kind), args))

    def take(self, kind: str, key: str, n: int, *, rate: Rate, burst: int) -> int:
        check_take(kind, key, n, burst)
        args = (self._now(), key, n, rate.count, rate.per, burst)
        return int(self._client.run(scripts.RECORD_TAKE, self._names.records(kind), args))

    def list(self, kind: str, *, after: str = "", limit: int = 100) -> list[Record]:
        check_limit(limit)
        keys, behind = self._names.records(kind), utf8(after, "after")
        records: list[Record] = []
        while True:  # a call looks at so many keys at most
            args = (self._now(), behind, limit - len(records))
            behind, found = self._client.run(scripts.RECORD_LIST, keys, args)
            records += [_record(found[at].decode(), found[at + 1]) for at in range(0, len(found), 2)]
            if not behind:
                return records


def _record(key: str, found: bytes) -> Record:
    version, expires = _HEAD.unpack_from(found)
    return Record(key, found[_HEAD.size :], version, expires or None)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
