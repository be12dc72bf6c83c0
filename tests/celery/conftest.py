"""The stores these tests run on: each is the URL of an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu.pools
import pytest

import postroom
import postroom.celery
from postroom.room import Room
from tests.celery import workers
from tests.celery.workers import Opener, Shop
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
    kombu.pools.reset()  # apps of one URL share their connections, also those of two tests
    postroom.celery.close_offices()


@pytest.fixture(autouse=True)
def nobody_is_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that one test joins makes no worker of those that come later in this process."""
    monkeypatch.setattr("postroom.celery.presence._joined", [])


# ---- for tests with workers ------------------------------------------------------------------------


@pytest.fixture(params=["redis", "sqlite"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return f"postroom+{request.getfixturevalue('redis_server').url()}"
    return f"postroom+sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def open_shop(broker: str, tmp_path: Path) -> Iterator[Opener]:
    shops: list[Shop] = []

    def opened(**config: Any) -> Shop:
        shops.append(Shop(broker, tmp_path, **config))
        return shops[-1]

    yield opened
    for shop in shops:
        shop.__exit__(None, None, None)


@pytest.fixture
def room(broker: str) -> Iterator[Room]:
    with postroom.open(broker.removeprefix("postroom+"), declare=False) as opened:
        yield opened


@pytest.fixture
def shop(
    request: pytest.FixtureRequest, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    """A shop with a queue matrix: the app and the matrix are APP and MATRIX of the module that asks."""
    monkeypatch.setattr(workers, "APP", request.module.APP)
    matrix = tmp_path / "postroom.toml"
    matrix.write_text(request.module.MATRIX, encoding="utf-8")
    with Shop(broker, tmp_path) as opened:
        opened.environ["SHOP_MATRIX"] = str(matrix)
        yield opened
