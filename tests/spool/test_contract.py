"""With both sides there, the spool keeps the contract: a room does not notice that it has one."""

from __future__ import annotations

from functools import partial
from typing import Any

from postroom.engine import Capabilities
from postroom.engines.memory import MemoryEngine
from postroom.engines.redis.faults import is_uncertain
from postroom.engines.spool import SpoolEngine
from postroom.testing import EngineContract, ManualClock
from postroom.testing.contract.base import ContractBase
from tests.contract.test_redis import Core, RedisContract
from tests.redis import servers
from tests.spool.stage import sqlite


class OnMemory(SpoolEngine):
    """Its primary is gone with the process, so what that could not survive is not asked."""

    capabilities = Capabilities(durable=False, shared=False, blocking=True)


class Spooled(ContractBase):
    """Every put through a spool is remembered for a day at least, whatever it says."""

    test_an_id_can_be_put_again_once_its_time_is_over_however_many_there_were: Any = None
    test_an_id_put_again_is_not_held_by_an_old_receipt: Any = None
    test_an_acked_id_is_forgotten_by_default: Any = None
    test_an_acked_id_is_remembered_that_long_after_it_is_gone: Any = None
    test_a_remembered_id_is_forgotten_although_sweeps_came_by: Any = None
    test_the_messages_own_remember_wins_over_the_policy: Any = None
    test_every_field_of_a_message_comes_back: Any = None


class TestSpool(Spooled, EngineContract):
    def make_engine(self, clock: ManualClock) -> SpoolEngine:
        return OnMemory(lambda: MemoryEngine(clock), MemoryEngine(clock), timeout=30_000, clock=clock)


class TestSpoolOfRedis(Spooled, RedisContract, Core):
    """With the two that people use."""

    run_servers = servers.single

    def make_engine(self, clock: ManualClock) -> SpoolEngine:  # type: ignore[override]  # around that engine
        primary = partial(super().make_engine, clock)
        return SpoolEngine(primary, sqlite(self.folder), timeout=30_000, uncertain=is_uncertain, clock=clock)
