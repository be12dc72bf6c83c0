"""Sentinel and Cluster: calls find the primary and the owner of a slot, also after these have changed."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from postroom.engines.redis import routes
from postroom.engines.redis.client import Client
from postroom.engines.redis.pool import Link
from postroom.engines.redis.routes import ClusterRoute
from postroom.engines.redis.urls import Node, Settings
from postroom.errors import ConfigError, EngineUnavailable, PostroomError
from tests.redis import servers
from tests.redis.conftest import Opener
from tests.redis.test_client import COUNT, own_client_ids

TAGS = [b"{q%d}:n" % n for n in range(40)]  # enough to reach all three primaries


def eventually(client: Client, key: bytes, patience: float = 60) -> int:
    """Count as soon as somebody takes the call; all that fails until then has to fail as it should."""
    end = time.monotonic() + patience
    while True:
        try:
            return int(client.run(COUNT, [key], [1]))
        except EngineUnavailable:
            assert time.monotonic() < end, "nobody took over"
            time.sleep(0.02)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of those who were asked about the servers."""
    ports, real = list[int](), routes.ask_once

    def ask_once(settings: Settings, node: Node, packed: bytes, **changed: Any) -> Any:
        ports.append(node.port)
        return real(settings, node, packed, **changed)

    monkeypatch.setattr(routes, "ask_once", ask_once)
    return ports


# --- Sentinel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_the_primary_is_followed(how: str, open_client: Opener) -> None:
    with servers.sentinel(fails_over=True) as setup:
        client = open_client(setup.url(socket_timeout="3s"))
        assert eventually(client, b"n") >= 1
        client.check()
        first = setup.primary
        first.await_replicas()
        (first.kill if how == "kill" else first.freeze)()
        assert eventually(client, b"n") >= 2
        assert setup.await_primary(first).ask("GET", "n") is not None


def test_who_waits_is_told_of_a_failover(open_client: Opener) -> None:
    with servers.sentinel() as setup:
        client = open_client(setup.url())
        raised: list[PostroomError] = []

        def block() -> None:
            try:
                client.block("BLPOP", "list", 60, timeout=60)
            except PostroomError as error:
                raised.append(error)

        thread = threading.Thread(target=block)
        thread.start()
        first = setup.primary
        servers.until(lambda: b"blocked_clients:1" in first.ask("INFO", "clients"), "it does not block")
        setup.watchers[0].ask("SENTINEL", "FAILOVER", servers.SERVICE)
        thread.join(servers.PATIENCE)
        assert [type(error) for error in raised] == [EngineUnavailable]
        setup.await_primary(first)
        assert eventually(client, b"n") == 1


def test_a_primary_that_became_a_replica_is_left(open_client: Opener) -> None:
    with servers.sentinel() as setup:
        client = open_client(setup.url())
        client.run(COUNT, [b"n"], [1])
        first, second = setup.primary, next(each for each in setup.servers if each is not setup.primary)
        for watcher in setup.watchers:
            watcher.freeze()  # they would close the connections of a demoted primary themselves
        first.ask("REPLICAOF", servers.HOST, second.port)
        assert own_client_ids(first)
        with pytest.raises(EngineUnavailable, match="replica"):
            client.run(COUNT, [b"n"], [1])
        servers.until(lambda: not own_client_ids(first), "the connection to the replica is kept")


def test_a_primary_that_is_cut_off_from_its_replicas_is_left(open_client: Opener) -> None:
    with servers.sentinel() as setup:
        client = open_client(setup.url())
        client.run(COUNT, [b"n"], [1])
        first = setup.primary
        first.ask("CONFIG", "SET", "min-replicas-to-write", "3")  # more than there are
        assert own_client_ids(first)
        with pytest.raises(EngineUnavailable, match="NOREPLICAS"):
            client.run(COUNT, [b"n"], [1])
        servers.until(lambda: not own_client_ids(first), "the sentinels are not asked again")


def test_a_primary_that_nobody_can_replace_is_not_left_for_every_reply(
    open_client: Opener, asked: list[int]
) -> None:
    """They come as fast as the calls; each would be a new connection, and one to a sentinel."""
    with servers.sentinel() as setup:
        client, first = open_client(setup.url()), setup.primary
        client.run(COUNT, [b"n"], [1])
        first.ask("CONFIG", "SET", "min-replicas-to-write", "3")  # more than there are
        asked.clear()
        began = time.monotonic()
        for _ in range(200):
            with pytest.raises(EngineUnavailable, match="NOREPLICAS"):
                client.run(COUNT, [b"n"], [1])
        assert len(asked) <= 2 + (time.monotonic() - began) / routes._REFRESH_PAUSE


