"""One message first: is it done before the others follow?"""

from __future__ import annotations

import time

from postroom.duration import Duration, format_duration, milliseconds
from postroom.engine import Engine
from postroom.logs import Event
from postroom.model import State

#: Seconds between two looks: soon at first, then less and less often.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
#: Ways for a message to be gone without having been done.
_TAKEN_AWAY = {Event.CANCEL, Event.DISCARD, Event.EVICT, Event.EXPIRE, Event.PURGE}


class Canary:
    """Watches one message: `release` before it is put, then `outcome`."""

    def __init__(self, engine: Engine, timeout: Duration) -> None:
        self._engine = engine
        self._timeout = milliseconds(timeout, "canary timeout")
        self._cursor = ""

    def release(self, queue: str) -> None:
        self._cursor = self._engine.log(queue).cursor

    def outcome(self, queue: str, id: str) -> str:
        """Wait for its end: "" when it was done, else why the others should not follow."""
        end, pause = time.monotonic() + self._timeout / 1_000, _FIRST_PAUSE
        while True:
            (entry,) = self._engine.get(queue, [id])
            if entry is None or entry.state is State.DONE:
                return self._how_it_went(queue, id)
            if entry.state is State.DEAD:
                return f"the canary {id} died again: {entry.last_error}"
            if time.monotonic() >= end:
                tried = f", {entry.attempts[-1].error}" if entry.attempts else ""
                waited = format_duration(self._timeout)
                return f"the canary {id} is {entry.state} after {waited}, attempt {entry.attempt}{tried}"
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _how_it_went(self, queue: str, id: str) -> str:
        """A message that is gone was done, unless the history says that it was taken away.

        The history is written by the same step that takes a message away. It names 50 of the ids, and
        none of a purge: whatever it leaves open counts as taken away.
        """
        while True:
            log = self._engine.log(queue, after=self._cursor, limit=1_000)
            for entry in log.entries:
                if entry.event in _TAKEN_AWAY and (id in entry.ids or entry.count > len(entry.ids)):
                    return f"the canary {id} was taken away ({entry.event}) before it was done"
            if log.missed:
                return f"what became of the canary {id} is not known: the history is too long"
            if not log.entries:
                return ""
            self._cursor = log.cursor
