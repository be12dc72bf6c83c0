"""Connections that are open and carry nothing: whoever waits or calls notices, and goes on over new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

import pytest

import postroom
from postroom.delivery import Delivery
from postroom.engine import ClaimRequest
from postroom.engines.redis import urls, waiting
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.engines.redis.pool import Link
from postroom.engines.redis.routes import SingleRoute
from postroom.errors import EngineUnavailable
from postroom.model import NewMessage, Settlement
from tests.redis import servers
from tests.redis.proxy import Proxy, proxied
from tests.redis.test_waiting import listening
from tests.spool.stage import PATIENCE, eventually

#: How long a command blocks here (seconds); elsewhere it is ten.
BLOCK = 1.0


@pytest.fixture
def proxy(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(waiting, "_BLOCK", BLOCK)
    with proxied(server.port) as proxy:
        yield proxy


def url_of(proxy: Proxy, timeout: str = "500ms") -> str:
    return f"redis://127.0.0.1:{proxy.port}/0?socket_timeout={timeout}&socket_connect_timeout=30s"


def test_who_waits_notices_and_hears_again(server: servers.Server, proxy: Proxy) -> None:
    """Only the thread that waits can: nothing else is asked meanwhile."""
    engine = RedisEngine(Client(urls.read(urlsplit(url_of(proxy)))))
    producer = RedisEngine(Client(urls.read(urlsplit(server.url()))))
    try:
        with engine.waiter(["q"], ["news"]) as waiter:
            waiter.arm()
            listening(server, "blpop")
            listening(server, "xread")
            before = proxy.count
            proxy.stall()
            began = time.monotonic()
            # The server still has the old connection, so its ring goes nowhere; who hears again looks.
            producer.put("q", [NewMessage()])
            producer.publish("news", [b"!"])
            heard: frozenset[str] = frozenset()
            while heard != {"q", "news"}:
                assert time.monotonic() < began + PATIENCE, f"heard {set(heard)}"
                heard |= waiter.wait(1.0)
            assert proxy.count > before, "it was told over a connection that carries nothing"
            # And over the new connections it hears as before.
            waiter.clear()
            (delivery,) = producer.claim("q", ClaimRequest()).deliveries
            producer.settle("q", [Settlement(delivery.receipt)])
            producer.put("q", [NewMessage()])
            eventually(lambda: "q" in waiter.wait(0.5))
    finally:
        engine.close()
        producer.close()


def test_what_rang_meanwhile_is_looked_for_before_the_next_wait(
    server: servers.Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring went into the old connection, so to wait for another would be to wait for nothing."""
    events: list[tuple[str, int]] = []
    recover, hear = waiting.QueueListener.recover, waiting.QueueListener.hear

    def recovered(listener: waiting.QueueListener, bells: frozenset[str]) -> None:
        events.append(("recovered", proxy.count))
        recover(listener, bells)

    def heard(listener: waiting.QueueListener, bells: frozenset[str]) -> None:
        hear(listener, bells)
        events.append(("heard", proxy.count))

    def events_after(connections: int) -> list[str]:
        """Without what was heard just before, over a connection that still carried it."""
        return [event for event, count in events if count > connections]

    engine = RedisEngine(Client(urls.read(urlsplit(url_of(proxy)))))
    try:
        with engine.waiter(["q"]) as waiter:
            waiter.arm()
            listening(server, "blpop")
            monkeypatch.setattr(waiting.QueueListener, "recover", recovered)
            monkeypatch.setattr(waiting.QueueListener, "hear", heard)
            before = proxy.count
            proxy.stall()
            assert waiter.wait(PATIENCE) == {"q"}
            eventually(lambda: events_after(before))
    finally:
        engine.close()
    assert events_after(before)[0] == "recovered", events


def test_of_many_connections_the_first_that_carries_nothing_speaks_for_all(proxy: Proxy) -> None:
    """Else each of them would cost a call its timeout."""
    # What comes over a new connection has so long on a busy machine.
    client = Client(urls.read(urlsplit(url_of(proxy, "5s"))))
    pool = client._route._server._calls  # type: ignore[attr-defined]  # as so many threads would use it
    try:
        for link in [pool.take() for _ in range(5)]:
            pool.give_back(link)
        servers.until(lambda: proxy.count == 5, "they are not open")
        proxy.stall()
        with pytest.raises(EngineUnavailable, match="no answer"):
            client.command("PING")
        assert client.command("PING") == b"PONG"
    finally:
        client.close()


def test_a_worker_works_again_and_nothing_is_lost(server: servers.Server, proxy: Proxy) -> None:
    """Both kinds of connection at once, several times, some with a call under way."""
    seen: list[int] = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)

    with postroom.open(url_of(proxy, "2s")) as room, postroom.open(server.url()) as producer:
        queue = producer.queue("q", postroom.Policy(lease="5s", max_attempts=20))
        with postroom.Worker(room, {"q": handle}, concurrency=2):
            for number in range(3):
                queue.put(number)
                eventually(partial(seen.__contains__, number))
                listening(server, "blpop")
                proxy.stall()
                queue.put_many(range(100 * (number + 1), 100 * (number + 1) + 50))
            eventually(lambda: len(set(seen)) == 153, "some were never worked on", timeout=120)
            eventually(lambda: queue.stats().counters["acked"] == 153)
        assert (queue.stats().depth, queue.stats().processing, queue.stats().dead) == (0, 0, 0)


def test_after_a_long_rest_a_call_waits_for_one_connection_only(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What comes over a new connection has so long on a busy machine.
    client = Client(urls.read(urlsplit(url_of(proxy, "5s"))))
    try:
        route = client._route
        assert isinstance(route, SingleRoute)
        pool = route._server._calls
        links = [pool.take() for _ in range(8)]
        for link in links:
            pool.give_back(link)
            link.used_at -= 3_600
        proxy.stall()
        sent, ask = list[bytes](), Link.ask

        def noted(link: Link, packed: bytes, *, answers: int = 1) -> object:
            sent.append(packed)
            return ask(link, packed, answers=answers)

        monkeypatch.setattr(Link, "ask", noted)
        assert client.command("ECHO", "x") == b"x"
        assert len(sent) == 2, "a health check that fails, and the call"
    finally:
        client.close()
