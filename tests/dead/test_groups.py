"""Groups over several queues, and the incident log."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from postroom import audit
from postroom.deadletters import DeadLetters, Filter
from postroom.engines.memory import MemoryEngine
from postroom.errors import InvalidInput, NotFound
from postroom.model import Failure
from postroom.room import Room
from postroom.testing import ManualClock
from tests.dead.letters import bury
from tests.door.staging import room_on

SLOW = Failure(type="TimeoutError", text="timed out", traceback="…", fingerprint="slow")
WRONG = Failure(type="KeyError", text="'user'", traceback="…", fingerprint="wrong")


def test_a_group_is_one_however_many_queues_it_is_in(room: Room) -> None:
    before = int(time.time() * 1_000) - 60_000
    bury(room, "chat_events", 1, 2, failure=SLOW, kind="send")
    bury(room, "fast_default", 3, failure=SLOW, kind="send")
    bury(room, "fast_default", 4, failure=WRONG)
    bury(room, "heavy_payouts", 5, failure=SLOW)
    found = DeadLetters(room, "dlq_fast").groups()
    slow, wrong = found.groups
    assert found.complete
    assert (slow.group, slow.count, slow.queues) == ("slow", 3, {"chat_events": 2, "fast_default": 1})
    assert before < slow.first <= slow.last
    assert (slow.task_name, slow.exception, slow.classification) == (
        "send",
        "TimeoutError: timed out",
        "timeout",
    )
    assert (wrong.count, wrong.classification, wrong.task_name) == (1, "exception", "fast_default")
    assert DeadLetters(room).groups().groups[0].count == 4


def test_a_group_tells_its_day_by_the_hour() -> None:
    clock = ManualClock()
    with room_on(MemoryEngine(clock)) as room:
        bury(room, "chat_events", 1, failure=WRONG)
        bury(room, "chat_events", 1, 2, failure=SLOW)
        clock.advance("23h")
        bury(room, "fast_default", 3, failure=SLOW)
        clock.advance("30m")
        days = {view.group: view.day for view in DeadLetters(room).groups().groups}
        assert days == {"slow": (2, *[0] * 22, 1), "wrong": (1, *[0] * 23)}
        clock.advance("2h")
        days = {view.group: view.day for view in DeadLetters(room).groups().groups}
        assert days == {"slow": (*[0] * 21, 1, 0, 0), "wrong": (0,) * 24}


def test_only_the_largest_groups_are_described_and_that_is_told(room: Room, dead: DeadLetters) -> None:
    for number in range(5):
        failure = Failure(type="E", fingerprint=f"group-{number}")
        bury(room, "chat_events", *range(number + 1), failure=failure)
    found = dead.groups(limit=2)
    assert [(view.group, view.count) for view in found.groups] == [("group-4", 5), ("group-3", 4)]
    assert not found.complete


def test_no_letters_no_groups(dead: DeadLetters) -> None:
    assert dead.groups() == ([], True)


def test_a_group_as_json(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    dead.note("slow", bucket="bug")
    shown = dead.groups().groups[0].as_dict()
    assert (shown["group"], shown["count"], shown["incident"]["bucket"]) == ("slow", 1, "bug")


# ---- incidents ------------------------------------------------------------------------------------


def test_what_is_known_is_kept_with_who_and_when(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    assert dead.incident("slow") is None
    before = room.engine.now()
    with audit.acting("ada"):
        dead.note("slow", status="Acknowledged", bucket="Transient", link="https://example.org/7")
    with audit.acting("bob"):
        incident = dead.note("slow", "restarted it", cause="the mail server was down", fix="deployed")
    assert (incident.status, incident.bucket, incident.author) == ("acknowledged", "transient", "bob")
    assert (incident.cause, incident.fix, incident.link) == (
        "the mail server was down", "deployed", "https://example.org/7",
    )  # fmt: skip
    assert [change.author for change in incident.changes] == ["ada", "bob"]
    first, second = incident.changes
    assert before <= first.at <= second.at == incident.at <= room.engine.now()
    assert incident.changes[1].what["note"] == "restarted it"
    assert dead.incident("slow") == incident
    assert dead.groups().groups[0].incident == incident


def test_a_new_arrival_opens_a_resolved_incident_again(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    dead.note("slow", status="resolved", fix="deployed")
    assert dead.groups().groups[0].incident == dead.incident("slow")
    resolved = dead.incident("slow")
    assert resolved is not None
    assert (resolved.status, resolved.reopened) == ("resolved", False)
    time.sleep(0.005)  # the next one dies in a later millisecond
    bury(room, "fast_default", 2, failure=SLOW)
    again = dead.incident("slow")
    assert again is not None
    assert (again.status, again.reopened, again.fix) == ("open", True, "deployed")
    later = dead.note("slow", "looking into it")
    assert (later.status, later.reopened) == ("open", False)
    assert dead.note("slow", status="resolved").status == "resolved"


def test_letters_are_found_by_how_it_stands_with_their_group(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, 2, failure=SLOW)
    bury(room, "fast_default", 3, failure=WRONG)
    assert _found(dead, "open") == 3
    noted = dead.note("slow", status="resolved")
    assert (_found(dead, "open"), _found(dead, "resolved"), _found(dead, "acknowledged")) == (1, 2, 0)
    while room.engine.now() <= noted.seen:
        time.sleep(0.001)  # the next one dies in a later millisecond
    bury(room, "fast_default", 4, failure=SLOW)  # so it is open again, with all its letters
    assert (_found(dead, "open"), _found(dead, "resolved")) == (4, 0)
    dead.note("wrong", status="acknowledged")
    assert dead.replay(Filter.parse(["status=open"]), dry_run=True).matched == 3


def test_a_status_that_nothing_can_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="open, acknowledged, resolved"):
        Filter.parse(["status=shut"])


def _found(dead: DeadLetters, status: str) -> int:
    return len(dead.find(Filter.parse([f"status={status}"])).letters)


def test_letters_that_go_do_not_open_it(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, 2, failure=SLOW)
    dead.note("slow", status="resolved")
    dead.discard(Filter(group="slow"))
    incident = dead.incident("slow")
    assert incident is not None
    assert incident.status == "resolved"
    assert dead.note("slow", "for the record").status == "resolved"


def test_two_who_note_at_once_both_succeed(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    threads = [threading.Thread(target=dead.note, args=("slow", str(number))) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    incident = dead.incident("slow")
    assert incident is not None
    assert sorted(change.what["note"] for change in incident.changes) == ["0", "1", "2", "3"]


def test_a_note_that_comes_in_between_is_not_lost(
    room: Room, dead: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    records, put = room.engine.records, room.engine.records.put

    def late(*args: Any, **options: Any) -> int | None:
        monkeypatch.setattr(records, "put", put)
        dead.note("slow", "first")
        return put(*args, **options)

    monkeypatch.setattr(records, "put", late)
    incident = dead.note("slow", "second")
    assert [change.what["note"] for change in incident.changes] == ["first", "second"]
    assert dead.incident("slow") == incident


def test_a_long_story_is_cut_to_what_a_record_holds(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    for number in range(60):
        dead.note("slow", f"{number} " + "x" * 1_900)
    incident = dead.incident("slow")
    assert incident is not None
    assert incident.changes[-1].what["note"].startswith("59 ")
    assert 10 < len(incident.changes) < 50


def test_a_note_is_in_the_audit(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    dead.note("slow", bucket="poison")
    act = audit.read(room.engine).acts[-1]
    assert (act.event, act.info) == ("note", {"group": "slow", "bucket": "poison"})


@pytest.mark.parametrize(
    "changes", [{}, {"status": "closed"}, {"bucket": "misc"}, {"cause": "x" * 2_001}, {"text": "x" * 2_001}]
)
def test_a_note_that_makes_no_sense_is_refused(
    room: Room, dead: DeadLetters, changes: dict[str, str]
) -> None:
    bury(room, "chat_events", 1, failure=SLOW)
    with pytest.raises(InvalidInput):
        dead.note("slow", **changes)
    assert dead.incident("slow") is None


def test_a_group_nobody_knows_cannot_be_noted(dead: DeadLetters) -> None:
    with pytest.raises(NotFound):
        dead.note("never", "hello")