def test_sentinels_that_are_away_or_know_nothing(
    sentinel_setup: servers.Sentinels, open_client: Opener
) -> None:
    there = f"127.0.0.1:{sentinel_setup.watchers[1].port}"
    with pytest.raises(ConfigError, match="other"):
        open_client(f"redis+sentinel://{there}/other").check()
    with servers.silent_port() as port:
        away = f"127.0.0.1:{port}"
        assert open_client(f"redis+sentinel://{away},{there}/{servers.SERVICE}").command("PING") == b"PONG"
        with pytest.raises(EngineUnavailable, match="refused"):
            open_client(f"redis+sentinel://{away}/{servers.SERVICE}").check()


# --- Cluster ------------------------------------------------------------------------------------


def test_calls_go_to_the_owner_of_the_slot(cluster_setup: servers.Cluster, open_client: Opener) -> None:
    client = open_client(cluster_setup.url())
    assert client.check().cluster
    for tag in TAGS:
        client.command("DEL", tag, key=tag)
        assert client.run(COUNT, [tag, tag + b":other"], [1]) == 1
        assert cluster_setup.owner(tag).ask("GET", tag) == b"1"
    assert {cluster_setup.owner(tag).port for tag in TAGS} == {each.port for each in cluster_setup.primaries}
    assert client.command("PING") == b"PONG"


def test_blocking_goes_to_the_owner_of_the_slot(cluster_setup: servers.Cluster, open_client: Opener) -> None:
    client = open_client(cluster_setup.url())
    for tag in TAGS[:6]:
        client.command("RPUSH", tag + b"l", "x", key=tag)
        assert client.block("BLPOP", tag + b"l", 1, timeout=1) == [tag + b"l", b"x"]
        client.command("XADD", tag + b"s", "*", "f", "v", key=tag)
        assert client.block("XREAD", "BLOCK", 1_000, "STREAMS", tag + b"s", "0", timeout=1)


def test_keys_of_two_slots_are_refused(cluster_setup: servers.Cluster, open_client: Opener) -> None:
    with pytest.raises(EngineUnavailable, match="different slots"):
        open_client(cluster_setup.url()).run(COUNT, [b"{a}", b"{b}"], [1])


def test_the_wrong_kind_of_url(
    cluster_setup: servers.Cluster, server: servers.Server, open_client: Opener
) -> None:
    with pytest.raises(ConfigError, match="redis\\+cluster://"):
        open_client(cluster_setup.primaries[0].url()).check()
    with pytest.raises(ConfigError, match="not a cluster"):
        open_client(server.url(scheme="redis+cluster", path="")).check()


def test_a_slot_that_moves_is_followed(open_client: Opener) -> None:
    """Also by a user who may do no more than it needs."""
    with servers.cluster(acl=servers.CLUSTER_ACL) as setup:
        follow_a_slot(setup, open_client(setup.url(replication_timeout="30s", socket_timeout="30s")))


def follow_a_slot(cluster_setup: servers.Cluster, client: Client) -> None:
    key = b"postroom:{moving}:n"
    client.run(COUNT, [key], [1])
    source = cluster_setup.owner(key)
    target = next(each for each in cluster_setup.primaries if each is not source)
    slot = source.ask("CLUSTER", "KEYSLOT", key)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
    assert client.run(COUNT, [key], [1]) == 2  # still at the source
    source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 60_000)
    assert client.run(COUNT, [key], [1]) == 3  # asked for at the target
    assert client.run_replicated(COUNT, [key], [1]) == (4, 1)  # with an answer more
    for each in (target, source, *cluster_setup.primaries):
        each.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
    assert client.run_replicated(COUNT, [key], [1]) == (5, 1)  # moved
    assert client.run(COUNT, [key], [1]) == 6
    assert target.ask("GET", key) == b"6"


