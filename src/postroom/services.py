"""Services of events as a door sees them: how each of them stands, and its archive as dead letters.

Whoever runs a service hands it to a door, which so needs not know what it is made of: an app of
`postroom.celery.events` is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from postroom.deadletters import DeadLetters
from postroom.errors import InvalidInput, NotFound
from postroom.room import Room

#: Events in a queue; None: it is not declared.
Count = int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Events that wait.

    ready     for handlers, by queue
    delayed   for their time: on RabbitMQ by rung, on an engine by queue
    archived  letters that are kept; None: there is no archive, or it is not declared
    filled    how far the archive has come to the nearer of its bounds: at 1 the oldest letters are dropped
    oldest    the age of its oldest letter (ms), 0 without any
    """

    service: str
    ready: dict[str, Count]
    delayed: dict[str, Count]
    archived: Count = None
    filled: float = 0.0
    oldest: int = 0


class ServiceLetters(DeadLetters):
    """The dead letters of a service; `unread` of them are beyond what is looked at."""

    unread: int = 0


class EventService(Protocol):
    """A service of events. Its name is `service`."""

    service: str

    @property
    def on_rabbitmq(self) -> bool:
        """Whether its events are on RabbitMQ; else they are on a Postroom engine."""

    @property
    def keeps_letters(self) -> bool:
        """Whether what fails for good is kept."""

    def standing(self) -> Standing:
        """Ask its broker. Raises EngineUnavailable."""

    def letters(self, store: Room) -> AbstractContextManager[ServiceLetters]:
        """Its dead letters, to replay and discard to the end of the block; readable also afterwards.

        On RabbitMQ they are as they were when the block began, nobody else can read them before it ends, and
        what people note is in `store`. Raises NotFound, Conflict when another reader has them,
        EngineUnavailable, and InvalidInput for a service that keeps none.
        """


S = TypeVar("S", bound=EventService)


def by_name(services: Iterable[EventService]) -> dict[str, EventService]:
    """These services. Raises InvalidInput when two of them have one name."""
    named: dict[str, EventService] = {}
    for each in services:
        if each.service in named:
            raise InvalidInput(f"two services are called {each.service}")
        named[each.service] = each
    return named


def find(services: Mapping[str, S], name: str) -> S:
    """The service of this name. Raises NotFound."""
    if name not in services:
        known = f"; there are {', '.join(services)}" if services else "; no service is configured"
        raise NotFound(f"there is no service {name!r:.80}{known}")
    return services[name]
