"""Rounds that can be interrupted: what was measured is kept after each, and how much is left is told."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: A round of a part: its number, from 1, and the name of the part.
Turn = tuple[int, str]


class Book:
    """What was found of every part, in a file: {"machine": …, section: {part: {"seconds": […], …}}}.

    A part has as many rounds behind it as it has seconds; a round that was cut off is not in the file.
    """

    def __init__(self, path: Path, section: str, about: dict[str, Any], resume: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text(encoding="utf-8")) if resume and path.exists() else {}
        self.parts: dict[str, Any] = {
            name: part for name, part in before.get(section, {}).items() if "seconds" in part
        }
        self.found: dict[str, Any] = before | about | {section: self.parts}

    def turns(self, plan: Sequence[Turn], minutes: float, say: Callable[[str], None]) -> Iterator[Turn]:
        """Those of the plan that are not done yet, each kept when the next is asked for, until time is up."""
        end = time.monotonic() + minutes * 60
        left = [turn for turn in plan if turn[0] > self._done(turn[1])]
        for at, (number, name) in enumerate(left):
            last = max(each for each, other in plan if other == name)
            if time.monotonic() > end:
                say(f"the time is up before round {number} of {last}: {name}; --resume goes on from here")
                return
            say(f"round {number} of {last}: {name}{self._ahead(left[at:])}")
            began = time.monotonic()
            yield number, name
            self.parts[name].setdefault("seconds", []).append(round(time.monotonic() - began))
            self._path.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def _done(self, name: str) -> int:
        return len(self.parts.get(name, {}).get("seconds", ()))

    def _ahead(self, left: Sequence[Turn]) -> str:
        """How long the rest takes, by what its rounds have taken so far."""
        known = [self.parts[name]["seconds"] for _, name in left if self._done(name)]
        if not known:
            return ""
        minutes = sum(map(statistics.median, known)) / 60
        return f"; {'' if len(known) == len(left) else 'more than '}{minutes:.0f} minutes to go"
