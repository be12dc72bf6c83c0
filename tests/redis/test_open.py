"""`postroom.open` on a real server: the Python door works, and what is wrong is said in one clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest

import postroom
from postroom.errors import ConfigError, EngineUnavailable
from tests.door.staging import eventually
from tests.redis import servers


def test_the_python_door_on_redis(server: servers.Server) -> None:
    done: list[object] = []
    with postroom.open(server.url()) as room:
        queue = room.queue("emails", postroom.Policy(max_attempts=2, backoff="1ms", jitter=False))
        queue.put({"to": "ada"}, delay="50ms")
        queue.put_many([{"to": name} for name in ("bob", "eve")], priority="high")
        worker = postroom.Worker(room, {"emails": lambda delivery: done.append(delivery.body["to"])})
        with worker:
            eventually(lambda: len(done) == 3)
        assert sorted(map(str, done)) == ["ada", "bob", "eve"]
        assert queue.stats().counters["acked"] == 3


def test_two_prefixes_do_not_see_each_other(server: servers.Server) -> None:
    with (
        postroom.open(f"{server.url()}?prefix=one") as one,
        postroom.open(f"{server.url()}?prefix=two") as two,
    ):
        one.queue("emails").put("a")
        assert two.queues() == []
        assert two.queue("emails").claim(timeout=0) is None
        assert [info.name for info in one.queues()] == ["emails"]


def test_a_room_says_how_full_the_fullest_of_its_servers_is(cluster_setup: servers.Cluster) -> None:
    fullest = cluster_setup.primaries[1]
    fullest.ask("CONFIG", "SET", "maxmemory", "50mb")
    try:
        with postroom.open(cluster_setup.url(prefix="fullest")) as room:
            memory = room.stats().memory
    finally:
        fullest.ask("CONFIG", "SET", "maxmemory", "0")
    assert memory
    assert memory.maxmemory == 50 * 2**20
    assert 0 < memory.used < memory.maxmemory


@pytest.mark.parametrize("package", ["redis", "hiredis"])
def test_without_its_package_the_command_that_installs_it_is_named(package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None  # as Python marks what cannot be imported
import postroom
try:
    postroom.open("redis://127.0.0.1:1/0")
except postroom.errors.MissingExtra as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'postroom[redis]'" in found.stdout


def test_nobody_listens_there() -> None:
    with servers.silent_port() as port, pytest.raises(EngineUnavailable, match=str(port)):
        postroom.open(f"redis://127.0.0.1:{port}/0")


def test_a_wrong_password_is_told_and_not_shown() -> None:
    with servers.single(password="right") as guarded:
        url = f"redis://:wr0ng@127.0.0.1:{guarded.port}/0"
        with pytest.raises(ConfigError) as told:
            postroom.open(url)
    assert "wr0ng" not in str(told.value)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="nobody packs such an old Redis for this Python")
def test_a_server_that_is_too_old_is_refused() -> None:
    with servers.too_old() as old, pytest.raises(ConfigError, match=r"Redis 6\.2\.5; Postroom needs 7\.0"):
        postroom.open(old.url())


def test_a_server_that_may_evict_messages_is_refused(server: servers.Server) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="allkeys-lru"):
            postroom.open(server.url())
    finally:
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
