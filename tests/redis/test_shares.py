"""A worker that has no room for more of a queue leaves its rings to others, also over Redis."""

from __future__ import annotations

import postroom
from tests.door.shares import check_that_rings_go_to_who_has_room
from tests.redis import servers


def test_a_ring_that_one_worker_cannot_use_reaches_another(server: servers.Server) -> None:
    with postroom.open(server.url()) as first, postroom.open(server.url()) as second:
        check_that_rings_go_to_who_has_room(first, second)
