"""Where the demo plays: a file of its own, and never what is configured for real work."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from urllib.parse import quote

from postroom.config import load
from postroom.errors import InvalidInput
from postroom.room import Room
from postroom.room import open as open_postroom


@contextlib.contextmanager
def store(url: str | None) -> Iterator[str]:
    """The URL to play in: the given one, or that of a new file, which is gone afterwards."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        yield f"sqlite:///{quote(folder)}/demo.db"


@contextlib.contextmanager
def out_of_the_box() -> Iterator[None]:
    """An environment that configures neither Postroom nor Celery, for this process and those it starts."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("POSTROOM_", "CELERY_"))}
    for name in kept:
        del os.environ[name]
    os.environ["POSTROOM_CONFIG"] = os.devnull
    try:
        yield
    finally:
        del os.environ["POSTROOM_CONFIG"]
        os.environ.update(kept)


def open_room(url: str) -> Room:
    """A room as it is out of the box, whatever postroom.toml and the environment say."""
    room = open_postroom(url, config=load(os.devnull, environ={}, url=url))
    if not room.engine.capabilities.shared:
        room.close()
        raise InvalidInput(
            "url: the demo works in several processes, and this store lives in one; "
            "take a file, such as sqlite:////tmp/demo.db, or no --url at all"
        )
    return room
