"""Which dead letters a command is about: those of a store, or the archive of a service."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.cli import output

if TYPE_CHECKING:
    from postroom.deadletters import DeadLetters


@contextlib.contextmanager
def letters(url: str | None, name: str | None, service: str | None) -> Iterator[DeadLetters]:
    """The dead letters of this name, or of this service, for the time of one command."""
    from postroom.cli.store import opened
    from postroom.deadletters import DeadLetters
    from postroom.errors import InvalidInput

    if service is None:
        with opened(url) as room:
            yield DeadLetters(room, name)
        return
    if name is not None:
        raise InvalidInput("--service means all that failed in that service; leave the queue's name away")
    from postroom.cli.events import events_app_at

    app = events_app_at(service)
    from postroom.celery.events import archive

    with archive.opened(app, url) as dead:
        if dead.unread:
            output.say(f"only the oldest are looked at: {dead.unread:,} more are in the archive")
        yield dead
