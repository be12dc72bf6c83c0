"""`durability="replicated"`: a put returns when a replica has it too, or says that none has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Policy
from postroom.errors import ConfigError, PartialPut, QueueFull, Uncertain
from postroom.model import NewMessage
from postroom.room import Room
from tests.redis import servers
from tests.redis.servers import Server, until
from tests.spool.stage import eventually

#: For those who wait for a replica that is frozen; and for all others, on a busy machine.
SHORT, LONG = "200ms", "30s"
KEY = "postroom:{q}:meta"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with servers.replicated() as (primary, replica):
        yield primary, replica


@pytest.fixture
def room(pair: tuple[Server, Server]) -> Iterator[Room]:
    """Of somebody with much patience, and without data."""
    primary, _ = pair
    primary.ask("FLUSHALL")
    with opened(primary.url(), LONG) as room:
        yield room


@pytest.fixture
def hasty(room: Room, pair: tuple[Server, Server]) -> Iterator[Room]:
    """The same, of somebody with little."""
    with opened(pair[0].url(), SHORT) as hasty:
        yield hasty


def opened(url: str, timeout: str, **settings: Any) -> Room:
    return postroom.open(url, durability="replicated", replication_timeout=timeout, **settings)


@contextmanager
def frozen(*replicas: Server) -> Iterator[None]:
    for replica in replicas:
        replica.freeze()
    try:
        yield
    finally:
        for replica in replicas:
            replica.thaw()


# --- one primary --------------------------------------------------------------------------------


def test_a_put_that_returned_is_on_the_replica(room: Room, pair: tuple[Server, Server]) -> None:
    queue = room.queue("q")
    for count in range(1, 50):
        queue.put("x")
        assert pair[1].ask("HLEN", "postroom:{q}:body") == count
    queue.put_many(range(1_500))
    assert pair[1].ask("HLEN", "postroom:{q}:body") == 1_549


def test_without_a_replica_it_is_uncertain_and_repeated_it_is_one_message(
    room: Room, hasty: Room, pair: tuple[Server, Server]
) -> None:
    queue = hasty.queue("q")
    with frozen(pair[1]):
        with pytest.raises(Uncertain, match="no replica") as caught:
            queue.put("x")
        assert caught.value.code == "uncertain"
        (id,) = caught.value.ids
        assert queue.stats().ready == 1, "it is stored"
        # Nothing is written for it this time, and yet nobody else has it.
        with pytest.raises(Uncertain):
            queue.put("x", id=id)
    assert not room.queue("q").put("x", id=id).created
    delivery = queue.claim(timeout=0)
    assert delivery and delivery.id == id
    delivery.ack()
    assert queue.claim(timeout=0) is None


def test_the_first_put_to_a_new_queue_is_stored_although_it_is_uncertain(
    hasty: Room, pair: tuple[Server, Server]
) -> None:
    """The script is asked twice for it, once without and once with a policy."""
    with frozen(pair[1]), pytest.raises(Uncertain):
        hasty.engine.put("new", [NewMessage()])
    assert hasty.queue("new").stats().ready == 1


def test_of_many_those_that_nobody_confirmed_are_to_be_repeated(
    room: Room, hasty: Room, pair: tuple[Server, Server]
) -> None:
    with frozen(pair[1]), pytest.raises(PartialPut) as caught:
        hasty.queue("q").put_many(range(2_000))
    assert isinstance(caught.value.__cause__, Uncertain)
    assert (len(caught.value.accepted), len(caught.value.refused)) == (0, 2_000)
    puts = room.queue("q").put_many(caught.value.refused)
    assert [put.created for put in puts] == [False] * 1_000 + [True] * 1_000
    assert room.queue("q").stats().ready == 2_000


def test_a_refusal_is_a_refusal(room: Room, hasty: Room, pair: tuple[Server, Server]) -> None:
    room.queue("q", Policy(capacity=1)).put("x")
    with frozen(pair[1]), pytest.raises(QueueFull):
        hasty.queue("q").put("y")
    assert hasty.queue("q").claim(timeout=0)


def test_after_the_scripts_were_flushed(room: Room, pair: tuple[Server, Server]) -> None:
    queue = room.queue("q")
    for _ in range(3):
        pair[0].ask("SCRIPT", "FLUSH")
        queue.put("x")
    assert queue.stats().ready == 3


def test_who_waits_for_a_replica_holds_up_nobody(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    primary.ask("FLUSHALL")
    with opened(primary.url(max_connections=1, socket_timeout="30s"), "1m") as room, ExitStack() as stack:
        queue = room.queue("q", Policy())
        # A server that has to be given a script first waits for its replica before and after.
        queue.put("the long way")
        queue.put("the short way")
        assert queue.purge() == 2
        stack.enter_context(frozen(replica))
        threads = [threading.Thread(target=queue.put, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: primary.ask("INFO", "clients").count(b"blocked_clients:5"), "they do not wait")
        for _ in range(5):
            delivery = queue.claim(timeout=0)
            assert delivery
            delivery.ack()
        replica.thaw()
        for thread in threads:
            thread.join()


# --- several servers ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_with_sentinel_and_in_a_cluster(kind: str, request: pytest.FixtureRequest) -> None:
    setup = request.getfixturevalue(f"{kind}_setup")
    if kind == "sentinel":
        replicas = [server for server in setup.servers if server is not setup.primary]
    else:
        replicas = [setup.replica_of(setup.owner(KEY))]
    url = setup.url(prefix=f"replicated-{kind}")
    with opened(url, LONG) as room, opened(url, SHORT) as hasty:
        room.queue("q").put("x")
        with frozen(*replicas), pytest.raises(Uncertain) as caught:
            hasty.queue("q").put("y")
        assert not room.queue("q").put("y", id=caught.value.ids[0]).created
        assert room.queue("q").stats().ready == 2


# --- with a spool -------------------------------------------------------------------------------


def test_a_replica_that_is_away_is_no_outage(pair: tuple[Server, Server], tmp_path: Path) -> None:
    primary, replica = pair
    primary.ask("FLUSHALL")
    # Longer than it need be: on a busy machine nobody is to be taken for away.
    with opened(
        primary.url(), SHORT, spool=f"sqlite:///{tmp_path / 'spool.db'}", health_check_timeout="30s"
    ) as room:
        with frozen(replica), pytest.raises(Uncertain):
            room.queue("q").put("x")
        stats = room.stats()
        assert (stats.redis_active, stats.spooled, stats.depth) == (True, 0, 1)


def test_a_primary_that_is_demoted_while_a_put_waits_may_have_it(tmp_path: Path) -> None:
    """So it is not worked on here, but moved when there is a primary again."""
    with servers.replicated() as (primary, replica):
        spool = f"sqlite:///{tmp_path / 'spool.db'}"
        with opened(primary.url(), LONG, spool=spool, health_check_timeout="1m") as room:
            room.queue("q").put("known")
            replica.kill()
            putting = threading.Thread(target=room.queue("q").put, args=("waits",))
            putting.start()
            until(lambda: primary.ask("INFO", "clients").count(b"blocked_clients:1"), "nobody waits")
            primary.ask("REPLICAOF", servers.HOST, replica.port)
            putting.join()
            assert room.queue("q").claim(timeout=0) is None
            assert room.queue("q").stats().scheduled == 1


def test_what_was_spooled_stays_there_until_a_replica_has_it(tmp_path: Path) -> None:
    with servers.replicated() as (primary, replica):
        url, spool = primary.url(), f"sqlite:///{tmp_path / 'spool.db'}"
        primary.kill()
        with opened(url, SHORT, spool=spool) as room:
            room.queue("q").put_many(range(10))
            replica.kill()
            primary.restart()
            with postroom.open(url) as other:
                eventually(lambda: other.queue("q").stats().ready == 10, "nothing is moved")
                eventually(lambda: room.stats().redis_active)
                assert room.stats().spooled == 10, "moved, and yet kept"
                replica.start()
                eventually(lambda: room.stats().spooled == 0)
                assert other.queue("q").stats().ready == 10


# --- settings -----------------------------------------------------------------------------------


def test_it_is_an_option_of_the_url_too(pair: tuple[Server, Server]) -> None:
    url = pair[0].url(durability="replicated", replication_timeout=SHORT)
    with postroom.open(url) as room, frozen(pair[1]), pytest.raises(Uncertain):
        room.queue("q").put("x")


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only Redis"):
        postroom.open(f"sqlite:///{tmp_path / 'jobs.db'}", durability="replicated")
    with pytest.raises(ConfigError, match="stored"):
        postroom.open("redis://127.0.0.1", durability="safe")
    with pytest.raises(ConfigError, match="health_check_timeout"):
        spool = f"sqlite:///{tmp_path / 'spool.db'}"
        postroom.open("redis://127.0.0.1", durability="replicated", replication_timeout="2s", spool=spool)
