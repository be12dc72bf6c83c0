"""Every outage of a real Redis through the Python door, with every default."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import postroom
from postroom.room import Room
from tests.redis import servers
from tests.redis.servers import Server
from tests.redis.test_faults import ALWAYS
from tests.spool.stage import eventually
from tests.telemetry.test_metrics import scrape

#: A put takes no longer than `health_check_timeout` (2 s) and what a busy machine adds to it.
BOUND = 2.0 + 28.0


class Outage(NamedTuple):
    begin: Callable[[Server], None]
    end: Callable[[Server], None]
    at_start: bool = False
    forgets: bool = False


OUTAGES = {
    "killed, back from its file": Outage(Server.kill, Server.restart),
    "killed, back empty": Outage(Server.kill, partial(Server.restart, empty=True), forgets=True),
    "frozen with its socket open": Outage(Server.freeze, Server.thaw),
    "not there at the start": Outage(Server.kill, Server.restart, at_start=True),
}


class Story:
    """A room with a spool: what was accepted and what was worked on, before, in and after an outage."""

    def __init__(self, room: Room, server: Server) -> None:
        self.room = room
        self.queue = room.queue("q")
        self._server = server
        self.accepted: set[str] = set()
        self.done: set[object] = set()

    def put(self, body: str) -> None:
        began = time.monotonic()
        self.queue.put(body)
        assert time.monotonic() - began < BOUND
        self.accepted.add(body)

    def live_through(self, outage: Outage) -> None:
        if not outage.at_start:
            outage.begin(self._server)
        self.put("the first without an answer, or not even sent")
        eventually(lambda: not self.room.stats().redis_active, "nobody noticed")
        assert scrape(self.room)["postroom_redis_active",] == 0
        self.put("another")
        with postroom.Worker(self.room, {"q": self._work}):
            self.put("work for here")
            eventually(lambda: "work for here" in self.done, "local workers do not go on")
        self.put("to be moved")
        outage.end(self._server)
        eventually(self._is_back, "it does not return by itself")
        assert scrape(self.room)["postroom_redis_active",] == 1

    def _work(self, delivery: postroom.Delivery) -> None:
        self.done.add(delivery.body)

    def _is_back(self) -> bool:
        stats = self.room.stats()
        return bool(stats.redis_active) and stats.spooled == 0

    def work_all_off(self) -> None:
        with postroom.Worker(self.room, {"q": self._work}):
            eventually(lambda: self.accepted <= self.done, lambda: self.accepted - self.done)


def has_in_order(found: list[object], wanted: list[object]) -> bool:
    rest = iter(found)
    return all(each in rest for each in wanted)


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
def test_puts_go_on_and_everybody_is_told(
    outage: Outage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a machine that is far too busy a Redis may be taken for away more often: so in order, not alone."""
    caplog.set_level(logging.WARNING)
    with servers.single(ALWAYS) as server:
        if outage.at_start:
            outage.begin(server)
        with postroom.open(server.url(), spool=f"sqlite:///{tmp_path / 'spool.db'}") as room:
            story = Story(room, server)
            story.put("before")
            if outage.forgets:
                story.accepted.clear()
            story.live_through(outage)
            story.work_all_off()
            told = [
                json.loads(entry.data)["redis_active"]
                for entry in room.engine.read("spool", after="").entries
            ]
        assert has_in_order(told, [False, True])
    lines = [record.__dict__.get("event") for record in caplog.records]
    assert has_in_order(lines, ["spool.away", "spool.back"])
