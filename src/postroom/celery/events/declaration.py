"""What `@app.event` makes: a function that checks its arguments and publishes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from celery import current_task

from postroom.celery.events.envelope import Envelope, encode
from postroom.celery.events.publisher import Outgoing
from postroom.celery.events.topology import EXCHANGE
from postroom.errors import InvalidInput

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

P = ParamSpec("P")


class Event(Generic[P]):
    """Calling it checks the arguments by the function's body, publishes the event and returns its id.

    What the body raises is raised, and nothing is published.
    """

    def __init__(self, app: EventsApp, name: str, version: int, body: Callable[P, Any]) -> None:
        if not inspect.isfunction(body) or inspect.iscoroutinefunction(body):
            raise InvalidInput(f"event {name}: decorate a plain function, not {body!r:.80}")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InvalidInput(f"event {name}: version must be a whole number from 1, not {version!r}")
        functools.update_wrapper(self, body)
        self.name: str = name
        self.version: int = version
        self._app, self._body = app, body

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> str:
        self._body(*args, **kwargs)
        envelope, message = self.prepare(*args, **kwargs)
        self._app.publisher.publish(message)
        return envelope.event_id

    def within(self, caller: Any, *args: P.args, **kwargs: P.kwargs) -> str:
        """Publish it if and only if the transaction of this SQLAlchemy session or connection commits.

        It is checked now, and kept in the outbox (see `postroom.celery.events.outbox`) for a relay.
        """
        self._body(*args, **kwargs)
        envelope, message = self.prepare(*args, **kwargs)
        self._app.outbox.add(caller, message)
        return envelope.event_id

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Envelope, Outgoing]:
        """The event as it would be published, unchecked. Raises InvalidInput for what JSON cannot say."""
        envelope = Envelope.new(self.name, self._app.service, self.version, cause())
        try:
            body = encode(args, kwargs)
        except TypeError as error:
            raise InvalidInput(f"event {self.name}: {error}") from error
        return envelope, Outgoing(EXCHANGE, self.name, envelope.headers(), body)

    def __repr__(self) -> str:
        return f"<event {self.name} v{self.version}>"


def cause() -> Envelope | None:
    """The event that this thread is handling, if any."""
    request = getattr(current_task, "request", None)
    if not request or request.called_directly or not request.get("event_id"):
        return None
    return Envelope.read(vars(request))
