"""A process that serves the application, by uvicorn: where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import uvicorn

from postroom.errors import ConfigError
from postroom.http import connections
from postroom.http.connections import Connection

DEFAULT_PORT = 8025
#: A default port that is taken: so many behind it are tried.
_NEXT = 50
#: Requests that run get so long to end (seconds); those that only wait for messages are answered at once.
_GRACE = 10
#: And so long when it must end at once: enough to notice that nobody listens any more.
_LAST_WORDS = 1
_KEEP_ALIVE = 75
#: Connections are looked through after so many ticks of uvicorn, of which ten are a second.
_TICKS = 50
_BACKLOG = 2_048


class Tls(NamedTuple):
    """The files of a certificate; a `key` of None is in the same file."""

    certificate: str
    key: str | None = None


def listen(host: str, port: int | None) -> socket.socket:
    """A socket to serve at: exactly that port, or, without one, ours or the next that is free."""
    ports = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + _NEXT), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = ""
    for each in ports:
        # Named a TCP socket, or asyncio does not switch Nagle's delay off: 40 ms for every answer.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, each))
            bound.listen(_BACKLOG)  # before anybody is told the address
            return bound
        except (OSError, OverflowError) as error:
            bound.close()
            taken = getattr(error, "strerror", None) or str(error)
    where = host if port is None else f"{host}:{port}"
    raise ConfigError(f"serve: cannot listen at {where}: {taken}")


def address(bound: socket.socket, tls: Tls | None = None) -> str:
    """Where people find it."""
    host, port = bound.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """Ends gracefully at SIGTERM or SIGINT: takes no more, answers who waits, lets what runs end.

    A SIGINT after that ends it at once, which `force_exit` tells: only a job's present step is waited for.
    A third does not wait for that either.
    """

    def __init__(self, app: Any, tls: Tls | None = None, on_stop: Callable[[], object] | None = None) -> None:
        files: dict[str, Any] = {}
        if tls:
            files = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # ours says more
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
            **files,
        )
        try:
            config.load()
        except OSError as error:  # also what ssl says of a file that is no certificate
            raise ConfigError(f"serve: the certificate cannot be read: {error}") from error
        super().__init__(config)
        service = app.state.service  # what `asgi.app` has made
        self._before: list[Callable[[], object]] = [service.lines.close, *([on_stop] if on_stop else [])]

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            for each in list(self.server_state.connections):
                if isinstance(each, Connection):
                    each.end_if_stuck(connections.PATIENCE)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.force_exit and sig == signal.SIGINT:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for step in self._before:
            step()
        await super().shutdown(sockets)
        if self.force_exit:
            await self._end_at_once()

    async def _end_at_once(self) -> None:
        """After a second SIGINT no request is waited for; what runs beside them ends as ever.

        Uvicorn would leave that out, and cancel everything, with a traceback for each.
        """
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # its request sees a client that has hung up
        if not self.lifespan.shutdown_event.is_set():
            await self.lifespan.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_LAST_WORDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but the signal is dealt with: it is not raised again when all has ended."""
        if threading.current_thread() is not threading.main_thread():
            yield  # whoever has started the thread hears the signals
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
