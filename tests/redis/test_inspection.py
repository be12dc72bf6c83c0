"""What the engine says of a real server: fine as the example has it, and what is wrong if not."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import pytest

import postroom
from postroom.engines.redis import inspection, urls
from postroom.engines.redis.client import Client
from postroom.findings import Finding, Level
from tests.redis import servers

SAFE = {"appendonly": "yes", "appendfsync": "everysec", "save": "900 1", "maxmemory": "1gb"}


def findings(url: str) -> dict[str, Finding]:
    with postroom.open(url) as room:
        return {finding.check: finding for finding in room.engine.inspect()}


def test_a_server_as_the_example_configures_it_is_fine() -> None:
    with servers.single(SAFE) as server:
        found = findings(server.url())
    assert [finding for finding in found.values() if finding.level is not Level.OK] == []
    assert found["fsync"].text == "appendfsync everysec"
    assert found["snapshots"].text == "save 900 1"


def test_a_server_that_keeps_nothing_is_bad() -> None:
    with servers.single({"appendonly": "no", "appendfsync": "no"}) as server:
        found = findings(server.url())
    assert found["append-only file"].level is Level.FAIL
    assert "appendonly yes" in found["append-only file"].advice
    assert [found[check].level for check in ("fsync", "snapshots", "memory")] == [Level.WARN] * 3


@pytest.mark.parametrize(
    ("save", "level"),
    [
        ("900 1", Level.OK),
        ("3600 1 60 1", Level.OK),
        ("86400 1", Level.WARN),
        ("300 10", Level.WARN),  # nine changes would never be copied
        ("3600 1 300 100 60 10000", Level.WARN),  # what Redis has unless it is told
    ],
)
def test_a_copy_that_may_be_older_than_15_minutes_is_told(save: str, level: Level) -> None:
    with servers.single(SAFE | {"save": save}) as server:
        snapshots = findings(server.url())["snapshots"]
    assert (snapshots.level, save in snapshots.text) == (level, True)
    assert ("save 900 1" in snapshots.advice) == (level is Level.WARN)


def test_a_policy_that_evicts_is_told() -> None:
    with servers.single(SAFE | {"maxmemory-policy": "volatile-lru"}) as server:
        assert "volatile-lru" in findings(server.url())["eviction"].text


def test_memory_that_is_nearly_full_is_told() -> None:
    with servers.single(SAFE) as server, postroom.open(server.url()) as room:
        info = server.ask("INFO", "memory").decode()
        used = int(info.partition("used_memory:")[2].split()[0])
        server.ask("CONFIG", "SET", "maxmemory", used * 10 // 9)
        (memory,) = [finding for finding in room.engine.inspect() if finding.check == "memory"]
    assert memory.level is Level.WARN


def test_the_keys_of_celerys_own_transport_are_named_with_the_way_out() -> None:
    with servers.single(SAFE) as server:
        server.ask("SADD", "_kombu.binding.reports", "x")
        server.ask("LPUSH", "celery", "{}")
        old = findings(server.url())["old Celery keys"]
    assert old.level is Level.WARN
    assert "_kombu.binding.reports" in old.text
    assert "celery" in old.text
    assert "postroom celery migrate" in old.advice


def test_a_user_with_few_permissions_is_told_what_it_cannot_know() -> None:
    with servers.single(SAFE) as server:
        server.ask("ACL", "SETUSER", "app", "on", ">secret", *servers.MINIMAL_ACL.split())
        found = findings(server.url().replace("redis://", "redis://app:secret@"))
    assert found["fsync, snapshots"].level is Level.WARN
    assert found["authentication"].text == "as app"
    assert found["old Celery keys"].level is Level.OK


def test_every_primary_of_a_cluster_is_looked_at(cluster_setup: servers.Cluster) -> None:
    found = findings(cluster_setup.url())
    assert found["append-only file"].level is Level.FAIL
    assert found["connection"].level is Level.OK
    assert found["fsync"].level is Level.OK
    last = cluster_setup.primaries[-1]
    last.ask("CONFIG", "SET", "appendfsync", "no")
    try:
        assert findings(cluster_setup.url())["fsync"].level is Level.WARN
    finally:
        last.ask("CONFIG", "SET", "appendfsync", "everysec")  # others use this cluster, too


@pytest.mark.parametrize(("seconds", "level"), [(-10, Level.WARN), (10, Level.WARN), (0, Level.OK)])
def test_a_clock_that_differs_is_told(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch, seconds: int, level: Level
) -> None:
    real = time.time
    with postroom.open(server.url()) as room:
        monkeypatch.setattr("time.time", lambda: real() + seconds)
        (clock,) = [finding for finding in room.engine.inspect() if finding.check == "clock"]
    assert clock.level is level, clock


def test_an_answer_that_takes_long_is_no_clock_that_differs(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up = iter([-6.0, 0.0])  # as if it was asked that long ago
    real = time.time
    with postroom.open(server.url()) as room:
        client = room.engine._client  # type: ignore[attr-defined]  # the Redis engine
        monkeypatch.setattr("time.time", lambda: real() + next(held_up, 0.0))
        clock = inspection._clock(client)
    assert clock.level is Level.OK, clock


@pytest.mark.parametrize(
    ("url", "auth", "tls"),
    [
        ("redis://redis.example.org/0", Level.WARN, Level.WARN),
        ("redis://:secret@redis.example.org/0", Level.OK, Level.WARN),
        ("rediss://app:secret@redis.example.org/0", Level.OK, Level.OK),
        ("redis://localhost/0", Level.OK, Level.OK),
        ("redis+socket:///run/redis.sock", Level.OK, Level.OK),
        ("redis+sentinel://127.0.0.1,10.0.0.2/main/0", Level.WARN, Level.WARN),
    ],
)
def test_what_crosses_a_network_should_be_guarded(url: str, auth: Level, tls: Level) -> None:
    client = Client(urls.read(urlsplit(url)))
    found = inspection.reach(client)
    assert [finding.level for finding in found] == [auth, tls]
    assert not any("secret" in finding.text for finding in found)
    client.close()