def test_a_call_waits_while_its_keys_are_in_two_places(
    cluster_setup: servers.Cluster, open_client: Opener
) -> None:
    """A script whose keys are not all there is told to try again for as long as its slot moves."""
    client = open_client(cluster_setup.url(**servers.PATIENT))
    keys = [b"postroom:{torn}:n", b"postroom:{torn}:never there"]
    assert client.run(COUNT, keys, [1]) == 1
    source = cluster_setup.owner(keys[0])
    target = next(each for each in cluster_setup.primaries if each is not source)
    slot = source.ask("CLUSTER", "KEYSLOT", keys[0])
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(client.run, COUNT, keys, [1])
        servers.until(lambda: refusals(source, "TRYAGAIN") >= 12 or counted.done(), "it is not told")
        source.ask("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 60_000)
        for each in (target, source, *cluster_setup.primaries):
            each.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
        assert counted.result() == 2


def refusals(server: servers.Server, code: str) -> int:
    found = re.search(rf"errorstat_{code}:count=(\d+)", server.ask("INFO", "errorstats").decode())
    return int(found[1]) if found else 0


def test_an_owner_that_is_cut_off_from_its_replicas_is_doubted(open_client: Opener) -> None:
    with servers.cluster() as setup:
        client = open_client(setup.url())
        client.run(COUNT, [TAGS[0]], [1])
        route = client._route
        assert isinstance(route, ClusterRoute)
        owner = setup.owner(TAGS[0])
        owner.ask("CONFIG", "SET", "min-replicas-to-write", "3")
        with pytest.raises(EngineUnavailable, match="NOREPLICAS"):
            client.run(COUNT, [TAGS[0]], [1])
        assert route._stale
        assert [node.port for node in route._candidates()][-1] == owner.port


def test_a_node_that_was_removed_is_not_believed(cluster_setup: servers.Cluster, open_client: Opener) -> None:
    """It answers, and knows of no owners."""
    with servers.single({"cluster-enabled": "yes"}) as removed:
        there = f"127.0.0.1:{cluster_setup.primaries[0].port}"
        client = open_client(f"redis+cluster://127.0.0.1:{removed.port},{there}")
        assert client.command("SET", TAGS[0], "x", key=TAGS[0]) == b"OK"


def test_a_node_that_still_names_who_is_gone_is_not_believed(
    cluster_setup: servers.Cluster, open_client: Opener
) -> None:
    with servers.silent_port() as gone, servers.single({"cluster-enabled": "yes"}) as cut_off:
        # What it knows of the others is what they were; what it owns itself it was told by the test.
        cut_off.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        cut_off.ask("CONFIG", "SET", "cluster-announce-port", gone)
        servers.until(lambda: cut_off.ask("CLUSTER", "SLOTS")[0][2][1] == gone, "it names itself")
        there = f"127.0.0.1:{cluster_setup.primaries[0].port}"
        client = open_client(f"redis+cluster://127.0.0.1:{cut_off.port},{there}")
        assert eventually(client, TAGS[1], patience=5) >= 1


def test_an_owner_that_failed_and_still_is_the_owner_has_nobody_else_wait(
    cluster_setup: servers.Cluster, open_client: Opener, asked: list[int]
) -> None:
    """Two who agree are enough: others may be on a machine that is away."""
    with servers.silent_port() as away:
        nodes = [*(each.port for each in cluster_setup.primaries), away]
        client = open_client(f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in nodes)}")
        client.run(COUNT, [TAGS[2]], [1])
        route = client._route
        assert isinstance(route, ClusterRoute)
        owner = cluster_setup.owner(TAGS[2])
        route._doubt(next(node for node in route._owners if node and node.port == owner.port))
        route._asked_at = 0.0
        asked.clear()
        client.run(COUNT, [TAGS[2]], [1])
        assert len(asked) == 2
        assert not {owner.port, away} & set(asked)


def test_who_asks_all_hears_of_a_new_owner(open_client: Opener) -> None:
    """Also when nothing else is asked, as by somebody who only watches the memory."""
    with servers.cluster(fails_over=True) as setup:
        client = open_client(setup.url())
        assert client.ask_all("PING") == [b"PONG"] * 3
        killed = setup.primaries[0]
        killed.await_replicas()
        killed.kill()

        def all_answer() -> bool:
            with contextlib.suppress(EngineUnavailable):
                return client.ask_all("PING") == [b"PONG"] * 3
            return False

        servers.until(all_answer, "nobody took over")


def test_questions_about_many_keys_go_to_their_owners_together(
    cluster_setup: servers.Cluster, open_client: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client(cluster_setup.url())
    for tag in TAGS:
        client.command("SET", tag + b"each", tag, key=tag)
    sent, ask = list[int](), Link.ask

    def counted(link: Link, packed: bytes, *, answers: int = 1) -> object:
        sent.append(answers)
        return ask(link, packed, answers=answers)

    monkeypatch.setattr(Link, "ask", counted)
    questions = [(tag, ("GET", tag + b"each")) for tag in TAGS]
    assert client.commands(questions) == TAGS
    assert (len(sent), sum(sent)) == (3, len(TAGS))
    # Who is wrong about the owners is told so, and asks again.
    route = client._route
    assert isinstance(route, ClusterRoute)
    route._owners = [route._owners[0]] * len(route._owners)
    assert client.commands(questions) == TAGS


def test_an_owner_that_is_killed_is_replaced(open_client: Opener) -> None:
    with servers.cluster(fails_over=True) as setup:
        client = open_client(setup.url(socket_timeout="10s"))
        for tag in TAGS:
            assert eventually(client, tag) == 1
        owner = setup.owner(TAGS[0])
        owner.await_replicas()
        owner.kill()
        assert eventually(client, TAGS[0]) == 2
        assert setup.replica_of(owner).ask("GET", TAGS[0]) == b"2"
        assert [eventually(client, tag) for tag in TAGS[1:]] == [2] * len(TAGS[1:])


def test_a_child_has_connections_of_its_own(cluster_setup: servers.Cluster, open_client: Opener) -> None:
    client = open_client(cluster_setup.url())
    before = client.command("CLIENT", "ID", key=TAGS[0])
    child = os.fork()
    if child == 0:
        other = False
        try:
            other = client.command("CLIENT", "ID", key=TAGS[0]) != before
        finally:
            os._exit(0 if other else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.command("CLIENT", "ID", key=TAGS[0]) == before
