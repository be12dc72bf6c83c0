"""The work in hand of a Celery task, as the guards of the domain see it: whose message, which delivery.

A pool's child has nothing of its parent's but the request, so that says all of it; the store it finds by the
app's own configuration, as its parent did.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from postroom.celery import options
from postroom.celery.office import Office, office_of
from postroom.celery.wrapping import EARLIER
from postroom.delivery import IDEMPOTENCY_KEY
from postroom.engine import Engine
from postroom.idempotency import working_on

#: What our requests tell the process that runs a task: the queue of its message.
QUEUE = "postroom_queue"

#: Where the store of an app is. Read once: each reading would repeat the warnings about its options.
_places: weakref.WeakKeyDictionary[Any, tuple[str, options.Options]] = weakref.WeakKeyDictionary()


def office_for(app: Any) -> Office:
    """The office that a worker of this app has, in any of its processes. Raises EngineUnavailable."""
    place = _places.get(app)
    if place is None:
        connection = app.connection_for_read()
        place = options.url_of(connection), options.read(connection.transport_options)
        _places[app] = place
    return office_of(*place)


class TaskWork:
    """One run of a task: a `postroom.idempotency.Work`."""

    def __init__(self, task: Any) -> None:
        self._app = task.app
        self._request = task.request
        self.is_held = bool(task.acks_late)

    @property
    def engine(self) -> Engine:
        return office_for(self._app).room.engine

    @property
    def queue(self) -> str:
        return str(self._request.get(QUEUE))

    @property
    def id(self) -> str:
        return str(self._request.properties["delivery_tag"]).partition(":")[0]

    @property
    def deliveries(self) -> int:
        return int(self._request.get(EARLIER, 0)) + 1

    @property
    def idempotency_key(self) -> str:
        """The message's header `idempotency-key`; without one, the task's id: that of its retries, too."""
        return str(self._request.get(IDEMPOTENCY_KEY) or self._request.id)


def at_work(task: Any) -> contextlib.AbstractContextManager[None]:
    """Make its message the work in hand while a task runs; one that was just called has none."""
    return working_on(TaskWork(task)) if has_message(task) else contextlib.nullcontext()


def has_message(task: Any) -> bool:
    """Whether a task runs because of a message of ours."""
    request = task.request
    return not request.called_directly and bool(request.get(QUEUE))
