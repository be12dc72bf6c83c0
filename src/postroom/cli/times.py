"""Moments and spans, as people and programs read them."""

from __future__ import annotations

from datetime import UTC, datetime

from postroom.duration import format_duration
from postroom.errors import InvalidInput


def moment(at: int | None) -> str | None:
    """Epoch milliseconds as ISO 8601 in UTC: 2026-01-02T03:04:05.678Z."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def age(span: int) -> str:
    """A span without more precision than a person can use; "-" for none."""
    if span == 0:
        return "-"
    unit = 86_400_000 if span >= 10 * 86_400_000 else 1_000 if span >= 10_000 else 1
    return format_duration(span // unit * unit)


def read_moment(text: str | None, name: str) -> datetime | None:
    """The moment that ISO 8601 text names; it needs a time zone, or nobody knows which one is meant."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name}: {text!r} is no moment such as 2026-01-02T03:04:05Z") from None
    if at.tzinfo is None:
        raise InvalidInput(f"{name}: {text!r} has no time zone; write {text}Z for UTC")
    return at
