"""The client on a real server: scripts, single commands, blocking ones, and every way a server can fail."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from postroom.engines.redis import urls
from postroom.engines.redis.client import Client, Script
from postroom.engines.redis.faults import is_uncertain
from postroom.errors import (
    Closed,
    ConfigError,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    InvalidInput,
    LeaseLost,
    PostroomError,
    QueueFull,
)
from tests.redis import servers
from tests.redis.conftest import Opener

COUNT = Script.of("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
PUT = Script.of("put", "#!lua\nreturn redis.call('SET', KEYS[1], ARGV[1])")
DRAIN = Script.of("drain", "#!lua flags=allow-oom\nreturn redis.call('DEL', KEYS[1])")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Far more than it takes; without the bound that is tested it would be for ever."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def own_client_ids(server: servers.Server) -> list[bytes]:
    lines: list[bytes] = server.ask("CLIENT", "LIST").splitlines()
    return [line.split()[0].removeprefix(b"id=") for line in lines if b"name=postroom:" in line]


# --- calls --------------------------------------------------------------------------------------


def test_bytes_go_in_and_come_out(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    body = bytes(range(256))
    assert client.command("SET", b"key", body) == b"OK"
    assert client.command("GET", "key") == body
    assert client.command("MGET", "key", "none") == [body, None]
    assert client.command("INCRBY", "count", 5) == 5


def test_a_script_runs_before_and_after_the_server_forgot_it(
    server: servers.Server, open_client: Opener
) -> None:
    client = open_client(server.url())
    assert client.run(COUNT, [b"n"], [2]) == 2
    assert client.run(COUNT, [b"n"], ["3"]) == 5
    server.ask("SCRIPT", "FLUSH")
    assert client.run(COUNT, [b"n"], [b"4"]) == 9


def test_the_server_sees_who_is_connected(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    expected = f"postroom:{os.uname().nodename}:{os.getpid()}"
    assert client.command("CLIENT", "GETNAME") == expected.encode()
    assert open_client(server.url(client_name="me")).command("CLIENT", "GETNAME") == b"me"


@pytest.mark.parametrize("setup", ["server", "sentinel_setup", "cluster_setup"])
@pytest.mark.parametrize(("keepalive", "timer"), [("yes", "02"), ("no", "00")])
def test_the_options_of_a_connection_hold_wherever_it_goes(
    setup: str, keepalive: str, timer: str, request: pytest.FixtureRequest, open_client: Opener
) -> None:
    """One server or several: each knows the client's name, and the kernel watches over each connection."""
    url = request.getfixturevalue(setup).url(client_name="me", socket_keepalive=keepalive)
    client = open_client(url)
    words = client.command("CLIENT", "INFO", key=b"x").decode().split()
    said = dict(word.split("=", 1) for word in words)
    assert said["name"] == "me"
    assert kernels_timer(port_in(said["addr"]), port_in(said["laddr"])) == timer


def port_in(address: str) -> str:
    return f":{int(address.rpartition(':')[2]):04X}"


