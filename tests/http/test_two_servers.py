"""Two servers on one Redis are one: each tells what happens at the other, once, and the keeper survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

import postroom
from postroom.keeper import LOCK_KEY, LOCK_KIND
from postroom.room import Room
from tests.http.servers import PATIENCE, Served, serving
from tests.http.test_stream import Seen, events_of, is_pause_of, until
from tests.redis import servers

#: A keeper that is silent for so long loses its lead (ms).
TTL = 15_000
NAMES = ("requeue", "move_to_dlq")
CONFIG = f'keeper_ttl = "{TTL}ms"\nsweep_interval = "1s"\n'


@pytest.fixture
def url() -> Iterator[str]:
    with servers.single() as redis:
        yield redis.url()


@pytest.fixture
def room(url: str) -> Iterator[Room]:
    with postroom.open(url) as room:
        yield room


def leader(room: Room) -> bytes:
    """The token of the keeper that leads; empty while nobody does."""
    record = room.engine.records.get(LOCK_KIND, LOCK_KEY)
    return record.value[:16] if record else b""


class Front:
    """What a client does at one of the servers."""

    def __init__(self, stack: ExitStack, served: Served) -> None:
        self.served = served
        self.http = stack.enter_context(httpx.Client(base_url=served.api, timeout=PATIENCE))
        self.events: Iterator[Seen] = iter(())

    def listen(self, stack: ExitStack, **headers: str) -> None:
        events = events_of(self.served.api, self.http, **headers)
        self.events = stack.enter_context(closing(events))  # type: ignore[type-var]  # it is a generator
        until(self.events, lambda seen: seen.name == "hello")

    def abandon(self, queue: str) -> None:
        """Put a message, claim it and never come back."""
        put = self.http.post(f"/queues/{queue}/messages", json={"body": 1})
        assert put.status_code == 201, put.text
        assert len(self.http.post(f"/queues/{queue}/claim", json={"wait": 30}).json()["deliveries"]) == 1

    def pause(self, queue: str) -> None:
        self.http.put(f"/queues/{queue}", json={}).raise_for_status()
        self.http.post(f"/queues/{queue}/pause").raise_for_status()

    def told(self, count: int) -> list[Seen]:
        """Everything until so many reclaims and deaths were told."""
        seen = list[Seen]()
        while len(overdue(seen)) < count:
            seen += until(self.events, lambda each: each.name in NAMES)
        return seen


def overdue(seen: list[Seen]) -> list[tuple[str, dict[str, object]]]:
    """What spec 3 says of each reclaim, without its moment."""
    found = [each for each in seen if each.name in NAMES]
    assert all(each.data.keys() == {"type", "timestamp", "payload"} for each in found)
    assert all(each.data["type"] == each.name and each.data["timestamp"] > 1e12 for each in found)
    return [(each.name, each.data["payload"]) for each in found]


def requeued(count: int, dead: int) -> tuple[str, dict[str, object]]:
    return "requeue", {"count": count, "dlq_count": dead, "triggered_by": "scheduler"}


def nobody_works_on(room: Room, queue: str) -> Callable[[], bool]:
    return lambda: not room.queue(queue).find("processing").entries


def test_each_tells_what_happens_at_the_other_and_the_keeper_moves(
    url: str, room: Room, tmp_path: Path
) -> None:
    (tmp_path / "postroom.toml").write_text(CONFIG)
    with ExitStack() as stack:
        first = Front(stack, stack.enter_context(serving(url, tmp_path)))
        servers.until(lambda: leader(room) != b"", "nobody leads")
        led = leader(room)
        second = Front(stack, stack.enter_context(serving(url, tmp_path)))
        for front in (first, second):
            front.listen(stack)

        policy = {"lease": "1s", "ack_timeout": "1s", "max_attempts": 9}
        assert second.http.put("/queues/emails", json=policy).status_code == 200
        assert first.http.put("/queues/once", json={**policy, "max_attempts": 1}).status_code == 200
        second.abandon("emails")
        first.abandon("once")
        servers.until(nobody_works_on(room, "emails"), "it is not reclaimed")
        servers.until(nobody_works_on(room, "once"), "it does not die")
        expected = [requeued(1, 0), requeued(0, 1), ("move_to_dlq", {"count": 1})]
        told = {front: front.told(len(expected)) for front in (first, second)}
        first.pause("marker")  # and nothing is told again before that
        last = ""
        for front, before in told.items():
            seen = before + until(front.events, is_pause_of("marker"))
            assert sorted(map(str, overdue(seen))) == sorted(map(str, expected))
            last = last or seen[-1].id

        assert leader(room) == led
        record = room.engine.records.get(LOCK_KIND, LOCK_KEY)
        assert record is not None and (record.expires or 0) <= room.engine.now() + TTL
        first.served.kill()  # -9: it gives nothing back
        servers.until(lambda: leader(room) not in (b"", led), "the keeper does not move")

        # Who listened at the dead one goes on at the other; and the new keeper does its work.
        moved = Front(stack, second.served)
        moved.listen(stack, **{"last-event-id": last})
        second.abandon("emails")
        servers.until(nobody_works_on(room, "emails"), "the new keeper reclaims nothing")
        heard, again = second.told(1), moved.told(1)
        second.pause("end")
        heard += until(second.events, is_pause_of("end"))
        again += until(moved.events, is_pause_of("end"))
        assert overdue(heard) == [requeued(1, 0)]
        assert "reset" not in [each.name for each in heard + again]
        assert requeued(1, 0) in overdue(again)
        # A server that has not sent the last id itself begins a little before it: lines are known by id.
        lines = [(each.data["queue"], each.data["id"]) for each in again if each.name == "lifecycle"]
        assert len(set(lines)) == len(lines)
