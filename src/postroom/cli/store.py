"""The configured room, for the time of one command."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.room import Room


def opened(url: str | None) -> AbstractContextManager[Room]:
    """The room behind this URL, or else as configured; closed when the command ends.

    It declares nothing: whoever looks from a folder with an old postroom.toml must not change what
    the queues promise.
    """
    from postroom.room import open as open_room

    return open_room(url, declare=False)
