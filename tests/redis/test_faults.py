"""What each fault of a Redis costs: what is lost, what is begun twice, how long until everybody works again.

Judged by ledgers that the processes keep beside the store. `pytest tests/redis/test_faults.py -s` shows what
was found, and `FAULT_LOAD=5` goes on for longer and hurts more often: the figures of guarantees.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postroom.engine import ClaimRequest
from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.model import Leased, NewMessage, Outcome, Receipt, Settlement, Verb
from postroom.policy import Policy, Rate
from postroom.testing import ManualClock
from tests.chaos.load import LEASE as SHORT_LEASE
from tests.redis import servers
from tests.redis.fault_siege import LEASE, Siege, check
from tests.redis.servers import Server, until

LOAD = int(os.environ.get("FAULT_LOAD", "1"))
pytestmark = pytest.mark.timeout(300 * LOAD)

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}
EVERY_SECOND = {"appendonly": "yes", "appendfsync": "everysec"}
#: While a sync is running, `everysec` answers and holds what it has to write back, up to this long (seconds):
#: two by a clock that knows whole seconds only.
HELD_BACK = 3.0
#: A replica is behind its primary by a moment, on a busy machine by several (seconds).
BEHIND = 1.5
#: Some load before a fault, and some after it (messages).
BEFORE, AFTER = 200 * LOAD, 100 * LOAD
#: The key by which a queue of the battle is found in a cluster.
KEY = "postroom:{letters}:meta"


# --- processes ----------------------------------------------------------------------------------


def test_workers_and_producers_are_killed(tmp_path: Path, server: Server) -> None:
    """Nothing is lost; what the dead had in their hands comes back when its lease is over."""
    siege = Siege(tmp_path, server.url(), lease=SHORT_LEASE, remember="0s")
    with siege.fighting():
        siege.poison()
        siege.rage(4 * LOAD, least_kills=4 * LOAD)
        siege.drain()
    result = siege.result("kill -9 of workers and producers")
    check(siege, result)
    assert set(result.again) <= {"killed", "stopped", "starved"}
    assert result.orphaned < 30  # a lease and a moment; on a machine that is far too busy several moments


# --- one server ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "forgets"), [(ALWAYS, 0.0), (EVERY_SECOND, HELD_BACK)], ids=["always", "everysec"]
)
def test_a_server_is_killed_and_restarted(tmp_path: Path, options: dict[str, str], forgets: float) -> None:
    """What the kernel has outlives the process; only `always` gives it everything before it answers."""
    with servers.single(options) as server:
        siege = Siege(tmp_path, server.url())
        with siege.fighting():
            for _ in range(2 * LOAD):
                siege.until_acked(BEFORE // (2 * LOAD))
                with siege.outage(forgets) as killer:
                    killer.kill(server)
                    server.restart()
            siege.until_acked(AFTER)
            siege.drain()
        result = siege.result(f"kill -9 of Redis, AOF {options['appendfsync']}")
        check(siege, result)
    assert set(result.again) <= ({"forgotten", "starved"} if forgets else {"starved"})


def test_the_power_is_cut_with_a_file_synced_every_second(tmp_path: Path) -> None:
    """What was written in the last second is gone: puts are lost, claims and acks are forgotten."""
    with servers.single(EVERY_SECOND) as server:
        siege = Siege(tmp_path, server.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
            synced, at = file.stat().st_size, time.monotonic()
            siege.wait_for(lambda: time.monotonic() >= at + 1)
            with siege.outage(forgets=time.monotonic() - at + HELD_BACK) as killer:
                killer.kill(server)
                os.truncate(file, synced)  # what a machine finds that went down before the next sync
                server.restart()
            siege.until_acked(AFTER)
            siege.drain()
        result = siege.result("power cut, AOF everysec")
        check(siege, result)
    assert set(result.again) <= {"forgotten", "starved"}


def test_a_server_is_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    """Who lives says so first: nothing that a living worker holds is given to another (promise 11)."""
    with servers.single(ALWAYS) as server:
        siege = Siege(tmp_path, server.url())
        with siege.fighting():
            held = siege.put_long(6, 1.5 * LEASE)
            siege.until_begun(held)
            with siege.outage():
                server.kill()
                gone = time.monotonic()
                siege.wait_for(lambda: time.monotonic() > gone + 1.1 * LEASE)
                server.restart()
            siege.drain()
        result = siege.result(f"Redis away for longer than a lease of {LEASE:.0f} s")
        check(siege, result)
    assert result.away > LEASE
    assert set(result.again) <= {"starved"}


def flush_scripts(server: Server) -> None:
    server.ask("SCRIPT", "FLUSH")


def kill_connections(server: Server) -> None:
    server.ask("CLIENT", "KILL", "TYPE", "normal")


def pause_clients(server: Server) -> None:
    """For three times as long as a call waits for its answer."""
    server.ask("CLIENT", "PAUSE", 1_500, "ALL")
    server.ask("PING")  # is held back like all others


@pytest.mark.parametrize(
    ("hurt", "times"),
    [(flush_scripts, 5), (kill_connections, 5), (pause_clients, 1)],
    ids=["scripts", "connections", "pause"],
)
def test_a_server_is_disturbed(
    tmp_path: Path, server: Server, hurt: Callable[[Server], None], times: int
) -> None:
    """Calls fail or are repeated, and that is all."""
    # Only a server that says nothing has to be given up soon; else a busy machine would be an outage too.
    short = {"socket_timeout": "500ms", "socket_connect_timeout": "500ms"}
    siege = Siege(tmp_path, server.url(**short if hurt is pause_clients else {}))
    with siege.fighting():
        for _ in range(times * LOAD):
            siege.until_acked(BEFORE // (times * LOAD))
            with siege.outage():
                hurt(server)
        siege.until_acked(AFTER)
        siege.drain()
    result = siege.result(hurt.__name__)
    check(siege, result)
    assert set(result.again) <= {"starved"}


# --- several servers ----------------------------------------------------------------------------


def test_a_primary_is_killed_and_the_sentinels_name_another(tmp_path: Path) -> None:
    """What the replica had not got is lost or begun again; everything else goes on."""
    with servers.sentinel(fails_over=True) as setup:
        siege = Siege(tmp_path, setup.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            old = setup.primary
            with siege.outage(forgets=BEHIND) as killer:
                killer.kill(old)
                setup.await_primary(other_than=old)
            siege.until_acked(AFTER)
            siege.drain()
        check(siege, siege.result("Sentinel failover"))


def test_a_primary_of_a_cluster_is_killed(tmp_path: Path) -> None:
    """The same for the queues of that primary; the others notice nothing."""
    with servers.cluster(fails_over=True) as setup:
        siege = Siege(tmp_path, setup.url())
        with siege.fighting():
            siege.until_acked(BEFORE)
            primary = setup.owner(KEY)
            with siege.outage(forgets=BEHIND) as killer:
                killer.kill(primary)
                replica = setup.replica_of(primary)
                until(lambda: replica.ask("ROLE")[0] == b"master", "no failover")
                until(lambda: b"cluster_state:ok" in replica.ask("CLUSTER", "INFO"), "the cluster is down")
            siege.until_acked(AFTER)
            siege.drain()
        check(siege, siege.result("Cluster primary killed"))


def test_what_a_replica_has_confirmed_survives_its_primary(tmp_path: Path) -> None:
    """A replica that is behind has not got what came meanwhile: no put of that has returned."""
    with servers.cluster(fails_over=True) as setup:
        siege = Siege(tmp_path, setup.url(durability="replicated", replication_timeout="10s"))
        primary = setup.owner(KEY)
        replica = setup.replica_of(primary)
        with siege.fighting():
            siege.until_acked(BEFORE)
            cut_off = time.monotonic()
            replica.ask("CONFIG", "SET", "masterauth", "wrong")
            primary.ask("CLIENT", "KILL", "TYPE", "replica")  # and it does not come back
            siege.until_waiting(primary)
            with siege.outage(forgets=time.monotonic() - cut_off + BEHIND) as killer:
                killer.kill(primary)
                until(lambda: replica.ask("ROLE")[0] == b"master", "no failover", patience=60)
                primary.restart()  # as the replica of the other, which has nobody else to confirm a put
            siege.until_acked(AFTER)
            siege.drain()
        result = siege.result("Cluster primary killed, replica behind, durability replicated")
        check(siege, result)
    assert result.verdict.counts["lost, forgotten"] == 0


def test_a_slot_moves_under_load(tmp_path: Path) -> None:
    """A queue that is between two nodes answers nobody, and loses nothing."""
    with servers.cluster() as setup:
        siege = Siege(tmp_path, setup.url())
        with siege.fighting():
            source = setup.owner(KEY)
            first = setup.primaries.index(source)
            for step in range(1, 3 * LOAD + 1):
                siege.until_acked(BEFORE // (3 * LOAD))
                target = setup.primaries[(first + step) % 3]
                with siege.outage():
                    move_slot(setup, source, target)
                source = target
            siege.until_acked(AFTER)
            siege.drain()
        result = siege.result(f"Cluster slot moved, {3 * LOAD} times")
        check(siege, result)
    assert set(result.again) <= {"starved"}


def move_slot(setup: servers.Cluster, source: Server, target: Server) -> None:
    """As redis-cli does it, but key by key, so that the queue is torn apart for as long as possible."""
    slot = source.ask("CLUSTER", "KEYSLOT", KEY)
    to = target.ask("CLUSTER", "MYID")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
        source.ask("MIGRATE", servers.HOST, target.port, "", 0, 60_000, "KEYS", *keys)
    for server in (target, source, *setup.primaries):
        server.ask("CLUSTER", "SETSLOT", slot, "NODE", to)


# --- time ---------------------------------------------------------------------------------------

QUEUE = "letters"
COUNT = 30


class Failover:
    """One queue, and a clock that was 60 s ahead until a moment ago: the new primary's is behind."""

    def __init__(self, server: Server, behind: str) -> None:
        self.clock = ManualClock()
        self._behind = behind
        self._server = server
        self.engine = self._engine()
        self.engine.declare(QUEUE, Policy(lease="3s"))
        self.engine.put(QUEUE, [NewMessage(body=b"x", content_type="text/plain") for _ in range(COUNT)])

    def _engine(self) -> RedisEngine:
        return RedisEngine(Client(urls.read(urlsplit(self._server.url()))), clock=self.clock)

    def happen(self) -> None:
        """An engine keeps the time of its own clock from going back; a server's is another clock."""
        self.engine.close()
        self.clock.set_back(self._behind)
        self.engine = self._engine()

    def claim(self, count: int) -> list[Leased]:
        request = ClaimRequest(n=count, start=count, lease=3_000, suspects=True, consumer="me")
        return self.engine.claim(QUEUE, request).deliveries

    def ack(self, deliveries: list[Leased]) -> list[Outcome]:
        acks = [Settlement(receipt(delivery), Verb.ACK) for delivery in deliveries]
        return self.engine.settle(QUEUE, acks)


