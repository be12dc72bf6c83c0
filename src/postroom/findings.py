"""What an engine says of its own health: one finding for each thing that was looked at."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.StrEnum):
    """How bad it is: fine, worth a change, or a reason for lost messages or a standstill."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of `postroom doctor`: what was looked at, how it is, and what to do unless it is fine."""

    check: str
    level: Level
    text: str
    advice: str = ""


def fine(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def worth_a_change(check: str, text: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, text, advice)


def bad(check: str, text: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, text, advice)
