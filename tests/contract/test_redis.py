"""The Redis engine keeps the contract: on Redis and Valkey, guarded, with Sentinel, and in a cluster."""

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
from postroom.testing.contract.base import ContractBase
from postroom.testing.contract.claim import ClaimContract
from postroom.testing.contract.lease import LeaseContract
from postroom.testing.contract.lifetime import SharedContract
from postroom.testing.contract.put import IdempotenceContract, PutContract
from postroom.testing.contract.records import RecordsContract
from postroom.testing.contract.settle import SettleContract
from postroom.testing.contract.topics import TopicContract
from postroom.testing.contract.waiting import RingContract, TopicRingContract
from tests.redis import servers


class RedisContract(ContractBase):
    """Each test has a prefix of its own; all of a class share the servers."""

    run_servers: ClassVar[Callable[[], AbstractContextManager[Any]]]
    url: ClassVar[str]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _servers(cls) -> Iterator[None]:
        with cls.run_servers() as started:
            cls.url = started.url(**servers.PATIENT)
            yield

    def make_engine(self, clock: ManualClock) -> RedisEngine:
        return RedisEngine(Client(urls.read(urlsplit(self.url))), f"postroom:{self.queue}", clock)


class TestRedis(RedisContract, EngineContract):
    run_servers = servers.single


class TestRedisGuarded(RedisContract, EngineContract):
    @staticmethod
    def run_servers() -> AbstractContextManager[servers.Server]:
        return servers.single(tls=True, password="secret", acl=servers.MINIMAL_ACL)


class TestRedisSentinel(RedisContract, EngineContract):
    run_servers = servers.sentinel


class TestRedisCluster(RedisContract, EngineContract):
    run_servers = servers.cluster


class TestValkey(RedisContract, EngineContract):
    run_servers = servers.valkey


class Core(
    PutContract,
    IdempotenceContract,
    ClaimContract,
    SettleContract,
    LeaseContract,
    RingContract,
    TopicContract,
    TopicRingContract,
    RecordsContract,
    SharedContract,
):
    """A part of the contract that needs every kind of command, connection and thread there is."""


class TestRedisSentinelTls(RedisContract, Core):
    @staticmethod
    def run_servers() -> AbstractContextManager[servers.Sentinels]:
        return servers.sentinel(tls=True)


class TestRedisClusterGuarded(RedisContract, Core):
    @staticmethod
    def run_servers() -> AbstractContextManager[servers.Cluster]:
        return servers.cluster(tls=True, acl=servers.CLUSTER_ACL)
