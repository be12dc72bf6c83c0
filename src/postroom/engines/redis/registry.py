"""Which queues there are: a set of names that lives in another slot than the queues themselves.

So it cannot be changed in one step with a queue. A name is listed before its queue is made and again after,
and a name without a queue means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroom.engine import QueueInfo
from postroom.engines.redis import scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.names import Names
from postroom.engines.redis.packing import policy_of
from postroom.engines.steps import pausing
from postroom.errors import InvalidInput


class Registry:
    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._key = names.registry

    def names(self) -> list[str]:
        return sorted(name.decode() for name in self._client.command("SMEMBERS", self._key, key=self._key))

    def add(self, queue: str) -> None:
        self._client.run(scripts.ENLIST, [self._key], ("SADD", queue))

    def remove(self, queue: str) -> None:
        """Of a queue that was dropped; one that was made again meanwhile stays listed."""
        self._client.command("SREM", self._key, queue, key=self._key)
        meta = self._names.queue(queue)[0]
        if self._client.command("EXISTS", meta, key=meta):
            self.add(queue)

    def infos(self, now: Callable[[], int], queues: Sequence[str]) -> list[QueueInfo]:
        """Those of these queues that exist: a name may be known earlier, and longer, than its queue."""
        metas = {queue: meta for queue in queues if (meta := self._meta(queue))}
        commands = [(meta, ("HMGET", meta, "policy", "paused", "reason")) for meta in metas.values()]
        found = zip(metas, self._client.commands(commands), strict=True)
        infos = [_info(queue, *values) for queue, values in found if values[0] is not None]
        if all(info.paused_until is None for info in infos):
            return infos
        time = now()
        return [info if (info.paused_until or time + 1) > time else _unpaused(info) for info in infos]

    def _meta(self, queue: str) -> bytes | None:
        """None for what cannot be the name of a queue."""
        try:
            return self._names.queue(queue)[0]
        except InvalidInput:
            return None


def _info(queue: str, text: bytes, paused: bytes | None, reason: bytes | None) -> QueueInfo:
    why, until = pausing.read((reason or b"").decode())
    is_paused = paused == b"1"
    return QueueInfo(queue, policy_of(text), is_paused, why, until if is_paused else None)


def _unpaused(info: QueueInfo) -> QueueInfo:
    return QueueInfo(info.name, info.policy)
