"""Time at the public edge: spans such as "15m" and instants, as integer milliseconds inside.

Inside Postroom every span and every instant is an `int` of milliseconds (instants since the
Unix epoch). People write `timedelta`, a number of seconds, or text such as "1h30m" or "250ms".
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from postroom.errors import InvalidInput

Duration = timedelta | int | float | str
Instant = datetime | int | float

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)

#: Long enough for any queue, short enough that no sum of two overflows 2^53.
MAX_SPAN = 100 * 365 * _UNITS["d"]
#: The end of the year 9999, in seconds.
_LAST_INSTANT = 253_402_300_799


def milliseconds(value: Duration, name: str = "duration") -> int:
    """The span in milliseconds, rounded up, so that nothing is ever early.

    Raises InvalidInput for negative, non-finite, unreadable or absurdly long spans.
    """
    if isinstance(value, str):
        span = _parse(value, name)
    elif isinstance(value, timedelta):
        span = value / timedelta(milliseconds=1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f'{name}: expected seconds, a timedelta or text such as "15m", not {value!r}')
    else:
        span = value * 1_000
    if not 0 <= span <= MAX_SPAN:  # also false for NaN
        raise InvalidInput(f"{name}: {value!r} is not between 0 and 100 years")
    # Binary fractions such as 0.1 s must not become 101 ms.
    return math.ceil(round(span, 6))


def _parse(text: str, name: str) -> float:
    if _NUMBER.fullmatch(text.strip()):
        return float(text) * 1_000
    total, end = 0.0, 0
    while match := _PART.match(text, end):
        total += float(match[1]) * _UNITS[match[2]]
        end = match.end()
    if end == 0 or text[end:].strip():
        raise InvalidInput(f'{name}: {text!r} is not a duration such as "500ms", "30s", "15m" or "1h30m"')
    return total


def format_duration(span: int) -> str:
    """The shortest text that `milliseconds` reads back as exactly this span: 5400000 is "1h30m"."""
    if span == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, span = divmod(span, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def instant(value: Instant, name: str = "time") -> int:
    """The moment as epoch milliseconds, rounded up. Naive datetimes are refused: they name no moment."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(f"{name}: {value!r} has no time zone; use datetime.now(timezone.utc)")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_INSTANT:
        raise InvalidInput(f"{name}: expected an aware datetime or epoch seconds, not {value!r:.80}")
    return math.ceil(round(value * 1_000, 3))
