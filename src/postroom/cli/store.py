"""The room a command works on."""

from __future__ import annotations

from contextlib import AbstractContextManager

from postroom.room import Room
from postroom.room import open as open_postroom


def opened(url: str | None) -> AbstractContextManager[Room]:
    """The room behind this URL; without one, as postroom.toml and POSTROOM_URL say."""
    return open_postroom(url)
