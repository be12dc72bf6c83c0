"""Servers that tests of the Redis engine share; a test that hurts its server starts one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from tests.redis import servers

Opener = Callable[[str], Client]


@pytest.fixture(scope="session")
def one_server() -> Iterator[servers.Server]:
    with servers.single() as server:
        yield server


@pytest.fixture
def server(one_server: servers.Server) -> servers.Server:
    """A server without data, without scripts, and with nobody connected."""
    # It takes a moment until a server has noticed who has left.
    servers.until(lambda: len(one_server.ask("CLIENT", "LIST").splitlines()) == 1, "somebody is connected")
    one_server.ask("FLUSHALL")
    one_server.ask("SCRIPT", "FLUSH")
    return one_server


@pytest.fixture(scope="session")
def sentinel_setup() -> Iterator[servers.Sentinels]:
    with servers.sentinel() as setup:
        yield setup


@pytest.fixture(scope="session")
def cluster_setup() -> Iterator[servers.Cluster]:
    with servers.cluster() as setup:
        yield setup


@pytest.fixture
def open_client() -> Iterator[Opener]:
    """A client of this URL, closed after the test."""
    with ExitStack() as stack:

        def opened(url: str) -> Client:
            client = Client(urls.read(urlsplit(url)))
            stack.callback(client.close)
            return client

        yield opened
