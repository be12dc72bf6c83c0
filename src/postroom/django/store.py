"""The room of a Django project, for the time of one command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.conf import settings
from django.core.management.base import CommandError

from postroom.errors import PostroomError
from postroom.room import Room
from postroom.room import open as open_room


@contextlib.contextmanager
def opened() -> Iterator[Room]:
    """The room; whatever Postroom raises is said in one line, as Django's own commands do."""
    try:
        url = getattr(settings, "POSTROOM_URL", None)
        with open_room(url.removeprefix("postroom+") if url else None, declare=False) as room:
            yield room
    except PostroomError as error:
        raise CommandError(str(error)) from error
