"""The evening: raise the curtain, play the scenario in front of a screen, count what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from postroom.cli.demo.celery_app import is_installed
from postroom.cli.demo.celery_story import CeleryStory
from postroom.cli.demo.checks import Check, judge
from postroom.cli.demo.everyday import Everyday
from postroom.cli.demo.feed import Feed
from postroom.cli.demo.ledger import Ledger
from postroom.cli.demo.processes import Company
from postroom.cli.demo.scenario import Scenario, survey
from postroom.cli.demo.screen import Picture, Screen
from postroom.cli.demo.signals import Signals
from postroom.cli.demo.tempo import ORDERS, QUEUES, Tempo
from postroom.errors import Conflict, PostroomError
from postroom.room import Room

#: Between two pictures (seconds).
_REFRESH = 0.25


class Show:
    """One performance. `play` may be called once."""

    def __init__(self, room: Room, url: str, seconds: float, screen: Screen, signals: Signals) -> None:
        self._room = room
        self._url = url
        self._screen = screen
        self._signals = signals
        self._tempo = Tempo(seconds)
        self._ledger = Ledger()
        self._ledger.celery.played = is_installed()
        self._queues = (*QUEUES, ORDERS) if self._ledger.celery.played else QUEUES
        self._error: Exception | None = None
        #: Whether the story came to its end before anybody stopped it.
        self.was_played: bool = False

    def play(self, *, stay: bool = False) -> list[Check]:
        """Play to the end, to a signal or to an accident; what became of every promise.

        With `stay` everyday work goes on afterwards, until a signal.
        """
        _refuse_to_mix(self._room, self._queues)
        began = time.time()
        policies = self._tempo.policies()
        for name in self._queues:
            self._room.queue(name, policies[name])
        try:
            checks = self._perform(began)
            self.was_played = not self._signals.noted
            if stay and self.was_played:
                self._stay()
            return checks
        finally:
            for name in self._queues:
                self._room.queue(name).drop(force=True)

    def _stay(self) -> None:
        print("\neveryday work goes on, and the server stays, until Ctrl-C", flush=True)
        Everyday(self._room).go_on(lambda: bool(self._signals.noted))

    def _perform(self, began: float) -> list[Check]:
        feed = Feed(self._room, self._ledger, began)
        with Company(self._ledger, self._url, self._tempo.seconds) as company:
            feed.tell(company.introduction())
            celery = self._celery_story(company, feed)
            scenario = Scenario(self._room, company, self._ledger, self._tempo, began, feed.tell, celery)
            self._watch(scenario, feed, began)
        if celery:
            celery.close()
        if self._error:
            raise self._error
        return self._close(feed, began)

    def _celery_story(self, company: Company, feed: Feed) -> CeleryStory | None:
        if not self._ledger.celery.played:
            return None
        return CeleryStory(self._room, company, self._ledger, self._url, self._tempo, feed.tell)

    def _watch(self, scenario: Scenario, feed: Feed, began: float) -> None:
        """Show what happens until the story is over, or must be."""
        thread = threading.Thread(target=self._run, args=(scenario, feed), name="scenario", daemon=True)
        thread.start()
        try:
            with self._screen:
                while thread.is_alive() and not self._signals.noted and not self._ledger.accident:
                    self._screen.show(self._picture(feed, began))
                    thread.join(_REFRESH)
        finally:
            scenario.stop.set()
            thread.join()

    def _run(self, scenario: Scenario, feed: Feed) -> None:
        """Play; an engine that refuses what it should take ends the story, and the checks say the rest."""
        try:
            scenario.run()
        except PostroomError as error:
            feed.tell(f"the story breaks off: {type(error).__name__}: {error}")
        except Exception as error:
            self._error = error

    def _close(self, feed: Feed, began: float) -> list[Check]:
        if self._ledger.accident:
            feed.tell(f"this ends the demo: {self._ledger.accident}")
        self._ledger.left = survey(self._room, self._queues)
        checks = judge(self._ledger)
        early = bool(self._signals.noted or self._ledger.accident)
        self._screen.end(self._picture(feed, began), checks, interrupted=early)
        return checks

    def _picture(self, feed: Feed, began: float) -> Picture:
        stats = [self._room.queue(name).stats() for name in self._queues]
        return Picture(stats, feed.read(), time.time() - began, self._tempo.seconds)


def _refuse_to_mix(room: Room, queues: Sequence[str]) -> None:
    if taken := [info.name for info in room.queues() if info.name in queues]:
        raise Conflict(
            f"the demo needs {', '.join(taken)} for itself, but this store has such queues already"
        )
