"""The Redis engine keeps the contract: on one server, guarded, with Sentinel, and in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.testing import EngineContract, ManualClock
from tests.redis import servers


class RedisContract(EngineContract):
    """Each test has a prefix of its own; all of a class share the servers."""

    run_servers: ClassVar[Callable[[], AbstractContextManager[Any]]]
    url: ClassVar[str]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _servers(cls) -> Iterator[None]:
        with cls.run_servers() as started:
            cls.url = started.url()
            yield

    def make_engine(self, clock: ManualClock) -> RedisEngine:
        return RedisEngine(Client(urls.read(urlsplit(self.url))), f"postroom:{self.queue}", clock)


class TestRedis(RedisContract):
    run_servers = servers.single


class TestRedisGuarded(RedisContract):
    @staticmethod
    def run_servers() -> AbstractContextManager[servers.Server]:
        return servers.single(tls=True, password="secret", acl=servers.MINIMAL_ACL)


class TestRedisSentinel(RedisContract):
    run_servers = servers.sentinel


class TestRedisCluster(RedisContract):
    run_servers = servers.cluster
