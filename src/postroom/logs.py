"""What is written down: the history of a queue, topics, records; and what a store itself holds."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec


class Event(enum.StrEnum):
    """What a queue's history tells; a newer release may tell more."""

    RETRY = "retry"
    REQUEUE = "requeue"
    MOVE_TO_DLQ = "move_to_dlq"
    EXPIRE = "expire"
    EVICT = "evict"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RUN_NOW = "run_now"
    REPLAY = "replay"
    DISCARD = "discard"
    PAUSE = "pause"
    RESUME = "resume"
    PURGE = "purge"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a queue's history: what one engine call did, with at most 50 of the ids."""

    id: str
    at: int
    queue: str
    event: str
    count: int
    ids: tuple[str, ...] = ()
    info: dict[str, int | str] = {}


class Log(NamedTuple):
    """Log entries after a cursor; `missed` counts those that retention took before they were read."""

    entries: list[LogEntry]
    cursor: str
    missed: int = 0


class Group(msgspec.Struct, frozen=True):
    """Dead letters of one queue that failed alike: how many there are, when the first and the last of
    them died, and the id of the last (of those of one millisecond, the highest), as an example.
    """

    fingerprint: str
    count: int
    first: int
    last: int
    sample: str


class TopicEntry(NamedTuple):
    id: str
    at: int
    data: bytes


class TopicPage(NamedTuple):
    """Topic entries after a cursor; `missed` counts those that retention took before they were read."""

    entries: list[TopicEntry]
    cursor: str
    missed: int = 0


class Record(NamedTuple):
    """A small versioned value. A version never comes back, not even after a delete."""

    key: str
    value: bytes
    version: int
    expires: int | None = None


def drop_told(queue: str, count: int, by: str, why: str) -> bytes:
    """What the audit is told of a queue that was dropped with so many messages in it."""
    act = {"event": "drop", "queue": queue, "count": count, "by": by}
    return msgspec.json.encode(act | ({"info": {"reason": why}} if why else {}))


class Stored(NamedTuple):
    """One value that a store keeps of a message, and where, in the words of that store."""

    place: str
    value: str | int | float | bytes
