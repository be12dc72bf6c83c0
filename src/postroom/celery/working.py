"""The work in hand of a Celery task, as the guards of the domain see it: whose message, which delivery.

A pool's child has nothing of its parent's but the request, so that says all of it; the store it finds by the
app's own configuration, as its parent did. An app may have several brokers to turn to: what is known of a
task is kept where its message is, because only that store can tell whether somebody still works on it.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from postroom.celery import options
from postroom.celery.office import Office
from postroom.celery.offices import office_of
from postroom.celery.wrapping import EARLIER
from postroom.delivery import IDEMPOTENCY_KEY, working_on
from postroom.engine import Engine

#: What our requests tell the process that runs a task: the queue of its message.
QUEUE = "postroom_queue"
#: And which of the app's brokers it came from. Its number: a URL may hold a password.
BROKER = "postroom_broker"

#: Where the stores of an app are. Read once: each reading would repeat the warnings about its options.
_places: weakref.WeakKeyDictionary[Any, tuple[list[str], options.Options]] = weakref.WeakKeyDictionary()


def office_for(app: Any, broker: int = 0) -> Office:
    """The office that a worker of this app has, in any of its processes. Raises EngineUnavailable."""
    urls, chosen = _places_of(app)
    return office_of(urls[broker], chosen)


def broker_of(app: Any, office: Office) -> int:
    """Which broker of the app an office is for; the first, if the app does not know it."""
    urls, _ = _places_of(app)
    return urls.index(office.url) if office.url in urls else 0


def _places_of(app: Any) -> tuple[list[str], options.Options]:
    places = _places.get(app)
    if places is None:
        connection = app.connection_for_read()
        places = options.urls_of(connection), options.read(connection.transport_options)
        _places[app] = places
    return places


class TaskWork:
    """One run of a task: a `postroom.idempotency.Work`."""

    def __init__(self, task: Any) -> None:
        self._app = task.app
        self._request = task.request
        self.is_held: bool = bool(task.acks_late)

    @property
    def engine(self) -> Engine:
        return office_for(self._app, int(self._request.get(BROKER, 0))).room.engine

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
