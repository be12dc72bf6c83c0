"""A pause as it is stored: its reason and, if it ends by itself, behind that until when.

Both in one text: a release that knows of no end replaces it as a whole, so that what such a one pauses or
resumes never ends by the time of a pause before it. It shows the end to people as a part of the reason.
"""

from __future__ import annotations

#: What no reason has: see `plain`.
_MARK = "\x1f"
_UNTIL = f"{_MARK}until "


def plain(reason: str) -> str:
    """A reason that cannot be taken for one with an end."""
    return reason.replace(_MARK, " ")


def stored(reason: str, until: int | None) -> str:
    return reason if until is None else f"{reason}{_UNTIL}{until}"


def read(text: str) -> tuple[str, int | None]:
    """The reason, and until when."""
    reason, mark, until = text.rpartition(_UNTIL)
    return (reason, int(until)) if mark and until.isdecimal() else (text, None)
