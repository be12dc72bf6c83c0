"""Jobs that are interrupted: by a kill at any point of a step, by an outage, by somebody who cancels."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import audit
from postroom.deadletters import DeadLetters, Filter
from postroom.errors import Closed, Conflict, EngineUnavailable, InvalidInput
from postroom.jobs import Job, Jobs, JobState, Runner
from postroom.room import Room
from tests.dead.letters import bury
from tests.door.staging import eventually

ALL = 450  # three steps of 200


class Killed(BaseException):
    """The process ends right here."""


def die(room: Room, count: int = ALL) -> None:
    bury(room, "pay", *range(count))


def breaking(
    room: Room, monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException, before: bool
) -> None:
    """The call of `move` of this number is the last: it is made, or not."""
    move, calls = room.engine.move, [0]

    def broken(queue: str, moves: Any) -> Any:
        calls[0] += 1
        if calls[0] == at and before:
            raise error
        moved = move(queue, moves)
        if calls[0] == at:
            raise error
        return moved

    monkeypatch.setattr(room.engine, "move", broken)


def finished(room: Room, id: str) -> Job:
    """After whoever did it is gone, the lock of the dead one with it."""
    for record in room.engine.records.list("lock"):
        room.engine.records.delete("lock", record.key)
    Runner(room).tick()
    return Jobs(room).get(id)


@pytest.mark.parametrize("before", [True, False], ids=["before the step", "after the step"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("by_ids", [False, True])
def test_a_replay_that_is_killed_goes_on_and_counts_right(
    room: Room, monkeypatch: pytest.MonkeyPatch, before: bool, again: bool, by_ids: bool
) -> None:
    die(room, 30 if by_ids else ALL)
    letters = DeadLetters(room, "pay").find(limit=1_000).letters
    chosen: Filter | list[str] = [letter.id for letter in letters] if by_ids else Filter()
    job = Jobs(room).make("replay", "pay", chosen, again=again)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        breaking(room, patch, 2, Killed(), before)
        Runner(room).tick()
    ended = finished(room, job.id)
    assert ended.result
    assert (ended.state, ended.done, ended.result["matched"]) == (JobState.DONE, len(letters), len(letters))
    assert (ended.result["already"], ended.result["refused"]) == (0, 0)
    assert room.queue("pay").stats().ready == len(letters), "each was replayed once"


@pytest.mark.parametrize("before", [True, False], ids=["before the step", "after the step"])
def test_a_discard_that_is_killed_goes_on_and_counts_right(
    room: Room, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    die(room)
    job = Jobs(room).make("discard", "pay", Filter())
    with monkeypatch.context() as patch, pytest.raises(Killed):
        breaking(room, patch, 2, Killed(), before)
        Runner(room).tick()
    ended = finished(room, job.id)
    assert ended.result
    assert (ended.state, ended.done, ended.total) == (JobState.DONE, ALL, ALL)
    assert (ended.scanned, ended.result["matched"], ended.result["refused"]) == (ALL, ALL, 0)


def test_a_discard_by_id_that_is_killed_takes_no_other_letter_for_it(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its handler put bears its id as correlation id, and is all that is left of it."""
    (parent,) = bury(room, "pay", "order")
    bury(room, "pay", "mail", correlation_id=parent)
    job = Jobs(room).make("discard", "pay", [parent])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        breaking(room, patch, 1, Killed(), before=False)
        Runner(room).tick()
    ended = finished(room, job.id)
    assert (ended.state, ended.done, room.queue("pay").stats().dead) == (JobState.DONE, 1, 1)


