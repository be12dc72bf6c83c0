"""An archived event as a dead letter: what RabbitMQ kept, in the words of `postroom.deadletters`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from postroom.celery.events.archiving import FAILURE
from postroom.celery.events.envelope import CONTENT_TYPE, Headers, bytes_of, fresh
from postroom.ids import is_id, replay_id
from postroom.model import Entry, Failure, Message, State
from postroom.policy import stamped

#: What a replay begins anew.
_COUNTED = ("retries", "replays")


def letter_of(queue: str, message: Any) -> Entry:
    """The letter that a message of an archive stands for; of one that says little, as far as it goes."""
    headers = message.headers or {}
    event = _event(message)
    died = _instant(headers.get("archived_at"))
    told = (str(headers.get(name) or "") for name in FAILURE[:3])
    kind, text, trace = told
    failure = Failure(type=kind or "Unknown", text=text, traceback=trace)
    kept = {name: str(value) for name, value in headers.items() if name not in (*FAILURE, "retries")}
    return Entry(
        message=Message(
            id=_id(message),
            queue=queue,
            body=bytes_of(message.body),
            put_at=_instant(headers.get("occurred_at")) or died,
            due=_instant(headers.get("occurred_at")) or died,
            kind=event,
            content_type=message.properties.get("content_type") or CONTENT_TYPE,
            headers=kept,
            correlation_id=str(headers.get("event_id") or headers.get("id") or "") or None,
        ),
        state=State.DEAD,
        due=died,
        attempt=count(headers, "retries") + 1,
        failure=stamped(failure, event, died),
    )


def again(message: Any) -> Headers:
    """The headers of the same event when it is replayed: its attempts are counted anew."""
    headers = fresh(message.headers or {})
    event = _event(message)
    kept = {name: value for name, value in headers.items() if name not in (*FAILURE, *_COUNTED)}
    told = {"task": kept.get("task") or event, "id": kept.get("id") or _id(message)}
    return {**kept, **told, "event": event, "retries": 0, "replays": count(headers, "replays") + 1}


def count(headers: Mapping[str, Any], name: str) -> int:
    """A number among the headers; whoever wrote them may have written anything."""
    value = headers.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _event(message: Any) -> str:
    headers = message.headers or {}
    return str(headers.get("event") or message.delivery_info.get("routing_key") or "")


def _id(message: Any) -> str:
    """The same for copies of one letter, another one for each replay that failed again."""
    headers = message.headers or {}
    given = str(headers.get("id") or "").replace("-", "")
    if not is_id(given):
        whole = given.encode() or bytes_of(message.body)
        given = hashlib.sha256(whole, usedforsecurity=False).hexdigest()[:32]
    replays = count(headers, "replays")
    return replay_id(given, replays) if replays else given


def _instant(text: Any) -> int:
    """Milliseconds of a time in ISO 8601; 0: there is none."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return 0
