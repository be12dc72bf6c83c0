"""The network that fails does so as it says, and works again afterwards."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.redis.proxy import HOST, Proxy, proxied

#: Far more than anything takes; a connection that carries nothing is silent for as long as we listen (s).
PATIENCE, SILENCE = 60.0, 0.2


@contextlib.contextmanager
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=PATIENCE)


def talk(near: socket.socket, far: socket.socket) -> None:
    near.sendall(b"ask")
    assert far.recv(10) == b"ask"
    far.sendall(b"answer")
    assert near.recv(10) == b"answer"


def is_reset(near: socket.socket) -> bool:
    try:
        near.sendall(b"ask")
        return near.recv(10) == b""
    except OSError:
        return True


def test_nothing_waits_in_it_for_the_receipt_of_what_came_before() -> None:
    """Else what was sent up to 40 ms before a cut is lost to the cut."""
    with (
        server() as listener,
        proxied(listener.getsockname()[1]) as proxy,
        connected(proxy) as near,
        listener.accept()[0] as far,
    ):
        talk(near, far)
        ends = list(proxy._pairs)
        assert len(ends) == 2
        assert all(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for end in ends)


def test_it_is_cut_and_mended() -> None:
    with server() as listener, proxied(listener.getsockname()[1]) as proxy:
        with connected(proxy) as near, listener.accept()[0] as far:
            talk(near, far)
            proxy.cut()
            assert is_reset(near)
            assert far.recv(10) == b""
        with connected(proxy) as near:
            assert is_reset(near)
        proxy.mend()
        with connected(proxy) as near, listener.accept()[0] as far:
            talk(near, far)


def test_it_stalls_and_new_connections_work() -> None:
    with (
        server() as listener,
        proxied(listener.getsockname()[1]) as proxy,
        connected(proxy) as near,
        listener.accept()[0] as far,
    ):
        talk(near, far)
        proxy.stall()
        near.sendall(b"ask")
        far.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            far.recv(10)
        with connected(proxy) as other, listener.accept()[0] as end:
            talk(other, end)


def test_a_server_may_go_and_come_back_behind_it() -> None:
    with server() as listener:
        port = listener.getsockname()[1]
        with proxied(port) as proxy:
            listener.close()
            with connected(proxy) as near:
                assert is_reset(near)
            with (
                socket.create_server((HOST, port)) as again,
                connected(proxy) as near,
                again.accept()[0] as far,
            ):
                talk(near, far)
                far.shutdown(socket.SHUT_WR)
                assert near.recv(10) == b"", "the end of one side is told to the other"
