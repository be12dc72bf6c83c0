"""A message and where it stands, as a document for programs and as rows for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.cli.times import moment

if TYPE_CHECKING:
    from postroom.model import Entry

#: Times of a document, which are moments in milliseconds where they come from.
_MOMENTS = ("put_at", "due", "expires", "started_at", "deadline")


def document(entry: Entry) -> dict[str, Any]:
    """Everything there is to say, except the token: that is for whoever works on it."""
    from postroom.content import readable

    message, failure = entry.message, entry.failure
    said: dict[str, Any] = {
        "id": message.id, "queue": message.queue, "state": str(entry.state), "kind": message.kind,
        "priority": message.priority, "put_at": message.put_at, "due": entry.due,
        "expires": message.expires, "attempt": entry.attempt, "deliveries": entry.deliveries,
        "ran_out": entry.ran_out, "strays": entry.strays, "max_attempts": message.max_attempts,
        "consumer": entry.consumer, "started_at": entry.started_at, "deadline": entry.deadline,
        "extended": entry.extended,
        "correlation_id": message.correlation_id, "unique_key": message.unique_key,
        "headers": message.headers, "payload_hash": entry.payload_hash,
        "content_type": message.content_type, **readable(message), "replayed_as": list(entry.replayed_as),
    }  # fmt: skip
    said |= {name: moment(said[name]) for name in _MOMENTS}
    said["attempts"] = [
        {
            "consumer": attempt.consumer,
            "started_at": moment(attempt.started_at),
            "ended_at": moment(attempt.ended_at),
            "error": attempt.error,
            "extended": attempt.extended,
        }
        for attempt in entry.attempts
    ]
    said["failure"] = failure and {
        "type": failure.type,
        "text": failure.text,
        "traceback": failure.traceback,
        "fingerprint": failure.fingerprint,
        "failed_at": moment(failure.failed_at),
    }
    return said


def rows(entry: Entry) -> list[tuple[str, str]]:
    """The same for people: what is there, an attempt a line, the traceback left out."""
    import json

    said = document(entry)
    attempts, failure = said.pop("attempts"), said.pop("failure")
    shown = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in said.items()
        if value not in (None, "", [], {}) or name == "body"
    ]
    shown += [
        (f"attempt {n}", f"{attempt['started_at']} {attempt['consumer']}: {attempt['error']}")
        for n, attempt in enumerate(attempts, start=1)
    ]
    if failure:
        shown.append(("failure", f"{failure['type']}: {failure['text']}"))
    return shown
