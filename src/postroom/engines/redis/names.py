"""The names of keys. All keys of a queue share one hash tag, so that a cluster keeps them together."""

from __future__ import annotations

import operator

from postroom.limits import check_name

#: In the order in which every script takes them: see lua/books.lua.
_PARTS = (
    "meta", "ready", "suspects", "due", "lease", "expires", "body", "delivery", "notes", "dead", "done",
    "kept", "known", "unique", "wake", "log", "trash:ready", "trash:suspects", "trash:due",
    "groups",
)  # fmt: skip
_WAKE, _LOG = _PARTS.index("wake"), _PARTS.index("log")
#: What lua/put_one.lua takes of them.
_PUT_ONE = operator.itemgetter(
    *map(_PARTS.index, ("meta", "ready", "suspects", "due", "body", "known", "wake"))
)
#: Names made before are kept, because they are asked for with every call.
_MOST_KEPT = 10_000


class Names:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.registry: bytes = f"{prefix}:queues".encode()
        self.topics: bytes = f"{prefix}:topics".encode()
        self._queues: dict[str, tuple[bytes, ...]] = {}
        self._put_one: dict[str, tuple[bytes, ...]] = {}

    def queue(self, queue: str) -> tuple[bytes, ...]:
        """The keys of a queue, as every script takes them."""
        try:
            return self._queues[queue]
        except (KeyError, TypeError):
            check_name(queue)
        if len(self._queues) >= _MOST_KEPT:
            self._queues.clear()
            self._put_one.clear()
        keys = tuple(f"{self.prefix}:{{{queue}}}:{part}".encode() for part in _PARTS)
        self._queues[queue] = keys
        return keys

    def put_one(self, queue: str) -> tuple[bytes, ...]:
        """The keys that the put of one plain message takes."""
        try:
            return self._put_one[queue]
        except (KeyError, TypeError):
            keys: tuple[bytes, ...] = _PUT_ONE(self.queue(queue))
            self._put_one[queue] = keys
            return keys

    def wake(self, queue: str) -> bytes:
        return self.queue(queue)[_WAKE]

    def log(self, queue: str) -> bytes:
        return self.queue(queue)[_LOG]

    def topic(self, topic: str) -> tuple[bytes, bytes, bytes]:
        """The stream of a topic, its numbers, and the bell to wait for."""
        name = f"{self.prefix}:topic:{{{check_name(topic, 'topic')}}}"
        return name.encode(), f"{name}:numbers".encode(), f"{name}:bell".encode()

    def records(self, kind: str) -> tuple[bytes, bytes, bytes]:
        """The records of a kind, their keys in order, and when they end."""
        name = f"{self.prefix}:record:{{{check_name(kind, 'record kind')}}}"
        return name.encode(), f"{name}:keys".encode(), f"{name}:expiring".encode()

    def private(self, process: str, name: str, what: str) -> bytes:
        """A bell of one process, which a cluster keeps beside what it is about: a queue or a topic."""
        tag = name.removeprefix("\0") or process
        kind = "topic:" if name.startswith("\0") else ""
        return f"{self.prefix}:{kind}{{{tag}}}:nudge:{process}:{what}".encode()
