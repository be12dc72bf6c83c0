"""What kombu's own Redis transport left in a Redis: its queues, and what waits in them.

A queue is a list for each priority step (`celery`, `celery\\x06\\x163`, …; what stands between is the option
`sep`): published on the left, taken on the right. What a worker holds is in the hash `unacked`. Keys are
looked through with SCAN, lists are read and cut at their ends, a few messages at a time: the server is never
kept from its other work for long.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

from kombu import Connection
from kombu.utils.json import loads
from redis.exceptions import RedisError, ResponseError

from postroom.celery.exchanges import matches
from postroom.celery.wrapping import Payload
from postroom.errors import EngineUnavailable, InvalidInput, MissingExtra
from postroom.settings import without_secrets

#: Between a queue's name and its priority step, and between the parts of a binding, unless the app has the
#: option `sep`. No name has it in it, so it is always read, also where an app changed its mind.
_SEP = "\x06\x16"
_UNACKED, _UNACKED_INDEX, _BINDING = "unacked", "unacked_index", "_kombu.binding."
_SCHEMES = ("redis", "rediss", "sentinel")
#: Keys asked for with one SCAN, and looked at with one round trip; fields of a hash with one HSCAN.
_SCAN, _LOOK, _FIELDS = 1_000, 200, 100
#: Lists of others that are named, at most.
_MOST_NAMED = 100

#: Routing key, pattern and queue of every binding, by exchange.
Bindings = dict[str, list[tuple[str, str, str]]]

#: KEYS[1] a list. ARGV[1] so many at its right end stay; ARGV[2…] the digests of what goes, from there on.
#: Somebody else may have taken or put back something: then it stops, and says how many are gone.
_CUT = """
local stay = tonumber(ARGV[1])
for i = 2, #ARGV do
    local found = redis.call('LINDEX', KEYS[1], -1 - stay)
    if not found or redis.sha1hex(found) ~= ARGV[i] then return i - 2 end
    if stay == 0 then redis.call('RPOP', KEYS[1]) else redis.call('LREM', KEYS[1], -1, found) end
end
return #ARGV - 1
"""
#: KEYS the hash and its index; ARGV tag, digest, tag, digest, … of what goes.
_DROP = """
local gone = 0
for i = 1, #ARGV, 2 do
    local found = redis.call('HGET', KEYS[1], ARGV[i])
    if found and redis.sha1hex(found) == ARGV[i + 1] then
        redis.call('HDEL', KEYS[1], ARGV[i])
        redis.call('ZREM', KEYS[2], ARGV[i])
        gone = gone + 1
    end
