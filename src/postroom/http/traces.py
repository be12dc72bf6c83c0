"""The trace that a message belongs to: by the W3C header `traceparent`, and where people look at it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from postroom.deadletters import celery_headers
from postroom.model import Message

#: version-trace-span-flags. A later version may say more behind that; nothing but zeroes is no trace.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def trace_link(template: str | None, message: Message) -> str | None:
    """Where the trace of this message is looked at; None without a template, or if it has no trace.

    What a producer wrote is only ever hexadecimal digits in it: no header makes another link of it.
    """
    found = _PARENT.fullmatch(_header(message.headers) or _header(celery_headers(message) or {}))
    if template is None or found is None:
        return None
    return template.replace("{trace_id}", found[1]).replace("{span_id}", found[2])


def _header(headers: Mapping[str, object]) -> str:
    """By its name in whatever case, as headers are; "" if there is none."""
    return next((str(value) for name, value in headers.items() if name.lower() == "traceparent"), "")