def kernels_timer(ours: str, theirs: str) -> str:
    """What this connection waits for, by /proc/net/tcp: 02 is a keepalive, 00 is nothing."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (row,) = [row for row in rows if row[1].endswith(ours) and row[2].endswith(theirs)]
    return row[5].partition(":")[0]


def test_threads_share_few_connections(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url(max_connections=3, socket_timeout="60s"))
    threads = [threading.Thread(target=lambda: client.run(COUNT, [b"n"], [1])) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.ask("GET", "n") == b"30"
    assert len(own_client_ids(server)) <= 3


def test_a_database_and_a_unix_socket(open_client: Opener) -> None:
    with servers.single({"unixsocket": "redis.sock"}) as server:
        client = open_client(server.url(path="/3"))
        client.command("SET", "a", 1)
        local = open_client(f"redis+socket://{server.folder}/redis.sock?db=3")
        local.check()
        assert local.command("GET", "a") == b"1"


def test_tls_and_a_minimal_user(open_client: Opener) -> None:
    with servers.single(tls=True, acl=servers.MINIMAL_ACL) as server:
        client = open_client(server.url())
        client.check()
        assert client.run(COUNT, [b"postroom:{q}:n"], [1]) == 1
        assert client.block("BLPOP", "postroom:{q}:wake", 0.05, timeout=0.05) is None
        with pytest.raises(ConfigError, match=r"permission.*flushall"):
            client.command("FLUSHALL")
        with pytest.raises(ConfigError, match=r"permission.*key"):
            client.run(COUNT, [b"other"], [1])
        with pytest.raises(ConfigError, match="permission"):
            client.run(Script.of("bad", "return redis.call('KEYS', '*')"), [b"postroom:{q}:n"], [])


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("conflict", Conflict),
        ("invalid_input", InvalidInput),
        ("lease_lost", LeaseLost),
        ("queue_full", QueueFull),
        ("something_newer", EngineUnavailable),
        ("retry", EngineUnavailable),
    ],
)
def test_an_error_of_our_own_script_keeps_its_class(
    server: servers.Server, open_client: Opener, code: str, kind: type[PostroomError]
) -> None:
    script = Script.of("refuse", f"return redis.error_reply('POSTROOM {code} the text of it')")
    with pytest.raises(PostroomError, match=r"^the text of it$") as caught:
        open_client(server.url()).run(script, [b"k"], [])
    assert type(caught.value) is kind


def test_an_error_that_a_script_raises_keeps_its_text(server: servers.Server, open_client: Opener) -> None:
    script = Script.of("raise", "error({err = 'POSTROOM conflict it has begun'})")
    with pytest.raises(Conflict, match=r"^it has begun$"):
        open_client(server.url()).run(script, [b"k"], [])


def test_a_password_that_the_server_quotes_is_left_out(open_client: Opener) -> None:
    with servers.single({"rename-command": "AUTH SIGNIN"}) as server:
        client = open_client(f"redis://user:secret@127.0.0.1:{server.port}")
        with pytest.raises(PostroomError, match="unknown command") as caught:
            client.check()
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_mistake_in_a_script_is_told(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    with pytest.raises(EngineUnavailable, match="Unknown Redis command") as caught:
        client.run(Script.of("bad", "return redis.call('NONSENSE')"), [b"k"], [])
    assert not is_uncertain(caught.value)
    assert client.command("PING") == b"PONG"
    assert len(own_client_ids(server)) == 1


def test_a_full_server_refuses_puts_and_still_drains(open_client: Opener) -> None:
    with servers.single({"maxmemory": "3mb", "maxmemory-policy": "noeviction"}) as server:
        client = open_client(server.url())
        client.check()
        with pytest.raises(QueueFull) as caught:
            for n in range(100):
                client.run(PUT, [b"key%d" % n], [b"x" * 100_000])
        assert caught.value.reason == "memory"
        assert client.run(DRAIN, [b"key0"], []) == 1


def test_all_connections_in_use(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url(max_connections=1, socket_timeout="3s"))
    pool = client._route._server._calls  # type: ignore[attr-defined]
    link = pool.take()
    with within(30), pytest.raises(EngineBusy, match="max_connections"):
        client.command("PING")
    pool.give_back(link)
    assert client.command("PING") == b"PONG"


@contextmanager
def endless_script(server: servers.Server) -> Iterator[None]:
    """Somebody's script runs in the server until it is killed, and the server says so after 20 ms."""
    server.ask("CONFIG", "SET", "busy-reply-threshold", "20")

    def loop() -> None:
        with suppress(redis.RedisError):
            server.ask("EVAL", "while true do end", "0")

    script = threading.Thread(target=loop)
    script.start()
    try:
        servers.until(lambda: is_busy(server), "the script does not run")
        yield
    finally:
        with suppress(redis.RedisError):  # killed already
            server.ask("SCRIPT", "KILL")
        script.join()
        server.ask("CONFIG", "SET", "busy-reply-threshold", "5000")


def is_busy(server: servers.Server) -> bool:
    try:
        server.ask("GET", "x")
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def test_a_server_that_is_busy_with_a_script_is_asked_again(
    server: servers.Server, open_client: Opener
) -> None:
    client = open_client(server.url(**servers.PATIENT))
    client.run(COUNT, [b"n"], [1])
    with endless_script(server):
        got: list[int] = []
        asking = threading.Thread(target=lambda: got.append(client.run(COUNT, [b"n"], [1])))
        asking.start()
        asking.join(0.3)
        assert got == []
        server.ask("SCRIPT", "KILL")
        asking.join(servers.PATIENCE)
    assert got == [2], "done, and once"