end
return gone
"""


class Holds(StrEnum):
    """What a list is, by the message that is next."""

    TASKS = "tasks"
    MESSAGES = "messages"  # of kombu, but no tasks: replies of rpc://, or an application's own
    CONTROL = "control"  # remote control and events: of no use to anybody a minute later


@dataclass(frozen=True, slots=True)
class Waiting:
    """One list of a queue."""

    key: bytes
    queue: str
    step: int
    count: int
    holds: Holds


class Unacked(NamedTuple):
    """What a worker holds, or held when it ended, and the queues that kombu would give it back to."""

    tag: bytes
    raw: bytes
    payload: Payload
    queues: list[str]


class StockRedis:
    """The Redis of an app that runs on kombu's own transport. Raises EngineUnavailable when it is away."""

    def __init__(self, url: str, prefix: str = "", master: str | None = None, sep: str | None = None) -> None:
        """`prefix`, `master`, `sep`: the app's options `global_keyprefix`, `master_name` and `sep`."""
        scheme = url.partition("://")[0].partition("+")[0]
        if "://" not in url or scheme not in _SCHEMES:
            raise InvalidInput(
                f"{without_secrets(url)!r:.200} is no broker_url of kombu's Redis transport (redis://…)"
            )
        if sep == "":
            raise InvalidInput("sep is empty: nothing tells a queue from its priority step then")
        self.where: str = str(without_secrets(url))
        self._prefix = prefix
        self._seps = tuple(dict.fromkeys((_SEP, sep or _SEP)))
        # Kombu's own connection: it knows every way of writing this URL.
        try:
            self._connection = Connection(url, transport_options={"master_name": master} if master else {})
        except ImportError as error:  # only now kombu loads its transport
            raise MissingExtra(f"pip install 'postroom[celery,redis]' ({error})") from error
        with self._asking():
            self._connection.connect()
            self._client: Any = self._connection.channel().client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.release()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise EngineUnavailable(f"{self.where}: {error}") from error
        except ValueError as error:  # kombu's, about its URL and options
            raise InvalidInput(f"{self.where}: {error}") from error

    def _key(self, name: str) -> str:
        return self._prefix + name

    # --- looking ----------------------------------------------------------------------------

    def lists(self, bindings: Bindings, on_key: Callable[[], None]) -> tuple[list[Waiting], list[str]]:
        """Every list that is a queue of kombu's, and the names of some that are not."""
        bound = {queue for rows in bindings.values() for _, _, queue in rows}
        ours: list[Waiting] = []
        others: list[str] = []
        with self._asking():
            for keys in self._scan("*", "list"):
                for first in range(0, len(keys), _LOOK):
                    self._look(keys[first : first + _LOOK], bound, ours, others)
                    on_key()
        return sorted(ours, key=lambda found: (found.queue, found.step)), sorted(others)[:_MOST_NAMED]

    def _look(self, keys: Sequence[bytes], bound: Set[str], ours: list[Waiting], others: list[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.llen(key)
            pipeline.lindex(key, -1)
        answers = pipeline.execute()
        for key, count, newest in zip(keys, answers[::2], answers[1::2], strict=True):
            name = key.decode("utf-8", "replace").removeprefix(self._prefix)
            payload = read(newest or b"")
            if payload is None:
                others.append(name)
            else:
                # A queue may be called as another one's step is: what is bound is a queue.
                queue, step = (name, 0) if name in bound else self._name_and_step(name)
                ours.append(Waiting(key, queue, step, count, _holds(queue, payload)))

    def _name_and_step(self, name: str) -> tuple[str, int]:
        for sep in self._seps:
            queue, _, step = name.rpartition(sep)
            if queue and step.isdecimal():
                return queue, int(step)
        return name, 0

    def _scan(self, pattern: str, type_: str) -> Iterator[list[bytes]]:
        """Keys, each once, in pages; SCAN itself may name one twice."""
        seen: set[bytes] = set()
        cursor: Any = 0
        while True:
            cursor, keys = self._client.scan(cursor, self._key(pattern), _SCAN, type_)
            yield [key for key in dict.fromkeys(keys) if key not in seen]
            seen.update(keys)
            if not int(cursor):
                return

    def unacked_count(self) -> int:
        with self._asking():
            return int(self._client.hlen(self._key(_UNACKED)))

    def bindings(self) -> Bindings:
        """Every binding. Raises InvalidInput for one that was written with another `sep`."""
        found: Bindings = {}
        with self._asking():
            for keys in self._scan(f"{_BINDING}*", "set"):
                for key in keys:
                    exchange = key.decode().removeprefix(self._key(_BINDING))
                    members = self._client.smembers(key)
                    found[exchange] = [self._binding(exchange, member) for member in members]
        return found

    def _binding(self, exchange: str, member: bytes) -> tuple[str, str, str]:
        text = member.decode("utf-8", "replace")
        for sep in self._seps:
            if len(parts := text.split(sep)) == 3:
                return parts[0], parts[1], parts[2]
            # Names may have it in them; most bindings have no pattern, and so two of it in a row.
            if len(ends := text.split(sep + sep)) == 2:
                return ends[0], "", ends[1]
        raise InvalidInput(
            f"{self.where}: nothing was moved, because binding {text!r:.200} of exchange {exchange!r:.200} "
            f"was written with another separator than {self._seps[-1]!r}: give `sep` of the app's "
            "broker_transport_options as --sep"
        )

    def workers(self) -> int | None:
        """How many connections look like those of a Celery worker; None when nobody may ask."""
        with self._asking():
            try:
                clients = self._client.client_list(_type="normal") + self._client.client_list(_type="pubsub")
            except ResponseError:
                return None
        database = str(self._client.connection_pool.connection_kwargs.get("db") or 0)
        return sum(_is_worker(client) for client in clients if client["db"] == database)

    # --- taking -----------------------------------------------------------------------------

    def next(self, waiting: Waiting, count: int, behind: int = 0) -> list[bytes]:
        """The next messages of a list, oldest first, except for so many at its end."""
        with self._asking():
            found = self._client.lrange(waiting.key, -count - behind, -1 - behind)
        return list(reversed(found))

    def cut(self, waiting: Waiting, raws: Sequence[bytes], behind: int = 0) -> int:
        """Take these away, if they are still where `next` found them; how many are gone."""
        with self._asking():
            return int(self._client.eval(_CUT, 1, waiting.key, behind, *map(_digest, raws)))

    def unacked(self) -> Iterator[list[Unacked]]:
        """What is in the hands of workers, in pages."""
        bindings = self.bindings()
        cursor: Any = 0
        while True:
            with self._asking():
                cursor, fields = self._client.hscan(self._key(_UNACKED), cursor, count=_FIELDS)
            yield [held for tag, raw in fields.items() if (held := _held(tag, raw, bindings))]
            if not int(cursor):
                return

    def drop(self, held: Sequence[Unacked]) -> int:
        """Take these out of the hands of workers that are gone."""
        pairs = [part for one in held for part in (one.tag, _digest(one.raw))]
        keys = (self._key(_UNACKED), self._key(_UNACKED_INDEX))
        with self._asking():
            return int(self._client.eval(_DROP, 2, *keys, *pairs))


# --- what a message says ------------------------------------------------------------------------


def read(raw: bytes) -> Payload | None:
    """A message as kombu's Redis transport writes it, its body in bytes; None when it is no such thing."""
    try:
        return _checked(loads(raw.decode()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _checked(payload: Payload) -> Payload:
    headers, properties = payload["headers"], payload["properties"]
    if not isinstance(headers, dict) or not properties["delivery_tag"]:
        raise ValueError("no message of kombu's")
    if properties.get("body_encoding") == "base64":
        payload["body"] = base64.b64decode(payload["body"], validate=True)
    payload.setdefault("content-type", None)
    payload.setdefault("content-encoding", None)
    return payload


def _held(tag: bytes, raw: bytes, bindings: Bindings) -> Unacked | None:
    try:
        payload, exchange, routing_key = loads(raw.decode())
        checked = _checked(payload)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not exchange:
        return Unacked(tag, raw, checked, [routing_key])
    queues = [
        queue
        for bound, pattern, queue in bindings.get(exchange, ())
        if bound == routing_key or (pattern and matches(bound, routing_key or ""))
    ]
    return Unacked(tag, raw, checked, list(dict.fromkeys(queues)))


def _holds(queue: str, payload: Payload) -> Holds:
    if queue.endswith(".celery.pidbox") or queue.startswith("celeryev."):
        return Holds.CONTROL
    is_task = "task" in payload["headers"] or _is_old_task(payload)
    return Holds.TASKS if is_task else Holds.MESSAGES


def _is_old_task(payload: Payload) -> bool:
    """Celery's first protocol has the task's name in the body."""
    return payload["content-type"] == "application/json" and b'"task": ' in payload["body"][:10_000]


def _is_worker(client: dict[str, str]) -> bool:
    """It waits for messages, or listens to remote control (as Flower does, too)."""
    return client["cmd"] == "brpop" or client.get("psub", "0") != "0" or client.get("sub", "0") != "0"


def _digest(raw: bytes) -> str:
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
