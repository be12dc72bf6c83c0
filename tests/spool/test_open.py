"""`postroom.open(..., spool=...)`: a room that can be used before Redis is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import postroom
from postroom.errors import ConfigError
from tests.door.staging import eventually
from tests.redis import servers


def test_a_room_without_its_redis_keeps_what_is_put(tmp_path: Path) -> None:
    with servers.silent_port() as port:
        url, spool = f"redis://127.0.0.1:{port}/0", f"sqlite:///{tmp_path / 'spool.db'}"
        with postroom.open(url, spool=spool) as room:
            room.queue("emails").put("a")
            stats = room.stats()
            assert (stats.redis_active, stats.depth, stats.health.ok) == (False, 1, True)
        with postroom.open(url, spool=spool) as room:
            delivery = room.queue("emails").claim(timeout=30)
            assert delivery and delivery.body == "a"


def test_what_was_put_meanwhile_moves_over(tmp_path: Path) -> None:
    with servers.single() as server:
        server.kill()
        with postroom.open(server.url(), spool=f"sqlite:///{tmp_path / 'spool.db'}") as room:
            room.queue("emails").put_many(["a", "b"])
            server.restart()
            eventually(lambda: room.stats().redis_active)
            with postroom.open(server.url()) as other:
                eventually(lambda: other.queue("emails").stats().ready == 2)
            eventually(lambda: room.stats().spooled == 0)


def test_a_spool_must_outlive_its_process() -> None:
    with pytest.raises(ConfigError, match="spool"):
        postroom.open("redis://127.0.0.1:1/0", spool="memory://")
