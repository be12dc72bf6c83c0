"""Fifty idle workers: what they ask of the server while there is nothing to do, and when there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import postroom
from postroom.engines.redis.client import Client
from tests.redis import servers
from tests.redis.test_waiting import listening
from tests.spool.stage import eventually

CROWD = 50
MESSAGES = 20
#: For this long they are watched (seconds).
WATCHED = 5.0


class Crowd:
    """Workers, each with a room of its own as if in a process of its own."""

    def __init__(self, stack: ExitStack, url: str, **settings: Any) -> None:
        self.seen: list[object] = []
        self.claims = 0
        self._lock = threading.Lock()
        for _ in range(CROWD):
            room = stack.enter_context(postroom.open(url, **settings))
            self._count_claims(room.engine)
            stack.enter_context(
                postroom.Worker(room, {"q": lambda delivery: self.seen.append(delivery.body)})
            )

    def _count_claims(self, engine: Any) -> None:
        turn = engine.turn

        def counted(queue: str, settlements: Any, starts: Any, request: Any) -> Any:
            with self._lock:
                self.claims += request is not None and request.n > 0
            return turn(queue, settlements, starts, request)

        engine.turn = counted


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_message_wakes_a_few_of_fifty(server: servers.Server, stack: ExitStack) -> None:
    """Nothing else is due meanwhile: whoever asks, asks because of a message."""
    quiet = {"poll_timeout": "1h", "sweep_interval": "1h", "keeper_ttl": "3h"}
    producer = stack.enter_context(postroom.open(server.url()))
    queue = producer.queue("q", postroom.Policy(lease="1h", ack_timeout="1h"))
    crowd = Crowd(stack, server.url(), **quiet)
    listening(server, "blpop", CROWD)
    before = crowd.claims
    for number in range(MESSAGES):
        queue.put(number)
        eventually(lambda: queue.stats().counters["acked"] > number)  # noqa: B023 - called before the next round
    claims = crowd.claims - before
    print(f"\n{claims / MESSAGES:.1f} claims a message, {CROWD} idle workers")
    assert sorted(map(int, map(str, crowd.seen))) == list(range(MESSAGES))
    assert claims <= 6 * MESSAGES


def test_an_idle_worker_costs_less_than_a_command_a_second(
    server: servers.Server, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every default, the keeper's work included."""
    calls: list[object] = []
    asked = Client._translated

    def counted(client: Client, ask: Any) -> Any:
        calls.append(client)
        return asked(client, ask)

    stack.enter_context(postroom.open(server.url())).queue("q", postroom.Policy())
    Crowd(stack, server.url())
    listening(server, "blpop", CROWD)
    monkeypatch.setattr(Client, "_translated", counted)

    def rate() -> float:
        calls.clear()
        began = time.monotonic()
        time.sleep(WATCHED)  # a rate needs a span; a slow machine makes it longer, and the rate smaller
        found = len(calls) / (time.monotonic() - began) / CROWD
        print(f"\n{found:.2f} commands a second and idle worker")
        return found

    # On a busy machine some of them are still beginning their work when all can be rung.
    eventually(lambda: rate() < 1, "they never rest")
