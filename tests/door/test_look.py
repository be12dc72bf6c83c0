"""Looking at a room: stats, health, pages, searches."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Policy
from postroom.errors import InvalidInput, NotFound
from postroom.ids import new_id
from postroom.model import Entry, State
from postroom.queue import Queue
from postroom.room import Room
from postroom.search import Found, locate, of_kind
from postroom.testing import ManualClock
from tests.door.staging import Wire, entries, let_pass, room_on, taken


@pytest.fixture
def queue(room: Room) -> Queue:
    return room.queue("q", Policy(jitter=False))


# ---- Stats ----------------------------------------------------------------------------------------


def test_a_queue_says_how_it_stands(room: Room, queue: Queue, clock: ManualClock) -> None:
    queue.put_many(range(6))
    queue.put("later", delay="1h")
    taken(queue).bury()
    hasty, patient = taken(queue), taken(queue)
    patient.extend("1h")
    clock.advance("40s")
    stats = queue.stats()
    assert (stats.queue, stats.ready, stats.scheduled, stats.depth) == ("q", 3, 1, 4)
    assert (stats.processing, stats.overdue, stats.dead) == (2, 1, 1)
    assert stats.oldest == 40_000
    assert not stats.paused
    assert (stats.counters["put"], stats.counters["claimed"]) == (7, 3)
    hasty.ack()
    assert queue.stats().overdue == 0


def test_the_oldest_is_the_age_of_what_waits_longest(queue: Queue, clock: ManualClock) -> None:
    assert queue.stats().oldest == 0
    queue.put("low", priority="low")
    clock.advance("10s")
    queue.put("high", priority="high")
    assert queue.stats().oldest == 10_000
    taken(queue).ack()
    taken(queue).ack()
    assert queue.stats().oldest == 0


def test_an_unknown_queue_is_all_zero_and_stays_unknown(room: Room) -> None:
    stats = room.queue("nobody").stats()
    assert (stats.depth, stats.processing, stats.dead) == (0, 0, 0)
    assert room.queues() == []


def test_a_room_says_how_it_stands(room: Room) -> None:
    room.queue("a").put_many(range(3))
    room.queue("b").put(1, delay="1h")
    stats = room.stats()
    assert [(each.queue, each.depth) for each in stats.queues] == [("a", 3), ("b", 1)]
    assert stats.depth == 4
    assert stats.shutdown is False
    assert stats.health.ok is True
    assert 0 <= stats.health.latency < 5_000
    assert stats.health.error == ""


def test_of_many_queues_the_first_by_name_are_told_and_how_many_more_there_are(room: Room) -> None:
    for name in "cab":
        room.queue(name).put(1)
    stats = room.stats(2)
    assert ([each.queue for each in stats.queues], stats.left_out) == (["a", "b"], 1)
    assert ([each.queue for each in room.stats().queues], room.stats().left_out) == (["a", "b", "c"], 0)


def test_a_shutdown_shows(room: Room) -> None:
    room.shutdown()
    assert room.stats().shutdown is True
    assert room.stats().health.ok is True


def test_an_engine_that_fails_is_not_healthy(wire: Wire) -> None:
    room = room_on(wire)
    room.queue("a").put(1)
    wire.fail(1, "stats")
    stats = room.stats()
    assert (stats.health.ok, stats.queues) == (False, [])
    assert "stats failed" in stats.health.error
    assert room.stats().health.ok


def test_a_closed_room_is_not_healthy(room: Room) -> None:
    room.close()
    stats = room.stats()
    assert (stats.health.ok, stats.shutdown) == (False, True)


# ---- Pages ----------------------------------------------------------------------------------------


def test_every_state_is_paged_in_its_own_order(queue: Queue) -> None:
    for n, priority in enumerate([5, 9, 1, 9]):
        queue.put(n, priority=priority)
    for n, delay in enumerate([30, 10, 20]):
        queue.put(n, delay=delay)
    assert [entry.message.body for entry in entries(queue, "ready")] == [b"1", b"3", b"0", b"2"]
    assert [entry.message.body for entry in entries(queue, State.SCHEDULED)] == [b"1", b"2", b"0"]


def test_pages_join_up(queue: Queue) -> None:
    queue.put_many(range(25))
    pages, cursor = [], None
    while True:
        page = queue.find(State.READY, limit=10, cursor=cursor)
        pages.append([int(entry.message.body) for entry in page.entries])
        cursor = page.cursor
        if cursor is None:
            break
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [n for page in pages for n in page] == list(range(25))


def test_the_dead_are_found_by_group_and_by_correlation_id(queue: Queue) -> None:
    for n in range(3):
        queue.put(n, correlation_id=f"request-{n}")
        taken(queue).bury(LookupError(f"no customer {n}"))
    queue.put(3)
    taken(queue).bury(ValueError("something else"))
    (entry,) = queue.find(State.DEAD, correlation_id="request-1").entries
    assert entry.last_error == "LookupError: no customer 1"
    assert entry.failure
    assert len(queue.find("dead", group=entry.failure.fingerprint).entries) == 3


@pytest.mark.parametrize("options", [{"state": "lost"}, {"state": "ready", "limit": 0}, {"state": ""}])
def test_what_cannot_be_found_is_refused(queue: Queue, options: Any) -> None:
    with pytest.raises(InvalidInput):
        queue.find(**options)


def test_get_knows_one_message(queue: Queue) -> None:
    put = queue.put("here", kind="note")
    entry = queue.get(put.id)
    assert (entry.message.id, entry.message.kind, entry.state) == (put.id, "note", State.READY)
    taken(queue).ack()
    with pytest.raises(NotFound) as caught:
        queue.get(put.id)
    assert caught.value.code == "not_found"


# ---- Searches -------------------------------------------------------------------------------------


def by_body(*bodies: int) -> Any:
    return lambda entry: int(entry.message.body) in bodies


def test_a_search_looks_at_every_entry(queue: Queue) -> None:
    queue.put_many(range(1_000))
    found = queue.search("ready", by_body(3, 500, 999))
    assert [int(entry.message.body) for entry in found.entries] == [3, 500, 999]
    assert (found.complete, found.scanned, found.cursor) == (True, 1_000, None)


def test_any_property_will_do(room: Room, queue: Queue, clock: ManualClock) -> None:
    queue.put({"customer": 7}, kind="invoice")
    queue.put({"customer": 8}, kind="invoice")
    taken(queue).fail(LookupError("no customer 7"))

    def failed_invoice(entry: Entry) -> bool:
        return entry.message.kind == "invoice" and entry.attempt > 0 and b"7" in entry.message.body

    found = queue.search(State.SCHEDULED, failed_invoice)
    assert [entry.attempts[-1].error for entry in found.entries] == ["LookupError: no customer 7"]
    let_pass(room, clock, 6)
    assert queue.search(State.SCHEDULED, failed_invoice).entries == []


def test_a_search_is_bounded_in_rows_and_says_so(queue: Queue) -> None:
    queue.put_many(range(1_000))
    found = queue.search(State.READY, by_body(3, 500, 999), max_rows=600)
    assert [int(entry.message.body) for entry in found.entries] == [3, 500]
    assert (found.complete, found.scanned) == (False, 600)
    rest = queue.search(State.READY, by_body(3, 500, 999), cursor=found.cursor)
    assert [int(entry.message.body) for entry in rest.entries] == [999]
    assert (rest.complete, rest.scanned) == (True, 400)


def test_and_in_time(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.put_many(range(1_000))
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr("postroom.search.time.monotonic", tick)
    found = queue.search(State.READY, by_body(999), max_seconds=2.5)
    assert (found.entries, found.complete, found.scanned) == ([], False, 400)
    assert found.cursor is not None


def test_and_in_what_it_finds(queue: Queue) -> None:
    queue.put_many(range(1_000))
    found = queue.search(State.READY, lambda entry: True, limit=150)
    assert (len(found.entries), found.complete) == (200, False), "whole pages: nothing is skipped"
    more = queue.search(State.READY, lambda entry: True, limit=10_000, cursor=found.cursor)
    assert (len(more.entries), more.complete) == (800, True)


def test_nothing_is_found_where_nothing_is(room: Room) -> None:
    found = room.queue("nobody").search(State.DEAD, lambda entry: True)
    assert (found.entries, found.complete, found.scanned) == ([], True, 0)


def test_a_search_of_no_state_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidInput):
        queue.search("everywhere", lambda entry: True)


# ---- By id alone ----------------------------------------------------------------------------------


def test_a_message_is_located_in_every_queue_that_has_its_id(room: Room) -> None:
    id = room.queue("a").put("x").id
    room.queue("b").put("y", id=id)
    room.queue("c").put("z")
    found = locate(room.engine, id, [info.name for info in room.queues()])
    assert [entry.message.queue for entry in found] == ["a", "b"]
    assert list(locate(room.engine, new_id(), ["a", "b", "no such queue"])) == []


# ---- By kind, wherever it is -----------------------------------------------------------------------


def kinds(room: Room) -> None:
    for name in ("b", "a"):
        queue = room.queue(name)
        queue.put(1, kind="shop.Pay")
        queue.put(2, kind="shop.pay", delay="1h")
        queue.put(3, kind="mail.send")
        queue.put(4)
    taken(room.queue("b")).bury()


def told(found: Found) -> list[tuple[str, str]]:
    return [(entry.message.queue, entry.state.value) for entry in found.entries]


def test_messages_are_found_by_kind_in_every_queue_and_state(room: Room) -> None:
    kinds(room)
    found = room.search(of_kind("PAY"))
    assert told(found) == [("a", "scheduled"), ("a", "ready"), ("b", "dead"), ("b", "scheduled")]
    assert (found.complete, found.scanned, found.cursor) == (True, 8, None)
    assert told(room.search(of_kind("pay"), ["b"], states=[State.DEAD])) == [("b", "dead")]


@pytest.mark.parametrize("bound", [{"limit": 1}, {"max_rows": 1}, {"max_seconds": 0.0}])
def test_a_search_across_queues_goes_on_where_it_stopped(room: Room, bound: dict[str, Any]) -> None:
    kinds(room)
    seen, cursor, rounds = list[tuple[str, str]](), None, 0
    while True:
        found = room.search(of_kind("pay"), cursor=cursor, **bound)
        seen, cursor, rounds = seen + told(found), found.cursor, rounds + 1
        if found.complete:
            break
        assert cursor is not None
        if bound == {"max_seconds": 0.0}:
            assert found.scanned == 0, "no time at all: nothing is looked at, and that is said"
            bound = {}
    assert seen == [("a", "scheduled"), ("a", "ready"), ("b", "dead"), ("b", "scheduled")]
    assert rounds > 1


def test_a_search_stops_behind_many_bytes(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.search._MOST_BYTES", 1)
    kinds(room)
    found = room.search(of_kind("pay"))
    assert (told(found), found.complete) == ([("a", "scheduled")], False)


@pytest.mark.parametrize("cursor", ["x", "dead@1", "nowhere@@a"])
def test_a_cursor_of_another_search_is_refused(room: Room, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        room.search(of_kind("pay"), cursor=cursor)


def test_a_search_for_no_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="kind"):
        of_kind("  ")
