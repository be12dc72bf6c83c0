"""A network that fails silently: what goes through it may stop, and nobody is told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator

HOST = "127.0.0.1"


class Proxy:
    """Passes on what comes to its port, in both directions, until it is told to `stall`.

    Connections that are there then stay open and carry nothing any more, as behind a firewall that has
    forgotten them: half-open. New ones work.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._stopped = False

    @property
    def count(self) -> int:
        """How many connections there were."""
        return len(self._pairs)

    def stall(self) -> None:
        """Let all present connections carry nothing any more."""
        with self._lock:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    self._selector.unregister(key.fileobj)

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.05):
                with self._lock:
                    self._pass(key)

    def _pass(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._accept()
        elif key.fd in self._selector.get_map():  # not stalled meanwhile
            self._forward(key.fileobj, key.data)  # type: ignore[arg-type]  # only sockets are registered

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection((HOST, self._target))
        self._pairs.append((near, far))
        self._selector.register(near, selectors.EVENT_READ, far)
        self._selector.register(far, selectors.EVENT_READ, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(65_536)
            target.sendall(data)
        if not data:
            self._selector.unregister(source)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        self._stopped = True
        self._thread.join()
        self._selector.close()
        self._listener.close()
        for pair in self._pairs:
            for each in pair:
                each.close()


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy in front of a server on this port."""
    proxy = Proxy(port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
