"""Which store a command works on."""

from __future__ import annotations

from contextlib import AbstractContextManager

from postroom.room import Room, open


def opened(url: str | None) -> AbstractContextManager[Room]:
    """The room behind a URL; without one, as postroom.toml and POSTROOM_URL say."""
    return open(url)