def receipt(delivery: Leased) -> Receipt:
    return Receipt(QUEUE, delivery.message.id, delivery.token)


def test_a_clock_that_was_far_ahead_does_not_use_up_the_rate(server: Server) -> None:
    failover = Failover(server, "72h")
    failover.engine.declare(QUEUE, Policy(lease="3s", rate="1/s"))
    assert len(failover.claim(1)) == 1
    failover.happen()
    assert len(failover.claim(1)) == 1
    assert failover.claim(1) == []
    failover.clock.advance("1s")
    assert len(failover.claim(1)) == 1
    failover.engine.close()


def test_nor_a_shared_rate(server: Server) -> None:
    failover, rate = Failover(server, "72h"), Rate.parse("1/s")
    assert failover.engine.records.take("rate", "all", 1, rate=rate, burst=1) == 0
    failover.happen()
    assert failover.engine.records.take("rate", "all", 1, rate=rate, burst=1) == 0
    assert failover.engine.records.take("rate", "all", 1, rate=rate, burst=1) == 1_000
    failover.engine.close()


@pytest.mark.parametrize(("behind", "still"), [("60s", 60), ("10m", 600)])
def test_the_clock_of_a_new_primary_is_behind(server: Server, behind: str, still: int) -> None:
    """Nothing is taken from the living or given out twice; what the dead held comes back that much later."""
    failover = Failover(server, behind)
    living, dead = failover.claim(5), failover.claim(5)
    failover.happen()
    beat = failover.engine.renew(QUEUE, [receipt(delivery) for delivery in living], 3_000)
    assert beat == [Outcome.OK] * 5
    rest = failover.claim(COUNT)
    assert len(rest) == COUNT - 10
    assert failover.ack(living + rest) == [Outcome.OK] * (COUNT - 5)
    waited, back = 0, failover.claim(COUNT)
    assert back == []
    while not back and waited < 2 * still:
        failover.clock.advance("1s")
        waited += 1
        back += failover.claim(COUNT)
    while more := failover.claim(COUNT):  # what killed a worker may do it again: they come one by one
        back += more
    print(f"\na clock {behind} behind: what a killed worker held was given out again after {waited} s")
    assert {delivery.message.id for delivery in back} == {delivery.message.id for delivery in dead}
    assert waited <= still + 3 + 1
    assert failover.ack(back) == [Outcome.OK] * 5
    failover.engine.close()
