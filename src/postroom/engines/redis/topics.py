"""Topics on streams: a reader keeps its own cursor, the number of the last entry that it has read.

Their names are a sorted set in another slot, which cannot change in one step with a topic: a name is added
after the first entry, and again once in a while.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from postroom.engines.redis import calls, scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.names import Names
from postroom.errors import PostroomError
from postroom.limits import AUDIT, topic_age
from postroom.logs import TopicEntry, TopicPage

#: A name is added again after this long (seconds): somebody may have emptied the store.
_AGAIN = 60.0
_MOST_LISTED = 1_000


class Topics:
    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        #: When this process has last seen to it that a name is in the list.
        self._listed: dict[str, float] = {}

    def publish(self, topic: str, entries: Sequence[bytes], keep: int, now: str) -> None:
        # What operators do to a full Redis makes it emptier, and is told all the same.
        script = scripts.ANNOUNCE if topic == AUDIT else scripts.PUBLISH
        args: list[calls.Argument] = [now, keep, topic_age(topic), *entries]
        if entries:
            self._client.run(script, self._names.topic(topic), args)
            self._list(topic)

    def _list(self, topic: str) -> None:
        """What is published is published: that its name cannot be listed now is no error."""
        now = time.monotonic()
        if now - self._listed.get(topic, -_AGAIN) < _AGAIN:
            return
        with contextlib.suppress(PostroomError):
            self._client.run(scripts.ENLIST, [self._names.topics], ("ZADD", 0, topic))
            if len(self._listed) >= _MOST_LISTED:
                self._listed.clear()
            self._listed[topic] = now

    def names(self, after: str, limit: int) -> list[str]:
        key, least = self._names.topics, f"({after}" if after else "-"
        found = self._client.command("ZRANGEBYLEX", key, least, "+", "LIMIT", 0, limit, key=key)
        return [name.decode() for name in found]

    def read(self, topic: str, after: str | None, limit: int) -> TopicPage:
        cursor = calls.stream_cursor(after)
        reply = self._client.run(scripts.READ, self._names.topic(topic)[:2], (cursor, limit))
        if reply is None:
            return TopicPage([], after or "0")
        behind, missed, found = reply
        entries = [TopicEntry(calls.entry_number(id), int(at), data) for id, (_, at, _, data) in found]
        return TopicPage(entries, str(behind + len(entries)), missed)