def test_a_server_that_stays_busy_is_not_waited_for_any_longer_than_for_an_answer(
    server: servers.Server, open_client: Opener
) -> None:
    client = open_client(server.url(socket_timeout="3s"))
    client.command("PING")
    with endless_script(server), within(30), pytest.raises(EngineBusy, match="nothing was changed"):
        client.run(COUNT, [b"n"], [1])
    assert server.ask("GET", "n") is None


def test_after_close(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    client.command("PING")
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.command("PING")
    servers.until(lambda: not own_client_ids(server), "a connection was left open")


# --- connections that break ---------------------------------------------------------------------


def test_a_connection_that_was_closed_while_idle_is_replaced(
    server: servers.Server, open_client: Opener
) -> None:
    client = open_client(server.url())
    client.command("PING")
    server.ask("CLIENT", "KILL", "ID", *own_client_ids(server))
    assert client.run(COUNT, [b"n"], [1]) == 1
    assert server.ask("GET", "n") == b"1"


def test_a_restarted_server_is_found_again(open_client: Opener) -> None:
    with servers.single() as server:
        client = open_client(server.url())
        client.command("PING")
        server.kill()
        with within(30), pytest.raises(EngineUnavailable, match="refused") as caught:
            client.run(COUNT, [b"n"], [1])
        assert not is_uncertain(caught.value)
        server.restart()
        assert client.run(COUNT, [b"n"], [1]) == 1


def test_a_lost_answer_is_not_repeated_and_said_to_be_uncertain(open_client: Opener) -> None:
    with servers.single() as server:
        client = open_client(server.url(socket_timeout="5s"))
        client.run(COUNT, [b"n"], [1])
        server.freeze()
        with within(30), pytest.raises(EngineUnavailable, match="not known") as caught:
            client.run(COUNT, [b"n"], [1])
        assert is_uncertain(caught.value)
        server.thaw()
        servers.until(lambda: server.ask("GET", "n") == b"2", "it was done once")
        assert client.run(COUNT, [b"n"], [1]) == 3


def test_a_long_rest_is_followed_by_a_check(open_client: Opener) -> None:
    with servers.single() as server:
        client = open_client(
            server.url(socket_timeout="3s", socket_connect_timeout="3s", health_check_interval="1ms")
        )
        client.command("PING")
        rested = time.monotonic() + 0.002
        server.freeze()
        servers.until(lambda: time.monotonic() > rested, "time stands still")
        with within(30), pytest.raises(EngineUnavailable) as caught:
            client.run(COUNT, [b"n"], [1])
        assert not is_uncertain(caught.value)  # the check failed, so the script was never sent
        server.thaw()
        assert client.run(COUNT, [b"n"], [1]) == 1


# --- blocking -----------------------------------------------------------------------------------


def test_blocking_gives_what_comes_or_none(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    assert client.block("BLPOP", "list", 0.05, timeout=0.05) is None
    server.ask("RPUSH", "list", "a")
    assert client.block("BLPOP", "list", 1, timeout=1) == [b"list", b"a"]
    server.ask("XADD", "stream", "1-1", "f", "v")
    answer = client.block("XREAD", "BLOCK", 1_000, "STREAMS", "stream", "0", timeout=1)
    assert answer == [[b"stream", [[b"1-1", [b"f", b"v"]]]]]
    with pytest.raises(ValueError, match="forever"):
        client.block("BLPOP", "list", 0, timeout=0)


def test_calls_do_not_wait_for_those_who_block(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url(max_connections=1))
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(client.block("BLPOP", "list", 60, timeout=60)))
    thread.start()
    servers.until(lambda: b"blocked_clients:1" in server.ask("INFO", "clients"), "it does not block")
    with within(30):
        client.command("RPUSH", "list", "a")
        thread.join()
    assert got == [[b"list", b"a"]]


@pytest.mark.parametrize("how", ["kill", "close"])
def test_blocking_ends_with_the_server_and_with_the_client(how: str, open_client: Opener) -> None:
    with servers.single() as server:
        client = open_client(server.url())
        raised: list[BaseException] = []

        def block() -> None:
            try:
                client.block("BLPOP", "list", 60, timeout=60)
            except PostroomError as error:
                raised.append(error)

        thread = threading.Thread(target=block)
        thread.start()
        servers.until(lambda: b"blocked_clients:1" in server.ask("INFO", "clients"), "it does not block")
        with within(30):
            (server.kill if how == "kill" else client.close)()
            thread.join()
    assert [type(error) for error in raised] == [EngineUnavailable if how == "kill" else Closed]


def test_blocking_on_a_silent_server_ends_a_little_later(open_client: Opener) -> None:
    with servers.single() as server:
        client = open_client(server.url())
        client.block("BLPOP", "list", 0.01, timeout=0.01)
        server.freeze()
        with within(30), pytest.raises(EngineUnavailable):
            client.block("BLPOP", "list", 0.2, timeout=0.2)


# --- forks --------------------------------------------------------------------------------------


def test_a_child_has_connections_of_its_own(server: servers.Server, open_client: Opener) -> None:
    client = open_client(server.url())
    before = client.command("CLIENT", "ID")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, b"%d" % client.command("CLIENT", "ID"))
            client.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        in_child = int(pipe.read())
    assert in_child != before
    assert client.command("CLIENT", "ID") == before


