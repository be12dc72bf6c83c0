"""What every request passes, and every response carries."""

from __future__ import annotations

import pytest

from postroom.addresses import is_loopback
from postroom.engines.memory import MemoryEngine
from postroom.http.auth import Access
from postroom.http.guardrails import CSP, Hosts, Pace, client_of, host_of, is_foreign
from postroom.policy import Rate
from tests.http import tiny

OPEN = Access(required=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "", "127.0.0.1.nip.io"]
)
def test_everything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "localhost:8025",
        "127.0.0.1:1",
        "[::1]:8025",
        "192.168.1.4",
        "jobs.example",
        "Jobs.Example.:80",
    ],
)
def test_our_own_names_and_addresses_are_answered(header: str) -> None:
    assert Hosts(["jobs.example"]).allow(header)


@pytest.mark.parametrize(
    "header",
    ["evil.example", "evil.example:8025", "", "localhost.evil.example", "127.0.0.1.nip.io", "localhost:x",
     "evil.example@localhost", "localhost/evil.example", "[::1", "localhost#", "localhost:999999"],
)  # fmt: skip
def test_a_rebound_name_is_not(header: str) -> None:
    assert not Hosts(["jobs.example"]).allow(header)


def test_a_star_allows_every_name_but_no_nonsense() -> None:
    assert Hosts(["*"]).allow("evil.example")
    assert not Hosts(["*"]).allow("")
    assert host_of("a b") is None or not Hosts().allow("a b")


HOST = {b"host": b"localhost:8025"}


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("GET", {b"sec-fetch-site": b"cross-site"}, False),
        ("GET", {b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, False),
        ("GET", {b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"no-cors"}, True),
        ("GET", {b"sec-fetch-site": b"same-site", b"sec-fetch-mode": b"cors"}, True),
        ("OPTIONS", {b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"cors"}, True),
        ("GET", {b"sec-fetch-site": b"same-origin", b"sec-fetch-mode": b"cors"}, False),
        ("GET", {b"sec-fetch-site": b"none", b"sec-fetch-mode": b"no-cors"}, False),
        ("POST", {b"sec-fetch-site": b"cross-site"}, True),
        ("POST", {b"sec-fetch-site": b"same-site"}, True),
        ("DELETE", {b"sec-fetch-site": b"cross-site"}, True),
        ("POST", {b"sec-fetch-site": b"same-origin"}, False),
        ("POST", {b"sec-fetch-site": b"none"}, False),
        ("POST", {}, False),
        ("POST", {b"origin": b"http://localhost:8025"}, False),
        ("POST", {b"origin": b"http://localhost:9999"}, True),
        ("POST", {b"origin": b"https://evil.example"}, True),
        ("POST", {b"origin": b"null"}, True),
        ("POST", {b"sec-fetch-site": b"cross-site", b"authorization": b"Bearer x"}, False),
        ("POST", {b"sec-fetch-site": b"cross-site", b"authorization": b"Basic x"}, True),
        ("POST", {b"sec-fetch-site": b"cross-site", b"cookie": b"postroom_session=x"}, True),
    ],
)
def test_only_a_page_of_ours_may_change_something(
    method: str, headers: dict[bytes, bytes], foreign: bool
) -> None:
    assert is_foreign(method, HOST | headers) is foreign


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_client_has_its_burst_and_then_its_pace() -> None:
    clock = Clock()
    pace = Pace(Rate.parse("10/s"), 3, clock=clock)
    assert [pace.take("a") for _ in range(4)] == [0, 0, 0, 100]
    assert pace.take("b") == 0
    clock.now += 0.1
    assert [pace.take("a") for _ in range(2)] == [0, 100]


def test_the_table_of_clients_is_bounded_and_keeps_who_asks() -> None:
    pace = Pace(Rate.parse("1/h"), 1, clients=10, clock=Clock())
    pace.take("busy")
    for n in range(1_000):
        pace.take(f"client {n}")
        assert pace.take("busy") > 0
    assert len(pace) == 10


def test_a_customer_of_ipv6_is_one_client() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:2") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:10.0.0.1") == client_of("10.0.0.1") != client_of("10.0.0.2")


def test_every_response_carries_the_security_headers() -> None:
    with tiny.client(MemoryEngine(), OPEN) as client:
        for path in ("/healthz", "/nothing-here", "/forgotten"):
            headers = client.get(path).headers
            assert headers["content-security-policy"] == CSP
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "strict-transport-security" not in headers
    assert "http:" not in CSP
    assert "unsafe" not in CSP


def test_over_tls_browsers_are_told_to_stay() -> None:
    with tiny.client(MemoryEngine(), OPEN, base="https://testserver.local") as client:
        assert client.get("/healthz").headers["strict-transport-security"] == "max-age=31536000"


def test_a_wrong_host_reaches_nothing() -> None:
    with tiny.client(MemoryEngine(), OPEN, base="http://evil.example") as client:
        answer = client.post("/purge")
        assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["content-security-policy"] == CSP


def test_a_foreign_page_changes_nothing() -> None:
    with tiny.client(MemoryEngine(), OPEN) as client:
        refused = client.post("/purge", headers={"sec-fetch-site": "cross-site"})
        assert (refused.status_code, refused.json()["code"]) == (403, "foreign_origin")
        assert client.post("/purge", headers={"sec-fetch-site": "same-origin"}).status_code == 201


def test_who_asks_too_fast_is_told_when_to_come_back() -> None:
    pace = Pace(Rate.parse("1/m"), 2, clock=Clock())
    with tiny.client(MemoryEngine(), OPEN, pace=pace) as client:
        answers = [client.get("/healthz") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "60"
    assert answers[2].json()["code"] == "rate_limited"
