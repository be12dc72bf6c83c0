"""What the hands of a worker have done lately: for people who want to see how a worker spends its time."""

from __future__ import annotations

import time
from collections import deque

from postroom.delivery import Delivery
from postroom.model import Settlement, Verb
from postroom.staff import Run

#: So much is told of the past (seconds), so many runs, and none that was shorter than this (seconds): a
#: thousand a second would tell nothing but that there were many, which the counters of the queue do.
SPAN, MOST, WORTH = 300.0, 60, 0.25
_LONGEST_KIND = 80


class Runs:
    """The newest runs that took a while. Threads may share it."""

    def __init__(self) -> None:
        #: When it ended (monotonic), for how long it ran, queue, id, kind, how. Not the delivery: its body.
        self._ended: deque[tuple[float, float, str, str, str, Verb]] = deque(maxlen=MOST)

    def note(self, delivery: Delivery, seconds: float, settlement: Settlement | None) -> None:
        """A handler has ended after so long; without a settlement it has settled the delivery itself."""
        if seconds >= WORTH:
            verb = settlement.verb if settlement else delivery.settled or Verb.RELEASE
            about = delivery.queue, delivery.id, delivery.kind[:_LONGEST_KIND]
            self._ended.append((time.monotonic(), seconds, *about, verb))

    def told(self) -> tuple[Run, ...]:
        now = time.monotonic()
        recent = (each for each in self._ended.copy() if now - each[0] <= SPAN)
        return tuple(
            Run(
                queue=queue,
                id=id,
                kind=kind,
                ran=round(seconds * 1_000),
                ago=round((now - ended) * 1_000),
                verb=str(verb),
            )
            for ended, seconds, queue, id, kind, verb in recent
        )
