"""The verbs that are about what is in Redis, and cannot be answered while it is away."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.engine import Engine
from postroom.limits import TOPIC_LIMIT
from postroom.logs import Group, Log, Stored, TopicPage
from postroom.model import Entry, Move, Moved, Page, State
from postroom.stats import Backlog, Tally

T = TypeVar("T")


class OnlyInRedis(Engine):
    """They raise EngineUnavailable when Redis is away: the spool knows nothing of all that is there."""

    @abc.abstractmethod
    def _ask(self, call: Callable[[Engine], T]) -> T:
        """The answer of Redis."""

    # --- looking and operating --------------------------------------------------------------

    def get(self, queue: str, ids: Sequence[str]) -> list[Entry | None]:
        return self._ask(lambda primary: primary.get(queue, ids))

    def stored(self, queue: str, id: str) -> list[Stored]:
        return self._ask(lambda primary: primary.stored(queue, id))

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
        return self._ask(
            lambda primary: primary.find(
                queue, state, cursor=cursor, limit=limit, group=group, correlation_id=correlation_id
            )
        )

    def groups(self, queue: str, *, after: str = "", limit: int = 100) -> list[Group]:
        return self._ask(lambda primary: primary.groups(queue, after=after, limit=limit))

    def tally(self, queue: str, state: State, edges: Sequence[int], *, group: str | None = None) -> Tally:
        return self._ask(lambda primary: primary.tally(queue, state, edges, group=group))

    def backlog(self, queue: str) -> Backlog:
        return self._ask(lambda primary: primary.backlog(queue))

    def move(self, queue: str, moves: Sequence[Move]) -> list[Moved]:
        self.check_moves(moves)
        return self._ask(lambda primary: primary.move(queue, moves))

    # --- history, topics --------------------------------------------------------------------

    def log(self, queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        return self._ask(lambda primary: primary.log(queue, after=after, limit=limit))

    def publish(self, topic: str, entries: Sequence[bytes], *, keep: int = TOPIC_LIMIT) -> None:
        self._ask(lambda primary: primary.publish(topic, entries, keep=keep))

    def read(self, topic: str, *, after: str | None = None, limit: int = 100) -> TopicPage:
        return self._ask(lambda primary: primary.read(topic, after=after, limit=limit))

    def topics(self, *, after: str = "", limit: int = 100) -> list[str]:
        return self._ask(lambda primary: primary.topics(after=after, limit=limit))
