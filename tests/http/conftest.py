"""A server on each engine that tests of HTTP share; one that hurts its server starts its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.http.servers import PATIENCE, Served, serving
from tests.redis import servers as redis_servers


@pytest.fixture(scope="session", params=["memory", "sqlite", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "redis":
            url = stack.enter_context(redis_servers.single()).url()
        else:
            url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/jobs.db"
        yield stack.enter_context(serving(url, folder))


@pytest.fixture
def http(server: Served) -> Iterator[httpx.Client]:
    """A client of a server without queues."""
    with httpx.Client(base_url=server.api, timeout=PATIENCE) as client:
        for each in client.get("/queues").json()["queues"]:
            client.delete(f"/queues/{each['queue'].replace('%', '%25').replace('/', '%2F')}?force=true")
        yield client


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Served]:
    """One of the test's own, on a file."""
    with serving(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as served:
        yield served
