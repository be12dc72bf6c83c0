"""`postroom.http.app(room)` as it is, without tokens: for an application that decides itself who comes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

import postroom
from postroom.http import app
from postroom.room import Room
from tests.http.servers import PATIENCE, served_here
from tests.http.test_secured import inside, routes


@pytest.fixture
def room() -> Iterator[Room]:
    with postroom.open("memory://") as room:
        yield room


@pytest.fixture
def plain(room: Room) -> Any:
    return app(room, keeper=False)


def test_no_route_needs_what_only_a_server_has(plain: Any) -> None:
    with served_here(plain) as address, httpx.Client(base_url=address, timeout=PATIENCE) as http:
        for method, path, action in routes(inside(plain)):
            if action != "event.stream":
                answer = http.request(method, path.replace("{", "").replace("}", ""))
                assert answer.status_code not in (401, 403) and answer.status_code < 500, (method, path)
        assert "postroom_sse_clients 0.0" in http.get("/metrics").text


def test_events_are_told_and_end_with_the_server(plain: Any) -> None:
    with ExitStack() as listening:
        with served_here(plain) as address:
            stream = httpx.stream("GET", f"{address}/api/v1/events", timeout=PATIENCE)
            lines = listening.enter_context(stream).iter_lines()
            assert "event: hello" in (next(lines), next(lines))
            httpx.put(f"{address}/api/v1/queues/emails", json={}, timeout=PATIENCE).raise_for_status()
            httpx.post(f"{address}/api/v1/queues/emails/pause", timeout=PATIENCE).raise_for_status()
            assert next(line for line in lines if '"event":"pause"' in line)
        assert "event: bye" in list(lines)