def test_an_outage_is_no_end(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    die(room)
    job = Jobs(room).make("replay", "pay", Filter())
    with monkeypatch.context() as patch, pytest.raises(EngineUnavailable):
        breaking(room, patch, 2, EngineUnavailable("away"), before=False)
        Runner(room).tick()
    assert Jobs(room).get(job.id).state is JobState.RUNNING
    Runner(room).tick()
    ended = Jobs(room).get(job.id)
    assert (ended.state, ended.done) == (JobState.DONE, ALL)


def test_an_outage_is_told_once_with_its_reason(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = [EngineUnavailable("no route")] * 3
    answers = iter([*away, None, *away, Closed("the end")])

    def tick() -> None:
        if answer := next(answers):
            raise answer

    runner = Runner(room)
    monkeypatch.setattr(runner, "tick", tick)
    monkeypatch.setattr("postroom.jobs._LOOK", 0)
    runner.start()
    assert runner._thread is not None
    runner._thread.join(30)
    assert next(answers, None) is None
    assert [record.getMessage() for record in caplog.records] == ["jobs wait: no route"] * 2


def test_the_audit_says_that_a_job_was_cancelled(room: Room) -> None:
    die(room, 3)
    job = Jobs(room).make("replay", "pay", Filter())
    Jobs(room).cancel(job.id)
    Runner(room).tick()
    ended = Jobs(room).get(job.id)
    assert (ended.state, ended.reason, ended.done) == (JobState.CANCELLED, "cancelled", 0)
    last = audit.read(room.engine).acts[-1]
    assert (last.event, last.info["state"]) == ("replay", "cancelled")


def test_a_discard_waits_for_its_time_and_until_then_can_be_undone(room: Room) -> None:
    die(room, 3)
    job = Jobs(room).make("discard", "pay", Filter(), after="1h")
    Runner(room).tick()
    assert (Jobs(room).get(job.id).state, job.begins) == (JobState.WAITING, job.until + 3_600_000)
    Jobs(room).cancel(job.id)
    Runner(room).tick()
    ended = Jobs(room).get(job.id)
    assert (ended.state, ended.done, room.queue("pay").stats().dead) == (JobState.CANCELLED, 0, 3)


def test_what_dies_while_a_discard_waits_is_not_meant(room: Room) -> None:
    die(room, 1)
    job = Jobs(room).make("discard", "pay", Filter(), after="300ms")
    eventually(lambda: room.engine.now() > job.until)
    die(room, 1)
    runner = Runner(room)

    def has_ended() -> bool:
        runner.tick()
        return not Jobs(room).get(job.id).is_open

    eventually(has_ended)
    ended = Jobs(room).get(job.id)
    assert ended.started_at is not None
    assert ended.started_at >= job.begins
    assert (ended.done, room.queue("pay").stats().dead) == (1, 1)


def test_no_job_waits_for_longer_than_it_is_kept(room: Room) -> None:
    die(room, 1)
    with pytest.raises(InvalidInput, match="after"):
        Jobs(room).make("discard", "pay", Filter(), after="8d")


def test_a_job_that_meets_a_bug_fails_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    die(room, 1)
    job = Jobs(room).make("replay", "pay", Filter())
    breaking(room, monkeypatch, 1, RuntimeError("a bug"), before=True)
    Runner(room).tick()
    assert (Jobs(room).get(job.id).state, Jobs(room).get(job.id).reason) == (JobState.FAILED, "a bug")


def test_a_job_that_is_paused_rests_and_goes_on_where_it_was(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(room)
    jobs, runner = Jobs(room), Runner(room)
    with audit.watched("the bank answers again"):
        job = jobs.make("replay", "pay", Filter())
    move, calls = room.engine.move, [0]

    def pausing(queue: str, moves: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            jobs.pause(job.id)
        return move(queue, moves)

    monkeypatch.setattr(room.engine, "move", pausing)
    runner.tick()
    rests = jobs.get(job.id)
    assert (rests.state, rests.is_open, rests.ended_at) == (JobState.PAUSED, True, None)
    assert 0 < rests.done == room.queue("pay").stats().ready < ALL
    runner.tick()
    assert jobs.get(job.id) == rests, "it rests until somebody resumes it"
    jobs.resume(job.id)
    runner.tick()
    ended = jobs.get(job.id)
    assert ended.result
    assert (ended.state, ended.done, ended.result["matched"]) == (JobState.DONE, ALL, ALL)
    assert room.queue("pay").stats().ready == ALL, "each was replayed once"
    with pytest.raises(Conflict):
        jobs.pause(job.id)
    acts = [act for act in audit.read(room.engine).acts if act.event == "replay"]
    assert [act.info["state"] for act in acts] == ["begun", "paused", "goes on", "done"]
    assert {act.info["reason"] for act in acts} == {"the bank answers again"}


def test_a_job_that_rests_can_be_cancelled(room: Room) -> None:
    die(room, 3)
    job = Jobs(room).make("replay", "pay", Filter())
    Jobs(room).pause(job.id)
    Runner(room).tick()
    assert Jobs(room).get(job.id).is_open
    Jobs(room).cancel(job.id)
    Runner(room).tick()
    assert Jobs(room).get(job.id).state is JobState.CANCELLED
    assert room.queue("pay").stats().ready == 0
