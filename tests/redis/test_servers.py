"""The servers that tests run on: usable when they say so, as they were told to be, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis import exceptions as theirs

from tests.processes import has_ended, has_stopped
from tests.redis import servers

REPO = Path(__file__).parents[2]


def test_a_server_is_there_at_once_and_gone_afterwards() -> None:
    with servers.single() as server:
        assert server.ask("PING") == b"PONG"
        pid, folder = server.pid, server.folder
    assert has_ended(pid)
    assert not folder.exists()


def test_a_server_is_gone_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError), servers.single() as server:
        pid = server.pid
        raise ZeroDivisionError
    assert has_ended(pid)


def test_a_server_dies_with_a_killed_test() -> None:
    code = (
        "from tests.redis import servers\nimport time\n"
        "with servers.single() as server:\n"
        "    print(server.pid, server.folder, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPO, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().decode().split()
        assert not has_ended(int(pid))
        process.kill()
    servers.until(lambda: has_ended(int(pid)), "the server outlived its test")
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize(
    ("options", "kept"), [({"appendonly": "yes", "appendfsync": "always"}, b"1"), ({}, None)]
)
def test_a_restart_has_what_was_on_disk(options: dict[str, str], kept: bytes | None) -> None:
    with servers.single(options) as server:
        port = server.port
        server.ask("SET", "a", "1")
        server.kill()
        with pytest.raises(theirs.ConnectionError):
            server.ask("PING")
        server.restart()
        assert (server.ask("GET", "a"), server.port) == (kept, port)
        server.restart(empty=True)
        assert server.ask("GET", "a") is None


def test_a_frozen_server_is_silent_until_it_is_thawed() -> None:
    with servers.single() as server:
        server.freeze()
        servers.until(lambda: has_stopped(server.pid), "still running")
        server.thaw()
        assert server.ask("PING") == b"PONG"


def test_a_frozen_server_is_stopped() -> None:
    with servers.single() as server:
        server.freeze()
        pid = server.pid
    assert has_ended(pid)


def test_a_password_and_a_user() -> None:
    with servers.single(password="secret") as server:
        assert server.url() == f"redis://:secret@127.0.0.1:{server.port}/0"
        assert server.ask("PING") == b"PONG"
    with servers.single(acl=servers.MINIMAL_ACL) as server:
        assert server.url().startswith("redis://app:")
        assert server.ask("SET", "postroom:x", "1") == b"OK"
        with pytest.raises(theirs.NoPermissionError):
            server.ask("SET", "other", "1")
        with pytest.raises(theirs.NoPermissionError):
            server.ask("FLUSHALL")


def test_sentinel_and_cluster_come_up_in_a_few_seconds(
    sentinel_setup: servers.Sentinels, cluster_setup: servers.Cluster
) -> None:
    assert sentinel_setup.primary.ask("ROLE")[0] == b"master"
    assert [server.ask("ROLE")[0] for server in cluster_setup.servers] == [b"master"] * 3 + [b"slave"] * 3


def test_waiting_ends_with_a_complaint() -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="never"):
        servers.until(lambda: False, "never", patience=0.05)
    assert time.monotonic() - began < servers.PATIENCE / 2
