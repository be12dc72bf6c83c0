"""The demo over HTTP: its room is served while it plays, and afterwards for whoever looks around."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from postroom.errors import MissingExtra
from postroom.room import Room

#: How long requests have to end (seconds): longer than the server gives them.
_PATIENCE = 20.0
#: Only people at this machine look around in a demo, whatever the configuration says.
_HOST = "127.0.0.1"


class Door:
    """Serves a room in a thread, so that nobody serves on when the demo is killed.

    `address` is where; None where what serving needs is not installed.
    """

    def __init__(self, room: Room) -> None:
        self.address: str | None = None
        self._room = room
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        from postroom.cli.serve import installed

        try:
            installed()
        except MissingExtra:
            return self
        self._serve()
        return self

    def _serve(self) -> None:
        from postroom.http import server
        from postroom.http.auth import Access
        from postroom.http.security import secured

        bound = server.listen(_HOST, None)
        access = Access.decide(self._room.engine, _HOST, read_only=False)
        app = secured(self._room, access)
        self._server = server.Server(app, on_stop=app.state.hub.dismiss)
        self._thread = threading.Thread(target=self._run, args=(bound,), name="demo-server", daemon=True)
        self._thread.start()
        self.address = server.address(bound)

    def _run(self, bound: Any) -> None:
        with bound:
            self._server.run(sockets=[bound])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread and not isinstance(error, KeyboardInterrupt):  # asked twice, it waits for nobody
            self._server.should_exit = True
            self._thread.join(_PATIENCE)
