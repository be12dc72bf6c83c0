"""The evening: raise the curtain, play the scenario in front of a screen, count what happened."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

from postroom.cli.demo.checks import Check, judge
from postroom.cli.demo.feed import Feed
from postroom.cli.demo.ledger import Ledger
from postroom.cli.demo.scenario import Scenario, survey
from postroom.cli.demo.screen import Picture, Screen
from postroom.cli.demo.staff import QUEUES, Tempo, workers
from postroom.errors import Conflict, PostroomError
from postroom.room import Room

#: Between two pictures (seconds).
_REFRESH = 0.25


class Show:
    """One performance. `play` may be called once."""

    def __init__(self, room: Room, seconds: float, screen: Screen) -> None:
        self._room = room
        self._screen = screen
        self._tempo = Tempo(seconds)
        self._ledger = Ledger(lease=self._tempo.lease)
        self._error: Exception | None = None
        #: The signal that ended the show early, if one did.
        self.stopped_by = 0

    def play(self) -> list[Check]:
        """Play to the end, or to Ctrl-C; what became of every promise."""
        _refuse_to_mix(self._room)
        began = time.time()
        for name, policy in self._tempo.policies().items():
            self._room.queue(name, policy)
        try:
            return self._perform(began)
        finally:
            for name in QUEUES:
                self._room.queue(name).drop(force=True)

    def _perform(self, began: float) -> list[Check]:
        feed = Feed(self._room, self._ledger, began)
        scenario = Scenario(self._room, self._ledger, self._tempo, began, feed.tell)
        crew = workers(self._room, self._ledger, self._tempo)
        for worker in crew:
            worker.start()
        feed.tell(f"two workers are ready, for three queues: {', '.join(QUEUES)}")
        thread = threading.Thread(target=self._run, args=(scenario, feed), name="scenario", daemon=True)
        thread.start()
        try:
            with self._signals(), self._screen:
                self._watch(thread, feed, began)
        finally:
            scenario.stop.set()
            thread.join()
            for worker in crew:
                worker.stop()
        if self._error:
            raise self._error
        return self._close(feed, began)

    def _run(self, scenario: Scenario, feed: Feed) -> None:
        """Play; an engine that refuses what it should take ends the story, and the checks say the rest."""
        try:
            scenario.run()
        except PostroomError as error:
            feed.tell(f"the story breaks off: {type(error).__name__}: {error}")
        except Exception as error:
            self._error = error

    def _watch(self, thread: threading.Thread, feed: Feed, began: float) -> None:
        while thread.is_alive() and not self.stopped_by:
            self._screen.show(self._picture(feed, began))
            thread.join(_REFRESH)

    def _close(self, feed: Feed, began: float) -> list[Check]:
        self._ledger.left = survey(self._room)
        checks = judge(self._ledger)
        self._screen.end(self._picture(feed, began), checks, interrupted=bool(self.stopped_by))
        return checks

    def _picture(self, feed: Feed, began: float) -> Picture:
        stats = [self._room.queue(name).stats() for name in QUEUES]
        return Picture(stats, feed.read(), time.time() - began, self._tempo.seconds)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the show at the next picture; asked a second time, at once."""
        names = (signal.SIGINT, signal.SIGTERM)
        before = {name: signal.getsignal(name) for name in names}

        def restore() -> None:
            for name, handler in before.items():
                signal.signal(name, handler)

        def note(number: int, frame: object) -> None:
            # Only noted, never raised: it may have come while this thread held the engine's lock.
            self.stopped_by = number
            restore()

        for name in names:
            signal.signal(name, note)
        try:
            yield
        finally:
            restore()


def _refuse_to_mix(room: Room) -> None:
    if taken := [info.name for info in room.queues() if info.name in QUEUES]:
        raise Conflict(
            f"the demo needs {', '.join(taken)} for itself, but this store has such queues already"
        )
