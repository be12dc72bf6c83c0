"""The stores these tests run on: each is the URL of an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom.celery
from tests.redis import servers


@pytest.fixture(scope="session")
def one_redis() -> Iterator[servers.Server]:
    with servers.single() as server:
        yield server


@pytest.fixture
def redis_server(one_redis: servers.Server) -> servers.Server:
    one_redis.ask("FLUSHALL")
    return one_redis


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The broker URL of an empty store; whatever this process opened there is closed afterwards."""
    if request.param == "redis":
        yield f"postroom+{request.getfixturevalue('redis_server').url()}"
    else:
        yield {"memory": "postroom+memory://", "sqlite": f"postroom+sqlite:///{tmp_path}/jobs.db"}[
            request.param
        ]
    postroom.celery.close_offices()
