"""An archive as an engine: dead letters of one queue, with all that `postroom.deadletters` asks about them.

What it is not asked about letters goes through to the engine of a store: what people note about groups, and
the audit. A letter that is replayed or discarded has left the archive. A replay is published to the service's
own `recover` exchange, confirmed, and only then taken out: what a crash leaves between the two is in
the archive still, and when it is replayed once more has the same event, handler, attempt and replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from postroom.celery.events.envelope import bytes_of
from postroom.celery.events.holding import Held
from postroom.celery.events.letters import again, letter_of
from postroom.celery.events.publisher import Outgoing
from postroom.checks import check_tally
from postroom.engine import Engine, QueueInfo
from postroom.errors import InvalidInput
from postroom.ids import replay_id
from postroom.logs import Group, Log
from postroom.model import Action, Entry, Move, Moved, Page, State
from postroom.policy import Policy
from postroom.stats import COUNTERS, Backlog, QueueStats, Tally
from postroom.through import Through

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

_GONE = Moved(False, None, None, "there is no such letter in the archive any more")


class Shelf(Through):
    """The letters that `held` holds."""

    def __init__(self, app: EventsApp, held: Held, store: Engine) -> None:
        super().__init__(store)
        self._app, self._held = app, held
        self._letters: dict[str, Entry] = {}
        #: Copies of one letter, as a crash leaves them, share its fate.
        self._copies: dict[str, list[Any]] = {}
        for message in held.messages:
            letter = letter_of(held.queue, message)
            self._letters.setdefault(letter.id, letter)
            self._copies.setdefault(letter.id, []).append(message)
        self._order = sorted(map(_key, self._letters.values()))

    # --- looking ----------------------------------------------------------------------------

    def queues(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        own = self._held.queue
        return [QueueInfo(own, Policy(dead_letter=own))] if names is None or own in names else []

    def stats(self, queue: str) -> QueueStats:
        counters = dict.fromkeys(COUNTERS, 0)
        return QueueStats(queue=queue, dead=len(self._of(queue)), counters=counters)

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        letters = self._of(queue)
        return [letters.get(id) for id in ids]

    def find(
        self,
        queue: str,
        state: State,
        *,
        cursor: str | None = None,
        limit: int = 100,
        group: str | None = None,
        correlation_id: str | None = None,
    ) -> Page:
        if state is not State.DEAD or queue != self._held.queue:
            return Page([])
        place = 0 if cursor is None else bisect_right(self._order, cursor)
        found: list[Entry] = []
        while place < len(self._order) and len(found) < limit:
            letter = self._letters.get(self._order[place].rpartition("-")[2])
            place += 1
            if letter and _is_meant(letter, group, correlation_id):
                found.append(letter)
        return Page(found, self._order[place - 1] if place < len(self._order) else None)

    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        alike: dict[str, list[Entry]] = {}
        for letter in self._of(queue).values():
            alike.setdefault(_group(letter), []).append(letter)
        return [_group_of(name, alike[name]) for name in sorted(alike) if name > after][:limit]

    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        check_tally(state, edges, group)
        counts = [0] * (len(edges) + 1)
        for letter in self._of(queue).values() if state is State.DEAD else ():
            if _is_meant(letter, group, None):
                counts[bisect_right(edges, letter.failed_at or 0)] += 1
        return Tally(counts[1:-1])

    def backlog(self, queue: str) -> Backlog:
        return Backlog({}, 0)  # in an archive nothing waits

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        raise InvalidInput("canary: RabbitMQ tells nobody whether an event was handled; replay one by its id")

    def _of(self, queue: str) -> dict[str, Entry]:
        return self._letters if queue == self._held.queue else {}

    # --- acting -----------------------------------------------------------------------------

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        """Replay or discard: those that could be done are out of the archive when this returns."""
        self.check_moves(moves)
        answers = [self._answer(move) for move in moves]
        done = [move for move, answer in zip(moves, answers, strict=True) if answer.ok]
        self._held.check()  # what is back in the archive meanwhile must not be replayed beside that
        with self._app.publisher.window():
            for move in done:
                if move.action is Action.REPLAY:
                    self._publish(move)
        self._held.remove(copy for move in done for copy in self._copies.pop(move.id))
        for move in done:
            del self._letters[move.id]
        return answers

    def _answer(self, move: Move) -> Moved:
        """What will be done about it, before anything is."""
        if move.id not in self._letters:
            return _GONE
        if move.action is Action.DISCARD:
            return Moved(True, State.DEAD)
        if move.action is not Action.REPLAY:
            raise InvalidInput(f"an archive knows no {move.action}")
        headers = again(self._copies[move.id][0])
        handlers = self._app.handlers_of(headers["event"])
        if headers["task"] not in (*handlers, headers["event"]) or not handlers:
            reason = f"{headers['task']} handles {headers['event']} no more in {self._app.service}"
            return Moved(False, State.DEAD, None, reason)
        return Moved(True, State.DEAD, replay_id(move.id, move.number))

    def _publish(self, move: Move) -> None:
        message = self._copies[move.id][0]
        headers = again(message)
        body = bytes_of(message.body) if move.body is None else move.body
        self._app.publisher.publish(Outgoing(self._app.names.recover, headers["event"], headers, body))


def _key(letter: Entry) -> str:
    """By death, then by id, and fit for a cursor."""
    return f"{letter.failed_at or 0:015d}-{letter.id}"


def _is_meant(letter: Entry, group: str | None, correlation_id: str | None) -> bool:
    return (group is None or _group(letter) == group) and (
        correlation_id is None or letter.message.correlation_id == correlation_id
    )


def _group(letter: Entry) -> str:
    return letter.failure.fingerprint if letter.failure else ""


def _group_of(name: str, letters: list[Entry]) -> Group:
    letters = sorted(letters, key=_key)
    first, last = letters[0], letters[-1]
    return Group(name, len(letters), first.failed_at or 0, last.failed_at or 0, last.id)
