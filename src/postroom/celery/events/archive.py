"""The archive of a service, as dead letters: on RabbitMQ its queue, on an engine those of its queues.

with archive.opened(app) as dead:
    dead.groups()
    dead.replay(Filter(group=group))        to this service, and to no other
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.celery.events.holding import Held, holding
from postroom.celery.events.shelf import Shelf
from postroom.celery.working import office_for
from postroom.deadletters import DeadLetters
from postroom.errors import InvalidInput
from postroom.room import Room
from postroom.room import open as open_room

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp


class ServiceLetters(DeadLetters):
    """The dead letters of a service; `unread` of them are beyond what is looked at."""

    unread: int = 0


@contextlib.contextmanager
def opened(app: EventsApp, url: str | None = None) -> Iterator[ServiceLetters]:
    """The dead letters of this service, to the end of the block.

    On RabbitMQ it holds the oldest 20,000 of them (or 64 MB) meanwhile, and gives back what was neither
    replayed nor discarded; notes and the audit are in the store at `url`, else in the configured one. On an
    engine, everything is in the engine.

    Raises NotFound, Conflict when another reader has the archive, EngineUnavailable; InvalidInput for a
    service that keeps none.
    """
    app.loader.import_default_modules()
    if not app.on_rabbitmq:
        yield ServiceLetters(office_for(app).room, queues=list(app.handlers.queues))
        return
    if app.given.archive is None:
        raise InvalidInput(
            f"{app.service} has archive=False: what fails for good is in the log of its workers"
        )
    with open_room(url, declare=False) as store, holding(app) as held:
        yield _letters(app, held, store)


def _letters(app: EventsApp, held: Held, store: Room) -> ServiceLetters:
    room = Room(Shelf(app, held, store.engine), store.config, declare=False)
    letters = ServiceLetters(room, held.queue)
    letters.unread = max(0, held.total - len(held.messages))
    return letters
