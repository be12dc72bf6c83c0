"""What an event says of itself, and how it looks on the wire.

An event is a Celery message, protocol 2: JSON of `[args, kwargs, {}]`, with the headers `task` (the event's
name) and `id`. Whatever else the envelope says is in headers of its own, all optional, so that any AMQP
producer can publish an event. docs/how-to/events-between-services.md says the same to readers.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from postroom.celery.events import tracing
from postroom.ids import new_id

Headers = dict[str, Any]
CONTENT_TYPE, ENCODING = "application/json", "utf-8"
#: What brokers and Celery add to a message on its way: never sent again, as it tells of an earlier life.
_OF_THE_WAY = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count",
               "postroom-")  # fmt: skip
#: What an envelope says, and what that is where a message leaves it out.
_USUAL = {"event": "", "event_id": "", "event_version": 1, "occurred_at": "", "producer": "",
          "correlation": "", "causation": "", "traceparent": "", "replays": 0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Envelope:
    """`event_id` is the same in every service and at every attempt.

    correlation  the id of the first event of a chain; causation: of the one that led to this one
    replays      how often it was taken out of an archive: its attempts are counted anew each time
    """

    event: str
    event_id: str
    event_version: int = 1
    occurred_at: str = ""
    producer: str = ""
    correlation: str = ""
    causation: str = ""
    traceparent: str = ""
    replays: int = 0

    @classmethod
    def new(cls, event: str, producer: str, version: int, cause: Envelope | None) -> Envelope:
        """The envelope of an event that happens now, because of `cause` if there was one."""
        id = new_id()
        return cls(
            event=event,
            event_id=id,
            event_version=version,
            occurred_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=producer,
            correlation=(cause.correlation or cause.event_id) if cause else id,
            causation=cause.event_id if cause else "",
            traceparent=tracing.current() or (cause.traceparent if cause else ""),
        )

    @classmethod
    def read(cls, headers: Mapping[str, Any]) -> Envelope:
        """The envelope of a message; of one that says no more than Celery must know, as far as it goes."""
        told = dict(headers)
        complete(told)
        return cls(**{name: told[name] for name in _USUAL})

    def headers(self, *, task: str = "", retries: int = 0) -> Headers:
        """The headers of a message that brings this event to whoever handles it, or to one `task`.

        A copy for one task has an id of its own, always the same: a worker may hold several at a time. What
        is as usual is left out: Python's AMQP client takes microseconds for each header.
        """
        id = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.event_id}/{task}").hex if task else self.event_id
        made: Headers = {"task": task or self.event, "id": id}
        if retries:
            made["retries"] = retries
        for name, usual in _USUAL.items():
            if (value := getattr(self, name)) != usual:
                made[name] = value
        return made


def complete(headers: Headers) -> None:
    """Have them say also what a message leaves out: a handler finds each in its `self.request`."""
    for name, usual in _USUAL.items():
        if headers.get(name) in (None, ""):
            headers[name] = usual
    headers["event"] = headers["event"] or str(headers.get("task", ""))
    headers["event_id"] = headers["event_id"] or str(headers.get("id", ""))


def encode(args: Any, kwargs: Any) -> bytes:
    """The body. Raises TypeError for what JSON has no word for."""
    return msgspec.json.encode([list(args), kwargs, {}])


def bytes_of(body: Any) -> bytes:
    """The body of a message as it was sent: py-amqp has made text of what it could."""
    return body.encode() if isinstance(body, str) else bytes(body)


def fresh(headers: Mapping[str, Any]) -> Headers:
    """The headers without what was added on the way."""
    return {name: value for name, value in headers.items() if not name.startswith(_OF_THE_WAY)}
