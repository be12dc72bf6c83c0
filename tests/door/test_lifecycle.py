"""Following what happens: from now, from saved cursors, and knowing what was missed."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pytest

from postroom import Policy
from postroom.limits import LOG_LIMIT
from postroom.logs import LogEntry
from postroom.queue import Queue
from postroom.room import Room
from postroom.testing import ManualClock
from tests.door.staging import eventually, taken


def happen(queue: Queue, times: int = 1) -> None:
    """Something that people want to see: a dead letter, and its log entry."""
    queue.put_many(range(times))
    for delivery in [taken(queue) for _ in range(times)]:
        delivery.bury()


def seen(log: list[LogEntry]) -> list[tuple[str, str]]:
    return [(entry.queue, entry.event) for entry in log]


def test_a_reader_begins_with_what_comes_after_it(room: Room) -> None:
    queue = room.queue("q")
    happen(queue)
    lifecycle = room.lifecycle()
    assert lifecycle.read() == []
    queue.pause("tea")
    happen_later = queue.put(1)
    queue.resume()
    queue.cancel(happen_later.id)
    assert seen(lifecycle.read()) == [("q", "pause"), ("q", "resume"), ("q", "cancel")]
    assert lifecycle.read() == []
    assert lifecycle.missed == 0


def test_a_reader_goes_on_from_its_cursors(room: Room) -> None:
    a, b = room.queue("a"), room.queue("b")
    happen(a)
    happen(b)
    before = room.lifecycle()
    happen(a)
    assert len(before.read()) == 1
    cursors = dict(before.cursors)
    happen(b)
    happen(a)
    after = room.lifecycle(cursors=cursors)
    log = after.read()
    assert sorted(seen(log)) == [("a", "move_to_dlq"), ("b", "move_to_dlq")]
    again = room.lifecycle(cursors=cursors).read()
    assert {(entry.queue, entry.id) for entry in again} == {(entry.queue, entry.id) for entry in log}


def test_a_new_queue_is_read_from_its_beginning(room: Room) -> None:
    happen(room.queue("old"))
    lifecycle = room.lifecycle()
    happen(room.queue("new"), 2)
    assert seen(lifecycle.read()) == [("new", "move_to_dlq")] * 2


def test_also_one_that_is_newer_than_the_saved_cursors(room: Room) -> None:
    happen(room.queue("old"))
    cursors = dict(room.lifecycle().cursors)
    happen(room.queue("new"))
    assert seen(room.lifecycle(cursors=cursors).read()) == [("new", "move_to_dlq")]


def test_a_reader_may_follow_some_queues_only(room: Room) -> None:
    lifecycle = room.lifecycle(["a", "not yet"])
    for name in ("a", "b", "not yet"):
        happen(room.queue(name))
    assert sorted(seen(lifecycle.read())) == [("a", "move_to_dlq"), ("not yet", "move_to_dlq")]


def test_entries_of_all_queues_come_in_the_order_of_their_time(room: Room, clock: ManualClock) -> None:
    lifecycle = room.lifecycle()
    for name in ("b", "a", "b", "c", "a"):
        clock.advance("1s")
        happen(room.queue(name))
    log = lifecycle.read()
    assert [entry.queue for entry in log] == ["b", "a", "b", "c", "a"]
    assert [entry.at for entry in log] == sorted(entry.at for entry in log)


def test_a_read_is_bounded_and_the_next_one_goes_on(room: Room) -> None:
    lifecycle = room.lifecycle()
    happen(room.queue("q"), 7)
    ids = [[entry.id for entry in lifecycle.read(limit=3)] for _ in range(4)]
    assert [len(part) for part in ids] == [3, 3, 1, 0]
    assert len({id for part in ids for id in part}) == 7


def test_what_was_missed_is_counted(room: Room) -> None:
    queue = room.queue("q")
    happen(queue)
    lifecycle = room.lifecycle()
    for _ in range(LOG_LIMIT // 2 + 10):
        queue.pause()
        queue.resume()
    read = lifecycle.read(limit=1_000)
    assert lifecycle.missed == 20
    while more := lifecycle.read(limit=1_000):
        read += more
    assert len(read) == LOG_LIMIT
    assert lifecycle.missed == 20


@pytest.mark.parametrize(
    ("do", "event"),
    [
        (lambda queue: taken(queue).fail("no", after=60), "retry"),
        (lambda queue: taken(queue).bury(), "move_to_dlq"),
        (lambda queue: queue.purge(), "purge"),
        (lambda queue: queue.cancel(queue.find("ready").entries[0].message.id), "cancel"),
        (lambda queue: queue.pause(), "pause"),
    ],
)
def test_every_such_event_is_told_once_with_its_count(room: Room, do: object, event: str) -> None:
    queue = room.queue("q")
    put = queue.put(1)
    lifecycle = room.lifecycle()
    do(queue)  # type: ignore[operator]
    (entry,) = lifecycle.read()
    assert (entry.event, entry.count) == (event, 0 if event == "pause" else 1)
    assert entry.ids in ((put.id,), ())


def test_the_hot_path_is_counted_not_told(room: Room) -> None:
    queue = room.queue("q")
    lifecycle = room.lifecycle()
    queue.put_many(range(10))
    for _ in range(10):
        taken(queue).ack()
    assert lifecycle.read() == []
    assert queue.stats().counters["acked"] == 10


def test_a_queue_has_a_history_of_its_own(room: Room) -> None:
    queue = room.queue("q", Policy())
    happen(queue, 3)
    log = queue.history(limit=2)
    assert len(log.entries) == 2
    assert len(queue.history(after=log.cursor).entries) == 1
    assert queue.history(after=None).entries == []


# ---- Following ------------------------------------------------------------------------------------


def test_following_gives_each_entry_as_it_happens(live: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.history._NET", 3_600.0)
    queue = live.queue("q")
    lifecycle = live.lifecycle()
    got: list[LogEntry] = []

    def follow() -> None:
        for entry in lifecycle.follow(timeout=120):
            got.append(entry)
            if len(got) == 3:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for n in range(3):
        happen(queue)
        eventually(lambda n=n: len(got) == n + 1)  # type: ignore[misc]
    follower.join()


def test_following_ends_with_its_time(live: Room) -> None:
    happen(live.queue("q"))
    began = time.monotonic()
    assert list(live.lifecycle().follow(timeout=0.1)) == []
    assert time.monotonic() - began >= 0.1


def test_following_catches_up_without_waiting_in_between(live: Room) -> None:
    queue = live.queue("q")
    lifecycle = live.lifecycle()
    happen(queue, 450)
    assert len(list(islice(lifecycle.follow(timeout=60), 450))) == 450
