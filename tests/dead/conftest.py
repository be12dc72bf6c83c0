"""Rooms on every engine, by the wall clock, with dead letters in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom import config
from postroom.deadletters import DeadLetters
from postroom.ids import new_id
from postroom.policy import Policy
from postroom.room import Room
from tests.dead.letters import FAST, HEAVY
from tests.redis import servers


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.single() as server:
        yield server.url()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return f"{request.getfixturevalue('redis_url')}?prefix={new_id()}"
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def room(url: str) -> Iterator[Room]:
    """Three queues: two of them name dlq_fast, one dlq_heavy."""
    with postroom.open(url, config=config.load("/dev/null", environ={}, url=url)) as room:
        for name in FAST:
            room.queue(name, Policy(dead_letter="dlq_fast", max_attempts=1))
        for name in HEAVY:
            room.queue(name, Policy(dead_letter="dlq_heavy", max_attempts=1))
        yield room


@pytest.fixture
def dead(room: Room) -> DeadLetters:
    return DeadLetters(room)
