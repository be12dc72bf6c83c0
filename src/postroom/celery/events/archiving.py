"""The archive on RabbitMQ: events that no retry helped, with what they died of."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from postroom.celery.events.envelope import Headers
from postroom.celery.events.publisher import Outgoing
from postroom.model import Failure

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

log: logging.Logger = logging.getLogger(__name__)

#: What of a traceback is kept in a header, its end: RabbitMQ takes headers of 128 KB and no more.
_LONGEST_TRACE = 8_000
#: The headers of an archived event that tell of its end.
FAILURE = ("failure_type", "failure_text", "failure_traceback", "archived_at", "archived_by")


def keep(app: EventsApp, headers: Headers, body: bytes, failure: Failure) -> None:
    """Publish it to the archive; confirmed when this returns."""
    told: dict[str, Any] = {
        **headers,
        "failure_type": failure.type,
        "failure_text": failure.text[:1_000],
        "failure_traceback": failure.traceback[-_LONGEST_TRACE:],
        "archived_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "archived_by": app.service,
    }
    event, kept = headers.get("event", ""), app.given.archive is not None
    if kept:
        app.publisher.publish(Outgoing(app.names.archive, event, told, body))
    log.error(
        "%s failed for good after %d retries, and %s: %s",
        headers["task"], headers.get("retries") or 0, "is in the archive" if kept else "is dropped",
        failure.summary,
        extra={"event": "events.archived" if kept else "events.dropped", "name_of_event": event,
               "event_id": headers.get("event_id")},
    )  # fmt: skip
