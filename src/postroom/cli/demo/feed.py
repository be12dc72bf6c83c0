"""What happens, in words: the lines of the story, and the room's own history between them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from postroom.cli.demo.ledger import Ledger
from postroom.logs import LogEntry
from postroom.room import Room

_WORDS = {
    "retry": "{who} failed, to be tried again",
    "move_to_dlq": "{who} kept as a dead letter",
    "requeue": "{who} came back: the lease ran out",
    "replay": "{who} replayed as a new message",
    "pause": "paused: {reason}",
    "resume": "resumed",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened `at` so many seconds; a `queue` if it is the room that says so."""

    at: float
    text: str
    queue: str = ""


class Feed:
    """Gathers lines from the story and from the room's lifecycle."""

    def __init__(self, room: Room, ledger: Ledger, began: float) -> None:
        self._lifecycle = room.lifecycle()
        self._ledger = ledger
        self._began = began
        self._told: list[Line] = []
        self._lock = threading.Lock()

    def tell(self, text: str) -> None:
        """A line of the story."""
        with self._lock:
            self._told.append(Line(time.time() - self._began, text))

    def read(self) -> list[Line]:
        """What is new, oldest first; within a hundredth of a second the story goes first."""
        with self._lock:
            told, self._told = self._told, []
        happened = [self._in_words(entry) for entry in self._lifecycle.read()]
        return sorted([*told, *happened], key=lambda line: int(line.at * 100))

    def _in_words(self, entry: LogEntry) -> Line:
        words = _WORDS.get(entry.event, f"{entry.event}: {{who}}")
        info = {"reason": "", **entry.info}
        text = words.format(who=self._who(entry), **info)
        return Line(max(0.0, entry.at / 1_000 - self._began), text, entry.queue)

    def _who(self, entry: LogEntry) -> str:
        names = [job.name if (job := self._ledger.job_of(id)) else "a message" for id in entry.ids[:3]]
        if entry.count > len(names):
            names.append(f"{entry.count - len(names)} more")
        return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
