"""Difficult clients: slow ones, rude ones, those that ask too much; and a line that nobody can read."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import postroom
from postroom.http import connections
from postroom.http import server as server_module
from postroom.http.auth import Access
from postroom.http.connections import LONGEST_HEAD
from postroom.http.security import secured
from tests.http.servers import PATIENCE, Served, served_here, serving
from tests.redis.servers import certificate

#: More than the server has threads.
CROWD = 40


@contextlib.contextmanager
def connected(served: Served, count: int = 1) -> Iterator[list[socket.socket]]:
    host, port = served.address.partition("://")[2].split(":")
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
            for _ in range(count)
        ]


def asking(method: str, path: str, body: bytes = b"", said: int | None = None) -> bytes:
    length = len(body) if said is None else said
    head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def status_of(line: socket.socket) -> int:
    return int(line.makefile("rb").readline().split()[1])


def test_who_sends_a_byte_at_a_time_is_served_and_holds_nobody_up(server: Served, http: httpx.Client) -> None:
    whole = asking("POST", "/queues/slow/messages", b'{"body": 1}')
    with connected(server, CROWD) as lines:
        for line in lines:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in whole[:-1]:
            for line in lines:
                line.send(bytes([byte]))
        assert http.get("/queues/slow/stats").json()["ready"] == 0
        for line in lines:
            line.send(whole[-1:])
        assert {status_of(line) for line in lines} == {201}
    assert http.get("/queues/slow/stats").json()["ready"] == CROWD


def test_who_never_reads_the_answer_holds_nobody_up(own_server: Served) -> None:
    with httpx.Client(base_url=own_server.api, timeout=PATIENCE) as http:
        bodies = {"messages": [{"body": "x" * 50_000} for _ in range(200)]}
        assert http.post("/queues/big/messages/batch", json=bodies).status_code == 201
        with connected(own_server, CROWD) as lines:  # 10 MB for each of them
            for line in lines:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                line.sendall(asking("GET", "/queues/big/messages?limit=1000"))
            assert http.post("/queues/small/messages", json={"body": 1}).status_code == 201
            (delivery,) = http.post("/queues/small/claim", json={"wait": 30}).json()["deliveries"]
            assert http.post(f"/deliveries/{delivery['receipt']}/ack").status_code == 204
            assert own_server.terminate() == 0, "who does not read does not keep it from ending"


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"POST /api/v1/queues/q/mess",
        b"POST /api/v1/queues/q/messages HTTP/1.1\r\nHost: local",
        asking("POST", "/queues/q/messages", b'{"bo', said=1_000),
        asking("POST", "/queues/q/claim", b"{", said=10),
        asking("POST", "/dead/import", b'{"postroom": 1, ', said=1_000_000),
        asking("GET", "/queues") * 3,
    ],
    ids=["nothing", "half a line", "half a head", "half a put", "half a claim", "half a file", "no answer"],
)
def test_who_hangs_up_in_the_middle_leaves_nothing_behind(tmp_path: Path, half: bytes) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as http:
        for _ in range(3):
            with connected(served, CROWD) as lines:
                for line in lines:
                    line.sendall(half)
        assert http.get("/queues/q/stats").json()["ready"] == 0
        assert served.terminate() == 0
    assert not complaints(tmp_path)


def test_who_asks_for_much_at_once_and_hangs_up_is_no_failure(tmp_path: Path) -> None:
    """Of several requests of one connection, the server is told of the hang-up with the last one only."""
    with serving(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as served:
        for some in range(0, CROWD, 2):
            with connected(served, CROWD) as lines:
                for line in lines:
                    line.sendall(asking("GET", "/queues") * 3)
                select.select([lines[some]], [], [], PATIENCE)  # by then some have an answer, and others none
        assert served.terminate() == 0
    assert not complaints(tmp_path)


def complaints(folder: Path) -> str:
    """What a server has logged from its first failure on."""
    log = (folder / "serve.log").read_text()
    found = re.search("Traceback|request failed", log)
    return log[found.start() :][:5_000] if found else ""


def test_what_is_no_http_is_refused(server: Served, http: httpx.Client) -> None:
    with connected(server) as (line,):
        line.sendall(b"\x16\x03\x01\x00\xa5 this is no HTTP\r\n\r\n")
        assert status_of(line) == 400
    assert http.get("/queues").status_code == 200


def test_a_full_queue_and_a_fast_client_are_told_when_to_come_again(http: httpx.Client) -> None:
    http.put("/queues/small", json={"capacity": 2})
    statuses = [http.post("/queues/small/messages", json={"body": n}).status_code for n in range(3)]
    assert statuses == [201, 201, 429]
    full = http.post("/queues/small/messages/batch", json={"messages": [{"body": 1}]})
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (429, "queue_full", "1")
    http.put("/queues/rated", json={"put_rate": "2/h"})
    rated = [http.post("/queues/rated/messages?rate_key=ada", json={"body": n}) for n in range(3)]
    assert [answer.status_code for answer in rated] == [201, 201, 429]
    assert rated[-1].json()["code"] == "rate_limited"
    assert 1_000 < int(rated[-1].headers["retry-after"]) <= 3_600
    assert http.post("/queues/rated/messages?rate_key=bob", json={"body": 1}).status_code == 201


def test_over_tls(tmp_path: Path) -> None:
    cert = certificate(tmp_path)
    options = ("--tls-cert", str(cert), "--tls-key", str(cert.with_suffix(".key")))
    with serving(f"sqlite:///{tmp_path}/jobs.db", tmp_path, *options) as served:
        assert served.address.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=served.api, timeout=PATIENCE, verify=trusted) as http:
            assert http.post("/queues/q/messages", json={"body": 1}).status_code == 201
            assert http.get("/queues").headers["strict-transport-security"]
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            httpx.get(f"{served.api}/queues", timeout=PATIENCE)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{served.api}/queues".replace("https", "http"), timeout=PATIENCE)
        assert served.terminate() == 0


def test_a_certificate_that_is_none_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nonsense")
    command = [sys.executable, "-m", "postroom.cli", "serve", "--url", "memory://", "--port", "0"]
    ran = subprocess.run(
        [*command, "--tls-cert", "cert.pem"], cwd=tmp_path, check=False, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "certificate cannot be read" in ran.stderr and "Traceback" not in ran.stderr


CHUNKED = b"POST /api/v1/queues/q/claim HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 2**20,
    "headers": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-More: a\r\n" * 100_000,
    "a path": b"GET /" + b"a" * 2**20,
    "trailers": CHUNKED + b"0\r\n" + b"X-More: a\r\n" * 100_000,
    "an extension": CHUNKED + b"1;" + b"a" * 2**20,
}


@pytest.mark.parametrize("head", list(ENDLESS.values()), ids=list(ENDLESS))
def test_what_has_no_end_is_not_kept(server: Served, http: httpx.Client, head: bytes) -> None:
    """Nobody has shown a token yet: whoever can connect could fill the memory."""
    with connected(server) as (line,):
        with contextlib.suppress(ConnectionError):
            line.sendall(head)
        with contextlib.suppress(ConnectionError):  # it hung up while there was more to come
            assert b"200 OK" not in line.recv(65_536)
    assert http.get("/queues").status_code == 200


def test_a_long_head_that_ends_is_read(http: httpx.Client) -> None:
    assert http.get("/queues", headers={"x-long": "a" * 60_000}).status_code == 200


def test_a_head_without_an_end_is_a_problem_like_any_other(server: Served) -> None:
    with connected(server) as (line,):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * (LONGEST_HEAD + 1))
        head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ") and b"application/problem+json" in head
    assert json.loads(body)["code"] == "head_too_large"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server in a thread of ours that gives its clients less time."""
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    monkeypatch.setattr(server_module, "_TICKS", 1)
    with ExitStack() as stack:
        room = stack.enter_context(postroom.open("memory://"))
        app = secured(room, Access(required=False), keeper=False)
        address = stack.enter_context(served_here(app))
        yield Served(None, address)  # type: ignore[arg-type]  # it is no process


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        asking("POST", "/queues/q/messages", b'{"bo', said=9),
    ],
    ids=["nothing", "an empty line", "half a head", "half a body"],
)
def test_who_says_no_more_is_hung_up_on(impatient: Served, half: bytes) -> None:
    with connected(impatient) as (line,):
        line.sendall(half)
        assert b"200 OK" not in line.makefile("rb").read(), "it ends"


def test_who_only_waits_is_not(impatient: Served) -> None:
    """A claim waits for a message, and a listener for events, longer than a client has for its words."""
    with httpx.Client(base_url=impatient.api, timeout=PATIENCE) as http:
        with http.stream("GET", "/events") as listening:
            assert http.post("/queues/q/claim", json={"wait": "1s"}).json() == {"deliveries": []}
            assert next(listening.iter_lines())
        assert http.get("/queues").status_code == 200
