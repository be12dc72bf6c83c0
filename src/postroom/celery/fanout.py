"""Fanout exchanges: each is a topic, and each queue bound to one reads it from its own cursor.

A cursor is kept by the process, from the moment of binding: a connection that is lost and made again goes on
where it was. A wildcard in the binding's key filters (as kombu's Redis transport does); any other key
does not (as AMQP has it).

Celery's events have a topic for each kind: the gossip of every worker wants what workers say, and must not
read what is said about every task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from postroom.celery.exchanges import matches
from postroom.celery.wrapping import Payload, pack, unpack
from postroom.engine import Engine
from postroom.limits import MAX_BATCH, MAX_PUT_BYTES
from postroom.logs import TopicEntry

log: logging.Logger = logging.getLogger(__name__)

#: Entries of one read.
_PAGE = 100
#: A cursor that nobody used for this long is given up (seconds), and there are at most so many.
_UNUSED = 3_600.0
_MOST = 1_000
#: Celery's exchange for events, and the words that their routing keys begin with.
EVENTS = "celeryev"
_KINDS = ("worker", "task")


def _portions(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As many at a time as one call takes."""
    some: list[bytes] = []
    size = 0
    for entry in entries:
        if some and (len(some) == MAX_BATCH or size + len(entry) > MAX_PUT_BYTES):
            yield some
            some, size = [], 0
        some.append(entry)
        size += len(entry)
    if some:
        yield some


def _is_wild(key: str) -> bool:
    return "*" in key or "#" in key


class Subscription:
    """How far one queue has read one topic of an exchange."""

    def __init__(self, exchange: str, topic: str, cursor: str) -> None:
        self.exchange = exchange
        self.topic = topic
        self.cursor = cursor
        self.keys: set[str] = set()
        self.used_at: float = time.monotonic()

    def wants(self, routing_key: str, patterns: bool) -> bool:
        wild = [key for key in self.keys if _is_wild(key)] if patterns else []
        if len(wild) < len(self.keys):
            return True
        return any(matches(key, routing_key) for key in wild)


class Fanout:
    """The fanout queues of one process."""

    def __init__(self, engine: Engine, *, patterns: bool, keep: int, prefix: str = "") -> None:
        self._engine = engine
        self._patterns = patterns
        #: So many messages of an exchange are kept for those who have not read them.
        self._keep = keep
        #: What the topics of all exchanges begin with.
        self._root = f"exchange@{prefix}/" if prefix else "exchange/"
        #: Queue → topic → how far it has read.
        self._queues: dict[str, dict[str, Subscription]] = {}

    def publish(self, exchange: str, messages: Iterable[tuple[str, Payload]]) -> None:
        """Publish messages, each under its routing key, with as few calls a topic as there can be."""
        by_topic: dict[str, list[bytes]] = {}
        for routing_key, payload in messages:
            by_topic.setdefault(self._topic(exchange, routing_key), []).append(pack(routing_key, payload))
        for topic, entries in by_topic.items():
            for some in _portions(entries):
                self._engine.publish(topic, some, keep=self._keep)

    def _topic(self, exchange: str, routing_key: str) -> str:
        """Where a message goes."""
        kind = routing_key.partition(".")[0]
        part = f"/{kind}" if exchange == EVENTS and kind in _KINDS else ""
        return f"{self._root}{exchange}{part}"

    def _topics_of(self, exchange: str, binding_key: str) -> list[str]:
        """Where whatever may match a binding goes."""
        if self._patterns and _is_wild(binding_key) and binding_key.partition(".")[0] in _KINDS:
            return [self._topic(exchange, binding_key)]
        return list(dict.fromkeys(self._topic(exchange, kind) for kind in ("", *_KINDS)))

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """From now on, if it is not bound already."""
        bound = self._queues.setdefault(queue, {})
        for topic in self._topics_of(exchange, routing_key):
            if topic not in bound:
                self._prune()
                bound[topic] = Subscription(exchange, topic, self._engine.read(topic, limit=1).cursor)
            bound[topic].keys.add(routing_key)
            bound[topic].used_at = time.monotonic()

    def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        bound = self._queues.get(queue, {})
        for subscription in [one for one in bound.values() if one.exchange == exchange]:
            subscription.keys.discard(routing_key)
            if not subscription.keys:
                del bound[subscription.topic]

    def forget(self, queue: str) -> None:
        self._queues.pop(queue, None)

    def __contains__(self, queue: str) -> bool:
        return bool(self._queues.get(queue))

    def topics(self, queue: str) -> list[str]:
        return [subscription.topic for subscription in self._queues.get(queue, {}).values()]

    def places(self) -> tuple[tuple[str, str], ...]:
        """Each topic that is read, and how far: for every queue that is bound to it. From any thread."""
        bound = [
            subscription for queue in list(self._queues.values()) for subscription in list(queue.values())
        ]
        return tuple((subscription.topic, subscription.cursor) for subscription in bound)

    def bindings(self) -> Iterator[tuple[str, str, str]]:
        for queue, bound in self._queues.items():
            for exchange, key in {(one.exchange, key) for one in bound.values() for key in one.keys}:
                yield queue, exchange, key

    def read(self, queue: str) -> tuple[list[Payload], bool]:
        """What came since the last read, and whether there is more."""
        found: list[Payload] = []
        more = False
        for subscription in list(self._queues.get(queue, {}).values()):
            page = self._engine.read(subscription.topic, after=subscription.cursor, limit=_PAGE)
            subscription.used_at = time.monotonic()
            if page.missed:
                log.warning(
                    "queue %r was too slow: %d broadcasts are gone",
                    queue,
                    page.missed,
                    extra={"event": "celery.broadcast_missed", "queue": queue, "count": page.missed},
                )
            found += self._wanted(subscription, page.entries)
            # After the entries are here, and not before: what cannot be read is read again.
            subscription.cursor = page.cursor
            more |= len(page.entries) == _PAGE
        return found, more

    def _wanted(self, subscription: Subscription, entries: Sequence[TopicEntry]) -> Iterator[Payload]:
        for entry in entries:
            try:
                routing_key, payload = unpack(entry.data)
            except Exception:  # somebody else's entry: it must not stop the consumer
                log.exception(
                    "unreadable in topic %s: %s",
                    subscription.topic,
                    entry.id,
                    extra={"event": "celery.unreadable", "topic": subscription.topic, "id": entry.id},
                )
                continue
            if subscription.wants(routing_key, self._patterns):
                yield payload

    def _prune(self) -> None:
        """Give up the cursors of queues that nobody has read for long."""
        if sum(map(len, self._queues.values())) < _MOST:
            return
        old = time.monotonic() - _UNUSED
        for queue, bound in list(self._queues.items()):
            if all(subscription.used_at < old for subscription in bound.values()):
                del self._queues[queue]
