"""The short way of a single put keeps exactly what the long way keeps, also for whatever is rare."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from postroom.engine import ClaimRequest
from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.engine import RedisEngine
from postroom.engines.redis.names import Names
from postroom.ids import new_id
from postroom.model import NewMessage, Put, Settlement
from postroom.policy import Policy
from postroom.testing import ManualClock
from tests.redis import servers

SHORT, LONG = "short", "long"
_LEASE = 30_000


class LongWay(RedisEngine):
    def _put_one(self, queue: str, message: NewMessage) -> None:
        return None


class Both:
    """Two queues on one server, by one clock: each put goes one way into one, the other into the other."""

    def __init__(self, server: servers.Server) -> None:
        self.clock = ManualClock()
        self._server = server
        self.engines = {SHORT: self._engine(RedisEngine), LONG: self._engine(LongWay)}

    def _engine(self, kind: type[RedisEngine], ahead: str = "0ms") -> RedisEngine:
        clock = ManualClock(self.clock()) if ahead != "0ms" else self.clock
        clock.advance(ahead)
        return kind(Client(urls.read(urlsplit(self._server.url(**servers.PATIENT)))), "test", clock)

    def declare(self, policy: Policy, ahead: str = "0ms") -> None:
        """By somebody whose clock is so far ahead."""
        with contextlib.closing(self._engine(RedisEngine, ahead)) as engine:
            for queue in self.engines:
                engine.declare(queue, policy)

    def put(self, **fields: Any) -> Put:
        """What both answer; they must agree, on that and on what is kept."""
        message = NewMessage(**{"id": new_id(), "body": b"x" * 20, **fields})
        short, long = (engine.put(queue, [message]) for queue, engine in self.engines.items())
        assert short == long
        assert self.kept(SHORT) == self.kept(LONG)
        return short.puts[0]

    def kept(self, queue: str) -> dict[str, Any]:
        """Everything of a queue, by the last part of its key."""
        head = f"test:{{{queue}}}:"
        keys = [key.decode() for key in self._server.ask("KEYS", f"{head}*")]
        return {key.removeprefix(head): self._value(key) for key in keys}

    def _value(self, key: str) -> Any:
        match self._server.ask("TYPE", key):
            case b"hash":
                flat = self._server.ask("HGETALL", key)
                return dict(zip(flat[::2], flat[1::2], strict=True))
            case b"zset":
                return self._server.ask("ZRANGE", key, 0, -1, "WITHSCORES")
            case b"list":
                return self._server.ask("LRANGE", key, 0, -1)
            case kind:
                return kind


@pytest.fixture
def both(server: servers.Server) -> Iterator[Both]:
    both = Both(server)
    yield both
    for engine in both.engines.values():
        engine.close()


def test_it_is_taken_by_what_is_due_now_and_never_expires(both: Both, server: servers.Server) -> None:
    both.declare(Policy())
    both.put()
    server.ask("CONFIG", "RESETSTAT")
    both.put()
    both.put(kind="mail", correlation_id="task-1", headers={"a": "b"}, content_type="text/plain", priority=7)
    both.put(ack_timeout=1_000, max_attempts=3, remember=5_000)
    # The short way asks with HSETNX, and nothing else does.
    assert b"cmdstat_hsetnx:calls=3," in server.ask("INFO", "commandstats")
    for rare in ({"delay": 1_000}, {"due": 1}, {"ttl": 1_000}, {"unique_key": "one"}):
        both.put(**rare)
    assert b"cmdstat_hsetnx:calls=3," in server.ask("INFO", "commandstats")


def test_order_size_and_count(both: Both) -> None:
    both.declare(Policy())
    for number in range(130):  # past the puts at which ids are forgotten
        both.put(priority=number % 256, body=b"x" * (number * 7 % 50))
        both.clock.advance(f"{number % 3}ms")


def test_whoever_waits_elsewhere_is_rung_once(both: Both) -> None:
    both.declare(Policy())
    both.put()  # the first of a queue always goes the long way
    for queue, engine in both.engines.items():
        (leased,) = engine.claim(queue, ClaimRequest(n=10)).deliveries
        engine.settle(queue, [Settlement(leased.receipt)])
    assert "wake" not in both.kept(SHORT)
    both.put()
    assert both.kept(SHORT)["wake"] == [b"w"]
    both.put()


@pytest.mark.parametrize("silence", [1, _LEASE // 16, _LEASE // 2, _LEASE // 2 + 1, 10 * _LEASE])
def test_after_a_silence(both: Both, silence: int) -> None:
    both.declare(Policy(lease=_LEASE / 1_000))
    both.put()
    both.clock.advance(f"{silence}ms")
    both.put()


@pytest.mark.parametrize("ahead", ["1ms", "30s", "90s"])
def test_a_clock_that_is_behind(both: Both, ahead: str) -> None:
    both.declare(Policy(), ahead)
    both.put()
    both.put()


def test_the_same_id_again(both: Both) -> None:
    both.declare(Policy(dedupe_window="1h", keep_done="1m"))
    id = both.put().id
    assert not both.put(id=id).created


def test_a_queue_that_nobody_made(both: Both) -> None:
    assert both.put().created


def test_the_keys_are_made_again_when_another_thread_has_cleared_them() -> None:
    names = Names("p")
    names.queue("q")
    names._put_one.clear()  # as another thread does that finds too many names
    assert set(names.put_one("q")) < set(names.queue("q"))
