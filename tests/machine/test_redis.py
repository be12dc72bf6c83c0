"""The Redis engine against the memory engine and a ledger."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.testing import EngineMachine, ManualClock
from postroom.testing.machine import MACHINE_SETTINGS
from tests.redis import servers

# A failure is worth the time that it takes to make it small.
pytestmark = pytest.mark.timeout(600)

_number = itertools.count()


class RedisMachine(EngineMachine):
    url: ClassVar[str]

    def make_engine(self, clock: ManualClock) -> RedisEngine:
        prefix = f"postroom:machine-{next(_number)}"
        return RedisEngine(Client(urls.read(urlsplit(self.url))), prefix, clock)


TestRedisMachine = RedisMachine.TestCase
TestRedisMachine.settings = MACHINE_SETTINGS


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    with servers.single() as server:
        RedisMachine.url = server.url(**servers.PATIENT)
        yield


# The steps are the same everywhere; elsewhere fewer of them show that they arrive as they should.


def guarded() -> AbstractContextManager[servers.Server]:
    return servers.single(tls=True, password="secret", acl=servers.MINIMAL_ACL)


@pytest.mark.parametrize("place", [servers.valkey, guarded, servers.sentinel, servers.cluster])
def test_elsewhere(place: Callable[[], AbstractContextManager[Any]]) -> None:
    with place() as started:
        machine = type("ElsewhereMachine", (RedisMachine,), {"url": started.url(**servers.PATIENT)})
        run_state_machine_as_test(machine, settings=settings(MACHINE_SETTINGS, max_examples=15))