# --- opening ------------------------------------------------------------------------------------


def opening(url: str) -> PostroomError:
    """The error that opening this URL ends with."""
    client = Client(urls.read(urlsplit(url)))
    try:
        with within(30), pytest.raises(PostroomError) as caught:
            client.check()
    finally:
        client.close()
    assert "secret" not in str(caught.value)
    return caught.value


def test_a_server_that_will_do(server: servers.Server, open_client: Opener) -> None:
    info = open_client(server.url()).check()
    assert info.version.startswith(("7.", "8."))
    assert (info.policy, info.cluster, info.role) == ("noeviction", False, "master")


def test_nobody_there() -> None:
    with servers.silent_port() as port:
        error = opening(f"redis://:secret@127.0.0.1:{port}/0")
    assert type(error) is EngineUnavailable
    assert "refused" in str(error)


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the resolver says it; to ask one takes a network, or its timeouts."""

    def unknown(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert type(opening("redis://nowhere.invalid")) is EngineUnavailable


def test_somebody_who_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        began = time.monotonic()
        error = opening(f"redis://127.0.0.1:{port}?socket_connect_timeout=300ms&socket_timeout=50s")
    assert type(error) is EngineUnavailable
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("again", "tries"), [("no", 1), ("yes", 2)])
def test_connecting_is_tried_once_more_if_wanted(again: str, tries: int, open_client: Opener) -> None:
    """`retry_on_timeout`: whoever is connecting has sent nothing that could be done twice."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = open_client(
            f"redis://127.0.0.1:{port}?socket_connect_timeout=300ms&retry_on_timeout={again}"
        )
        with within(30), pytest.raises(EngineUnavailable):
            client.command("PING")
        listener.setblocking(False)
        found = 0
        with suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
                found += 1
    assert found == tries


def test_a_wrong_password_or_none() -> None:
    with servers.single(password="secret") as server:
        for url in (f"redis://127.0.0.1:{server.port}", f"redis://:secretx@127.0.0.1:{server.port}"):
            error = opening(url)
            assert type(error) is ConfigError
            assert "password" in str(error)


def test_no_such_database(server: servers.Server) -> None:
    error = opening(server.url(path="/999"))
    assert type(error) is ConfigError
    assert "database" in str(error)


def test_tls_and_no_tls_confused(server: servers.Server) -> None:
    error = opening(server.url(scheme="rediss"))
    assert type(error) is ConfigError
    assert "use redis://" in str(error)
    with servers.single(tls=True) as secured:
        error = opening(f"redis://127.0.0.1:{secured.port}")
        assert type(error) is ConfigError
        assert "use rediss://" in str(error)
        error = opening(f"rediss://127.0.0.1:{secured.port}")
        assert type(error) is ConfigError
        assert "ssl_ca_certs" in str(error)


def test_eviction_is_refused_or_warned_of(
    open_client: Opener, caplog: pytest.LogCaptureFixture, server: servers.Server
) -> None:
    with servers.single({"maxmemory-policy": "allkeys-lru"}) as evicting:
        error = opening(evicting.url())
        assert type(error) is ConfigError
        assert "CONFIG SET maxmemory-policy noeviction" in str(error)
        evicting.ask("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
        with caplog.at_level(logging.WARNING):
            open_client(evicting.url()).check()
            open_client(server.url()).check()
        assert [record.name for record in caplog.records] == ["postroom.redis"]


def test_a_replica_is_not_taken(server: servers.Server) -> None:
    with servers.single({"replicaof": f"127.0.0.1 {server.port}"}) as replica:
        error = opening(replica.url())
    assert type(error) is EngineUnavailable
    assert "replica" in str(error)
