"""What stands for the addresses on our pages, while they are tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.http.servers import serving
from tests.redis import servers

#: A Redis with which the doctor is content.
SOUND = {"appendonly": "yes", "save": "900 1", "maxmemory": "1gb"}


class Neighbours:
    """A Redis, a server and a port that nobody else has; each is there when a page first names it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._addresses: dict[str, str] = {}
        self._start = {
            "redis://localhost:6379/0": self._redis,
            "redis://host/0": self._redis,
            "http://127.0.0.1:8025": self._server,
            "9464": self._port,
        }

    def met(self, text: str) -> str:
        """The text of a page with addresses at which somebody answers."""
        for name, start in self._start.items():
            if name in text:
                if name not in self._addresses:
                    self._addresses[name] = start()
                text = text.replace(name, self._addresses[name])
        return text

    def _redis(self) -> str:
        return self._stack.enter_context(servers.single(SOUND)).url()

    def _server(self) -> str:
        url = f"sqlite:///{self._folder}/jobs.db"
        return self._stack.enter_context(serving(url, self._folder)).address

    def _port(self) -> str:
        port, held = servers.claimed_port()
        self._stack.enter_context(held)
        return str(port)


@pytest.fixture(scope="session")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    with ExitStack() as stack:
        yield Neighbours(tmp_path_factory.mktemp("neighbours"), stack)
