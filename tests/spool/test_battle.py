"""What an outage of Redis costs those who have a spool, judged by ledgers beside both stores.

`FAULT_LOAD=5 pytest tests/spool/test_battle.py -s`: the figures of guarantees.md.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tests.redis import servers
from tests.redis.servers import until
from tests.redis.test_faults import ALWAYS, BEHIND, KEY
from tests.spool.siege import SpoolSiege

LOAD = int(os.environ.get("FAULT_LOAD", "1"))
pytestmark = pytest.mark.timeout(300 * LOAD)

#: Some load before, during and after an outage (messages).
BEFORE, MEANWHILE, AFTER = 100 * LOAD, 60 * LOAD, 60 * LOAD


def test_redis_comes_back_from_its_file(tmp_path: Path) -> None:
    """Nothing is lost, and nothing is worked on twice unless a process answered for a Redis that was away."""
    with servers.single(ALWAYS) as server:
        siege = SpoolSiege(tmp_path, server.url())
        with siege.fighting():
            for _ in range(LOAD):
                siege.until_acked(BEFORE // LOAD)
                server.kill()
                with siege.away():
                    siege.until_worked_here(MEANWHILE // LOAD)
                    server.restart()
            siege.until_acked(AFTER)
            siege.drain()
        verdict = siege.judged("Redis killed, back from AOF always")
    assert set(verdict.causes) <= {"failed", "owed", "starved"}


def test_redis_comes_back_empty(tmp_path: Path) -> None:
    """What Redis had is lost with it; what was accepted while it was away is not, nor what came after."""
    with servers.single() as server:
        siege = SpoolSiege(tmp_path, server.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            server.kill()
            with siege.away(forgets=math.inf):
                siege.until_worked_here(MEANWHILE)
                server.restart(empty=True)
            siege.until_acked(AFTER)
            siege.drain()
        siege.judged("Redis killed, back empty")


def test_a_primary_is_killed_and_the_sentinels_name_another(tmp_path: Path) -> None:
    with servers.sentinel(fails_over=True) as setup:
        siege = SpoolSiege(tmp_path, setup.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            old = setup.primary
            old.kill()
            with siege.away(forgets=BEHIND):
                setup.await_primary(other_than=old)
            siege.until_acked(AFTER)
            siege.drain()
        siege.judged("Sentinel failover")


def test_a_primary_of_a_cluster_is_killed(tmp_path: Path) -> None:
    with servers.cluster(fails_over=True) as setup:
        siege = SpoolSiege(tmp_path, setup.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            primary = setup.owner(KEY)
            primary.kill()
            with siege.away(forgets=BEHIND):
                replica = setup.replica_of(primary)
                until(lambda: replica.ask("ROLE")[0] == b"master", "no failover")
                until(lambda: b"cluster_state:ok" in replica.ask("CLUSTER", "INFO"), "the cluster is down")
            siege.until_acked(AFTER)
            siege.drain()
        siege.judged("Cluster primary killed")
