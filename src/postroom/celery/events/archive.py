"""The archive of a service, as dead letters: on RabbitMQ its queue, on an engine those of its queues.

with archive.opened(app) as dead:
    dead.groups()
    dead.replay(Filter(group=group))        to this service, and to no other
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.celery.events.holding import Held, holding
from postroom.celery.events.shelf import Shelf
from postroom.celery.working import office_for
from postroom.errors import InvalidInput
from postroom.room import Room
from postroom.room import open as open_room
from postroom.services import ServiceLetters

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp


@contextlib.contextmanager
def opened(app: EventsApp, url: str | None = None) -> Iterator[ServiceLetters]:
    """As `letters`; for a service on RabbitMQ with the store at `url`, else with the configured one."""
    app.loader.import_default_modules()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_room(url, declare=False)) if app.on_rabbitmq else _room(app)
        yield stack.enter_context(letters(app, store))


@contextlib.contextmanager
def letters(app: EventsApp, store: Room) -> Iterator[ServiceLetters]:
    """The dead letters of this service, to the end of the block.

    On RabbitMQ it holds the oldest 20,000 of them (or 64 MB) meanwhile, and gives back what was neither
    replayed nor discarded; notes and the audit are in `store`. On an engine, everything is in the engine.

    Raises NotFound, Conflict when another reader has the archive, EngineUnavailable; InvalidInput for a
    service that keeps none.
    """
    if not app.on_rabbitmq:
        yield ServiceLetters(_room(app), queues=list(app.handlers.queues))
        return
    if app.given.archive is None:
        raise InvalidInput(
            f"{app.service} has archive=False: what fails for good is in the log of its workers"
        )
    with holding(app) as held:
        yield _letters(app, held, store)


def _room(app: EventsApp) -> Room:
    return office_for(app).room


def _letters(app: EventsApp, held: Held, store: Room) -> ServiceLetters:
    # The store's queues are none of the archive's: an event has no other place to be replayed to.
    config = dataclasses.replace(store.config, declared={})
    room = Room(Shelf(app, held, store.engine), config, declare=False)
    letters = ServiceLetters(room, held.queue)
    letters.unread = max(0, held.total - len(held.messages))
    letters.replayed_stay = False
    return letters
