"""What clients ask of RabbitMQ, read off the wire: a proxy that understands methods that declare or consume.

It sees also what Celery and kombu declare by themselves, which no list of ours has.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amqp.serialization import loads

from tests.redis.proxy import Proxy

_METHOD, _HEADER = 1, b"AMQP\x00\x00\x09\x01"
#: Class and method of AMQP 0-9-1: a name for it, how its arguments are packed, and what they are called.
_KNOWN = {
    (40, 10): ("exchange.declare", "BssbbbbbF", "- name type passive durable - - - arguments"),
    (50, 10): ("queue.declare", "BsbbbbbF", "- name passive durable exclusive auto_delete - arguments"),
    (50, 40): ("queue.delete", "Bsbbb", "- name if_unused if_empty -"),
    (60, 10): ("basic.qos", "lBb", "size count global"),
    (60, 20): ("basic.consume", "BssbbbbF", "- name - no_local no_ack exclusive - arguments"),
}


@dataclass(frozen=True)
class Asked:
    """A method that a client sent; `told`: its arguments by name."""

    method: str
    told: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.told[name]


@dataclass
class Reader:
    """What one client sends, frame by frame: a type, a channel, a size, so many bytes, and an end."""

    asked: list[Asked]
    rest: bytes = b""

    def feed(self, data: bytes) -> None:
        self.rest = (self.rest + data).removeprefix(_HEADER)
        while len(self.rest) >= 7 and len(self.rest) >= (end := 8 + int.from_bytes(self.rest[3:7])):
            if self.rest[0] == _METHOD:
                self._note(self.rest[7 : end - 1])
            self.rest = self.rest[end:]

    def _note(self, payload: bytes) -> None:
        key = int.from_bytes(payload[:2]), int.from_bytes(payload[2:4])
        if key in _KNOWN:
            method, packed, names = _KNOWN[key]
            values, _ = loads(packed, payload, 4)
            self.asked.append(Asked(method, dict(zip(names.split(), values, strict=True))))


class Wire(Proxy):
    """Passes everything on, and keeps what was asked."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.asked: list[Asked] = []
        self._readers: dict[socket.socket, Reader] = defaultdict(lambda: Reader(self.asked))

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def seen(self, source: socket.socket, data: bytes) -> None:
        if source.getsockname()[1] == self.port:
            self._readers[source].feed(data)
