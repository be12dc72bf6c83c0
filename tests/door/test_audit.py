"""What operators do is written down, whichever way they do it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import audit, config
from postroom.audit import Act
from postroom.breaker import Breaker
from postroom.errors import Conflict, NotFound
from postroom.model import Failure
from postroom.policy import Policy
from postroom.queue import Queue
from postroom.room import Room
from postroom.schedule import Schedules
from tests.door.staging import Wire, eventually, room_on

BOOM = Failure(type="ValueError", text="boom")


def acts(room: Room) -> list[Act]:
    return audit.read(room.engine).acts


def dead(queue: Queue) -> str:
    return queue.put(queue.message({}).replace(failure=BOOM)).id


ACTS: dict[str, Callable[[Queue, str], object]] = {
    "pause": lambda queue, id: queue.pause("deploy"),
    "resume": lambda queue, id: queue.resume(),
    "purge": lambda queue, id: queue.purge(),
    "replay": lambda queue, id: queue.replay(id),
    "discard": lambda queue, id: queue.discard(id),
    "drop": lambda queue, id: queue.drop(force=True),
    "cancel": lambda queue, id: queue.cancel(_waiting(queue)),
    "reschedule": lambda queue, id: queue.reschedule(_waiting(queue), delay="1h"),
    "run_now": lambda queue, id: queue.run_now(_waiting(queue, delay="1h")),
    "release": lambda queue, id: queue.release(_claimed(queue)),
    "extend": lambda queue, id: queue.extend(_claimed(queue), "1h"),
    "declare": lambda queue, id: queue.declare(Policy(max_attempts=9)),
    "open_breaker": lambda queue, id: Breaker("psp", room=queue.room).open("down"),
    "close_breaker": lambda queue, id: Breaker("psp", room=queue.room).close(),
}
#: What concerns no queue.
ELSEWHERE = {"open_breaker", "close_breaker"}


def _waiting(queue: Queue, **options: Any) -> str:
    return queue.put({}, **options).id


def _claimed(queue: Queue) -> str:
    delivery = queue.claim(timeout=0)
    assert delivery
    return delivery.id


@pytest.mark.parametrize("event", ACTS)
def test_every_act_is_noted_with_who_what_and_where(room: Room, event: str) -> None:
    queue = room.queue("emails")
    queue.put({})
    id = dead(queue)
    with audit.acting("ada@desk"):
        ACTS[event](queue, id)
    (act,) = acts(room)
    assert (act.event, act.queue, act.by) == (event, "" if event in ELSEWHERE else "emails", "ada@desk")
    assert act.count == {"pause": 0, "resume": 0, "declare": 0, "drop": 2}.get(event, 1)
    assert act.at > 0
    assert act.id


def test_a_schedule_that_is_handled_by_hand_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "postroom.toml"
    file.write_text('[schedule.nightly]\nqueue = "reports"\ncron = "0 3 * * *"\n')
    with postroom.open("memory://", config=config.load(file, environ={})) as room:
        schedules = Schedules(room)
        schedules.pause("nightly", "move")
        schedules.resume("nightly")
        put = schedules.run_now("nightly")
        told = [(act.event, act.queue, act.info) for act in acts(room)]
    assert told == [
        ("pause_schedule", "reports", {"schedule": "nightly", "reason": "move"}),
        ("resume_schedule", "reports", {"schedule": "nightly"}),
        ("run_schedule", "reports", {"schedule": "nightly", "id": put.id}),
    ]


def test_a_policy_that_changes_nothing_is_not_noted(room: Room) -> None:
    for _ in range(2):  # as every process does that declares its queues when it starts
        room.queue("emails", Policy(max_attempts=9))
    room.queue("emails", Policy(max_attempts=8))
    declared = [act.info["policy"] for act in acts(room)]
    assert [each["max_attempts"] for each in declared] == [9, 8]
    assert list(declared[1]) == ["max_attempts"]


def test_what_is_known_beside_it_is_noted_too(room: Room) -> None:
    queue = room.queue("emails")
    id = dead(queue)
    new = queue.replay(id)
    queue.pause("deploy")
    assert [act.info for act in acts(room)] == [{"id": id, "replayed_as": new}, {"reason": "deploy"}]


def test_the_drop_of_an_empty_queue_is_noted_once(room: Room) -> None:
    queue = room.queue("emails")
    queue.pause()
    queue.drop()
    assert [act.event for act in acts(room)] == ["pause", "drop"]


def test_what_was_refused_is_not_noted(room: Room) -> None:
    queue = room.queue("emails")
    queue.put({})
    with pytest.raises(NotFound):
        queue.discard("0" * 32)
    with pytest.raises(Conflict):
        queue.drop()
    assert acts(room) == []


def test_without_a_name_it_is_the_user_of_the_process(room: Room) -> None:
    room.queue("emails").pause()
    (act,) = acts(room)
    assert act.by == audit.actor()
    assert "@" in act.by


def test_a_name_holds_inside_its_block_and_its_thread_only() -> None:
    seen: list[str] = []
    with audit.acting("ada"):
        thread = threading.Thread(target=lambda: seen.append(audit.actor()))
        thread.start()
        thread.join()
        assert audit.actor() == "ada"
    assert "ada" not in (seen[0], audit.actor())


def test_an_act_that_cannot_be_noted_is_done_all_the_same(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with room_on(wire) as room:
        queue = room.queue("emails")
        queue.put({})
        wire.fail(1, "publish")
        assert queue.purge() == 1
        assert "purge of 'emails' is not in the audit" in caplog.text
        assert acts(room) == []


def test_the_audit_can_be_followed(live: Room) -> None:
    seen: list[str] = []
    live.queue("emails").pause("before")

    def follow() -> None:
        for act in audit.follow(live.engine, timeout=60):
            seen.append(act.event)
            if act.event == "drop":
                return

    thread = threading.Thread(target=follow)
    thread.start()

    def was_seen() -> bool:
        live.queue("emails").resume()
        return "resume" in seen

    eventually(was_seen)
    live.queue("emails").drop()
    thread.join(60)
    assert not thread.is_alive()
    assert "pause" not in seen


def test_following_ends_with_its_time(live: Room) -> None:
    live.queue("emails").pause()
    assert [act.event for act in audit.follow(live.engine, after="", timeout=0)] == ["pause"]


def test_the_newest_acts(room: Room) -> None:
    queue = room.queue("emails")
    for number in range(5):
        queue.pause(str(number))
    room.queue("other").pause("other")
    newest = audit.newest(room.engine, 2, "emails")
    assert [act.info["reason"] for act in newest.acts] == ["3", "4"]
    assert audit.read(room.engine, newest.cursor).acts == []
    assert [act.queue for act in audit.newest(room.engine, 2).acts] == ["emails", "other"]
    assert audit.newest(room.engine, 0).acts == []


def test_what_others_publish_there_does_not_break_the_reader(room: Room) -> None:
    room.engine.publish("audit", [b"no json", b"[]"])
    assert [act.event for act in acts(room)] == ["unreadable", "unreadable"]
