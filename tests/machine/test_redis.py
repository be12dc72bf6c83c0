"""The Redis engine against the memory engine and a ledger."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

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
    url: str

    def make_engine(self, clock: ManualClock) -> RedisEngine:
        return RedisEngine(Client(urls.read(urlsplit(self.url))), f"machine-{next(_number)}", clock)


TestRedisMachine = RedisMachine.TestCase
TestRedisMachine.settings = MACHINE_SETTINGS


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    with servers.single() as server:
        RedisMachine.url = server.url()
        yield
