"""A network that fails: what goes through it may stop without a word, or be cut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import TypeVar

HOST = "127.0.0.1"


class Proxy:
    """Passes on what comes to its port, in both directions, until it is told to `stall` or to be `cut`.

    Stalled: connections that are there then stay open and carry nothing any more, as behind a firewall that
    has forgotten them: half-open. New ones work. Cut: all are reset, and new ones too, until `mend`.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._stopped = False
        self._is_cut = False
        #: How many connections there were.
        self.count = 0

    def stall(self) -> None:
        """Let all present connections carry nothing any more."""
        with self._lock:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    self._selector.unregister(key.fileobj)

    def cut(self) -> None:
        """Reset all connections, also those that are stalled, and every new one."""
        with self._lock:
            self._is_cut = True
            for near in list(self._pairs):
                self._drop(near)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.05):
                with self._lock:
                    self._pass(key)

    def _pass(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._accept()
        elif key.fd in self._selector.get_map():  # not stalled or cut meanwhile
            self._forward(key.fileobj, key.data)  # type: ignore[arg-type]  # only sockets are registered

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            if self._is_cut:
                raise ConnectionRefusedError
            far = socket.create_connection((HOST, self._target))
        except OSError:  # nobody is there
            near.close()
            return
        for each in (near, far):
            # As clients and servers have it. Else what is small waits here, up to 40 ms, for the receipt of
            # what came before it: acks that were sent long before a cut would be lost to it.
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.count += 1
        self._pairs[near], self._pairs[far] = far, near
        self._selector.register(near, selectors.EVENT_READ, far)
        self._selector.register(far, selectors.EVENT_READ, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(65_536)
            self.seen(source, data)
            target.sendall(data)
        if not data:
            self._selector.unregister(source)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            if target not in self._selector.get_map():  # the other side has ended before
                self._drop(source)

    def seen(self, source: socket.socket, data: bytes) -> None:
        """Told of everything that passes; for those who want to know."""

    def _drop(self, one: socket.socket) -> None:
        """Close a connection and the one behind it."""
        other = self._pairs.pop(one, None)
        if other is None:
            return
        del self._pairs[other]
        for each in (one, other):
            if each in self._selector.get_map():
                self._selector.unregister(each)
            each.close()

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        self._stopped = True
        self._thread.join()
        self._selector.close()
        self._listener.close()
        for each in self._pairs:
            each.close()


P = TypeVar("P", bound=Proxy)


def proxied(port: int) -> contextlib.AbstractContextManager[Proxy]:
    """A proxy in front of a server on this port."""
    return started(Proxy(port))


@contextlib.contextmanager
def started(proxy: P) -> Iterator[P]:
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
