"""Topics on streams: a reader keeps its own cursor, the number of the last entry that it has read."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engines.redis import calls, scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.names import Names
from postroom.limits import AUDIT, TOPIC_LIMIT, topic_age
from postroom.logs import TopicEntry, TopicPage


class Topics:
    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names

    def publish(self, topic: str, entries: Sequence[bytes], now: str) -> None:
        # What operators do to a full Redis makes it emptier, and is told all the same.
        script = scripts.ANNOUNCE if topic == AUDIT else scripts.PUBLISH
        args: list[calls.Argument] = [now, TOPIC_LIMIT, topic_age(topic), *entries]
        if entries:
            self._client.run(script, self._names.topic(topic), args)

    def read(self, topic: str, after: str | None, limit: int) -> TopicPage:
        cursor = calls.stream_cursor(after)
        reply = self._client.run(scripts.READ, self._names.topic(topic)[:2], (cursor, limit))
        if reply is None:
            return TopicPage([], after or "0")
        behind, missed, found = reply
        entries = [TopicEntry(calls.entry_number(id), int(at), data) for id, (_, at, _, data) in found]
        return TopicPage(entries, str(behind + len(entries)), missed)
