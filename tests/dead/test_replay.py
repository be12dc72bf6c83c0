"""Replaying and discarding: one, some, all that match; once, whatever happens in between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from postroom import Worker, audit
from postroom.deadletters import DeadLetters, Filter, Progress, call_of, origin
from postroom.delivery import Delivery
from postroom.errors import InvalidInput, NotFound
from postroom.ids import replay_id
from postroom.model import Failure, Message, State
from postroom.policy import Policy
from postroom.room import Room
from tests.dead.letters import BOOM, FAST, bodies, bury, ids

EVERYTHING = Filter()


def events(room: Room) -> list[tuple[str, str, int, Any]]:
    return [(act.event, act.queue, act.count, act.info.get("state")) for act in audit.read(room.engine).acts]


def test_one_letter_is_replayed_and_stays_marked(room: Room, dead: DeadLetters) -> None:
    first, second = bury(room, "chat_events", "a", "b")
    result = dead.replay([first])
    assert (result.matched, result.done, result.ids) == (1, 1, [replay_id(first, 1)])
    assert bodies(room, "chat_events") == ["a"]
    assert dead.get(first).replayed_as == (replay_id(first, 1),)
    assert dead.get(second).replayed_as == ()


def test_a_replay_is_followed_back_to_its_letter(room: Room, dead: DeadLetters) -> None:
    first, second = bury(room, "chat_events", "a", "b")
    dead.replay([first, second])
    dead.replay([second], again=True)
    for letter, number in ((first, 1), (second, 1), (second, 2)):
        found = origin(room.engine, room.queue("chat_events").get(replay_id(letter, number)).message, [])
        assert (found and found.id) == letter
    dead.discard([first])
    gone = room.queue("chat_events").get(replay_id(first, 1)).message
    assert origin(room.engine, gone, []) is None
    assert origin(room.engine, room.queue("other").get(room.queue("other").put("c").id).message, []) is None


def test_a_replay_into_another_queue_is_followed_back_too(room: Room, dead: DeadLetters) -> None:
    old = f"{int(time.time() * 1_000) - 5_000:012x}" + 20 * "1"
    (letter,) = bury(room, "chat_events", "a", id=old)
    room.queue("elsewhere", Policy())
    dead.replay([letter], to="elsewhere")
    message = room.queue("elsewhere").get(replay_id(letter, 1)).message
    found = origin(room.engine, message, ["chat_events", "elsewhere"])
    assert found
    assert (found.id, found.message.queue) == (letter, "chat_events")


def test_all_that_match_in_every_queue_of_the_view(room: Room) -> None:
    bury(room, "chat_events", {"n": 1}, {"n": 2})
    bury(room, "fast_default", {"n": 1})
    bury(room, "heavy_payouts", {"n": 1})
    result = DeadLetters(room, "dlq_fast").replay(Filter(where={"n": "1"}))
    assert (result.scanned, result.matched, result.done) == (3, 2, 2)
    assert [bodies(room, queue) for queue in (*FAST, "heavy_payouts")] == [[{"n": 1}], [{"n": 1}], []]


def test_a_dry_run_counts_and_changes_nothing(room: Room, dead: DeadLetters) -> None:
    first, *_ = bury(room, "chat_events", *range(5))
    dead.replay([first])
    before = len(audit.read(room.engine).acts)
    result = dead.replay(EVERYTHING, dry_run=True)
    assert (result.matched, result.eligible, result.already, result.done) == (5, 4, 1, 0)
    assert len(ids(room.queue("chat_events"), State.READY)) == 1
    assert len(audit.read(room.engine).acts) == before


def test_a_repeated_call_makes_no_second_message(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(5))
    assert dead.replay(EVERYTHING).done == 5
    again = dead.replay(EVERYTHING)
    assert (again.done, again.already) == (0, 5)
    assert len(ids(room.queue("chat_events"), State.READY)) == 5


def test_again_replays_what_was_replayed(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "chat_events", "a")
    dead.replay([id])
    assert dead.replay([id], again=True).ids == [replay_id(id, 2)]
    assert len(ids(room.queue("chat_events"), State.READY)) == 2


def test_two_who_replay_at_once_make_each_message_once(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(500))
    threads = [threading.Thread(target=dead.replay, args=(EVERYTHING,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bodies(room, "chat_events")) == list(range(500))


def test_one_that_dies_in_the_middle_is_gone_on_with(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(700))

    def stop(progress: Progress) -> None:
        assert progress.total == 700
        if progress.done >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dead.replay(EVERYTHING, on_progress=stop)
    half = len(ids(room.queue("chat_events"), State.READY))
    assert 0 < half < 700
    assert events(room)[-1] == ("replay", "", half, "stopped: KeyboardInterrupt ")
    result = dead.replay(EVERYTHING)
    assert (result.already, result.done) == (half, 700 - half)
    assert sorted(bodies(room, "chat_events")) == list(range(700))


def test_what_dies_again_meanwhile_is_not_replayed_for_ever(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(450))

    def kill(progress: Progress) -> None:
        time.sleep(0.002)  # in a later millisecond than the last of the letters
        while delivery := room.queue("chat_events").claim(timeout=0):
            delivery.bury("again")

    result = dead.replay(EVERYTHING, on_progress=kill)
    assert result.done == 450
    assert room.queue("chat_events").stats().dead == 900


# ---- target, edit, rate ---------------------------------------------------------------------------


def test_into_another_queue(room: Room, dead: DeadLetters) -> None:
    options: dict[str, Any] = {
        "kind": "send",
        "headers": {"a": "b"},
        "priority": 9,
        "correlation_id": "c",
        "max_attempts": 4,
    }
    (id,) = bury(room, "chat_events", {"n": 1}, **options)
    result = dead.replay(EVERYTHING, to="fast_default")
    assert result.ids == [replay_id(id, 1)]
    assert dead.get(id).replayed_as == (replay_id(id, 1),)
    message = room.queue("fast_default").get(replay_id(id, 1)).message
    assert {name: getattr(message, name) for name in options} == options
    assert message.body == b'{"n":1}'
    assert bodies(room, "chat_events") == []
    assert dead.replay(EVERYTHING, to="fast_default").already == 1


def test_a_replay_into_another_queue_that_died_before_the_mark_is_one_message(
    room: Room, dead: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = bury(room, "chat_events", "a")
    move = room.engine.move
    monkeypatch.setattr(room.engine, "move", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        dead.replay(EVERYTHING, to="fast_default")
    monkeypatch.setattr(room.engine, "move", move)
    assert bodies(room, "fast_default") == ["a"]  # it was put, and even done, before the mark
    result = dead.replay(EVERYTHING, to="fast_default")
    assert result.ids == list(dead.get(id).replayed_as) == [replay_id(id, 1)]
    assert bodies(room, "fast_default") == []


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_target_that_nobody_knows_is_refused(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", "a")
    with pytest.raises(NotFound, match="no queue 'fast_defalt'"):
        dead.replay(EVERYTHING, to="fast_defalt")
    assert not dead.find(Filter(replayed=True)).letters


@pytest.mark.parametrize("to", [None, "fast_default"])
def test_an_edited_payload(room: Room, dead: DeadLetters, to: str | None) -> None:
    (id,) = bury(room, "chat_events", {"amount": "12,50"})
    dead.replay([id], to=to, edit=lambda letter: {"amount": letter.call.args[0]["amount"].replace(",", ".")})
    assert bodies(room, to or "chat_events") == [{"amount": "12.50"}]
    assert dead.get(id).call.args == [{"amount": "12,50"}]


def test_an_edit_of_none_leaves_the_payload(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", "a", "b")
    dead.replay(EVERYTHING, edit=lambda letter: "x" if letter.call.args == ["b"] else None)
    assert sorted(bodies(room, "chat_events")) == ["a", "x"]


# ---- tasks of Celery -------------------------------------------------------------------------------

RETRIED = {
    "k": '{"h":{"retries":4,"expires":"2020-01-01T00:00:00+00:00","origin":"shop"},"t":"x","e":"latin"}'
}
TASK: dict[str, Any] = {"kind": "shop.pay", "correlation_id": "task-9"}
CALL = [[1], {"invoice": 7}, {"chain": ["next"]}]


def again(room: Room, queue: str = "chat_events") -> Message:
    (entry,) = room.queue(queue).find_all(State.READY)
    return entry.message


@pytest.mark.parametrize("to", [None, "heavy_payouts"])
def test_a_task_of_celery_begins_anew(room: Room, dead: DeadLetters, to: str | None) -> None:
    bury(room, "chat_events", CALL, headers={**RETRIED, "mine": "stays"}, **TASK)
    assert dead.get("task-9").retries == 4
    dead.replay(["task-9"], to=to)
    message = again(room, to or "chat_events")
    assert json.loads(message.headers["k"]) == {"h": {"origin": "shop"}, "t": "x", "e": "latin"}
    assert (message.headers["mine"], call_of(message)) == (
        "stays", ("task-9", "shop.pay", [1], {"invoice": 7}, 0),
    )  # fmt: skip


def test_headers_that_say_nothing_of_an_earlier_life_stay(room: Room, dead: DeadLetters) -> None:
    kept = ({"k": '{"h":{"origin":"a"}}'}, {"k": "no json"}, {"k": '{"x":1,"h":{"retries":3}}'}, {"K": "[]"})
    for headers in kept:
        (id,) = bury(room, "chat_events", 1, headers=headers)
        dead.replay([id])
        assert again(room).headers == headers
        room.queue("chat_events").purge()
    (id,) = bury(room, "chat_events", CALL, headers={"task": "shop.pay", "id": "t", "retries": "4"})
    dead.replay([id])
    assert again(room).headers == {"task": "shop.pay", "id": "t"}


@pytest.mark.parametrize(
    ("edited", "call"),
    [
        ({"args": [2]}, [[2], {"invoice": 7}, {"chain": ["next"]}]),
        ({"kwargs": {"a": 1}}, [[1], {"a": 1}, {"chain": ["next"]}]),
        ([[2], {}], [[2], {}, {"chain": ["next"]}]),
        ([[2], {}, {}], [[2], {}, {}]),
    ],
    ids=repr,
)
def test_an_edited_call_of_a_task(room: Room, dead: DeadLetters, edited: Any, call: Any) -> None:
    bury(room, "chat_events", CALL, headers=RETRIED, **TASK)
    dead.replay(["task-9"], edit=lambda letter: edited)
    assert json.loads(again(room).body) == call
    assert json.loads(again(room).headers["k"]) == {"h": {"origin": "shop"}}, "what the old body was"


def test_the_call_of_a_task_that_could_not_be_decoded(room: Room, dead: DeadLetters) -> None:
    options: dict[str, Any] = {"content_type": "application/json", "headers": RETRIED}
    bury(room, "chat_events", b"[[1], {", **options, **TASK)
    with pytest.raises(InvalidInput, match="cannot be read"):
        dead.replay(["task-9"], edit=lambda letter: {"args": [3]})
    dead.replay(["task-9"], edit=lambda letter: {"args": [3], "kwargs": {"to": "ada"}})
    assert json.loads(again(room).body) == [[3], {"to": "ada"}, {}]


@pytest.mark.parametrize("edited", [{"invoice": 7}, [1], [[1]], {}, "text", [[1], {}, {}, 4], {"args": 3}])
def test_a_payload_that_no_task_could_take_is_refused(room: Room, dead: DeadLetters, edited: Any) -> None:
    bury(room, "chat_events", CALL, **TASK)
    with pytest.raises(InvalidInput, match='"args"'):
        dead.replay(["task-9"], edit=lambda letter: edited)
    assert ids(room.queue("chat_events"), State.READY) == []


def test_a_task_that_is_replayed_by_its_queue_begins_anew_too(room: Room) -> None:
    """The door of one letter, which HTTP and the dashboard take."""
    (id,) = bury(room, "chat_events", CALL, headers=RETRIED, **TASK)
    queue = room.queue("chat_events")
    with pytest.raises(InvalidInput, match='"args"'):
        queue.replay(id, body={"invoice": 8})
    queue.replay(id, body={"args": [2]})
    assert json.loads(again(room).headers["k"]) == {"h": {"origin": "shop"}}
    assert json.loads(again(room).body) == [[2], *CALL[1:]]


# ---- how fast --------------------------------------------------------------------------------------


def test_a_rate_is_kept(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(8))
    began = time.monotonic()
    assert dead.replay(EVERYTHING, rate="20/s").done == 8
    assert time.monotonic() - began >= 6 / 20  # two at a time; how much slower is the machine's business


def test_a_rate_that_makes_no_sense_is_refused(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", 1)
    with pytest.raises(InvalidInput):
        dead.replay(EVERYTHING, rate="fast")


# ---- refusals -------------------------------------------------------------------------------------


def test_a_full_queue_takes_what_fits_and_says_why_it_stopped(room: Room, dead: DeadLetters) -> None:
    room.queue("chat_events", Policy(capacity=7))
    bury(room, "chat_events", *range(50))
    result = dead.replay(EVERYTHING)
    assert result.done == 7
    assert "7 of 7" in result.stopped
    assert events(room)[-1][3].startswith("stopped: ")
    assert len(bodies(room, "chat_events")) == 7
    assert dead.replay(EVERYTHING).done == 7


@pytest.mark.parametrize("to", [None, "fast_default"])
def test_a_held_unique_key_is_a_refusal(room: Room, dead: DeadLetters, to: str | None) -> None:
    (id,) = bury(room, "chat_events", "a", unique_key="user:4")
    (free,) = bury(room, "chat_events", "b")
    holder = room.queue(to or "chat_events").put("c", unique_key="user:4").id
    result = dead.replay(EVERYTHING, to=to)
    assert (result.done, result.refused) == (1, 1)
    assert result.refusals == [(id, f"message {holder} holds its unique_key", False)]
    assert dead.get(free).replayed_as
    assert not dead.get(id).replayed_as


def test_an_id_that_is_not_there_is_told(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "chat_events", "a")
    result = dead.replay([id, "0" * 32, id])
    assert (result.done, result.refused) == (1, 1)
    assert result.refusals == [("0" * 32, "there is no such dead letter", True)]


def family(room: Room) -> tuple[str, str]:
    """A letter, and one in another queue that its handler had put: it bears the id of the first."""
    (parent,) = bury(room, "chat_events", "order")
    (child,) = bury(room, "heavy_payouts", "mail", correlation_id=parent)
    return parent, child


def test_a_message_id_means_that_letter_and_not_what_its_handler_put(room: Room, dead: DeadLetters) -> None:
    parent, child = family(room)
    assert dead.replay([parent], edit=lambda letter: "corrected").done == 1
    assert [bodies(room, queue) for queue in ("chat_events", "heavy_payouts")] == [["corrected"], []]
    assert dead.discard([parent]).ids == [parent]
    assert dead.get(child).id == child


def test_a_message_id_of_another_view_names_nothing_here(room: Room, dead: DeadLetters) -> None:
    parent, child = family(room)
    result = DeadLetters(room, "dlq_heavy").discard([parent])
    assert (result.done, result.refusals) == (0, [(parent, "there is no such dead letter", True)])
    assert {letter.id for letter in dead.find().letters} == {parent, child}


def test_an_id_that_is_gone_means_nothing_that_its_handler_put(room: Room, dead: DeadLetters) -> None:
    (parent,) = bury(room, "chat_events", "order")
    bury(room, "heavy_payouts", "mail", correlation_id=parent)
    assert dead.discard([parent]).done == 1
    again = dead.discard([parent])
    assert (again.done, again.refused) == (0, 1)
    assert room.queue("heavy_payouts").stats().dead == 1


def test_a_correlation_id_that_is_no_letter_means_all_that_bear_it(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", "a", correlation_id="request-7")
    bury(room, "heavy_payouts", "b", correlation_id="request-7")
    assert dead.discard(["request-7"]).done == 2


@pytest.mark.parametrize("chosen", ["an id", None, ["x"] * 1_001])
def test_a_choice_that_makes_no_sense_is_refused(dead: DeadLetters, chosen: Any) -> None:
    with pytest.raises(InvalidInput):
        dead.replay(chosen)


# ---- canary ---------------------------------------------------------------------------------------


def with_worker(room: Room, handler: Callable[[Delivery], None], act: Callable[[], Any]) -> Any:
    worker = Worker(room, {"chat_events": handler}, stop_timeout="10s").start()
    try:
        return act()
    finally:
        worker.stop()


def test_a_canary_that_succeeds_lets_the_others_follow(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(5))
    waiting: list[int] = []

    def handle(delivery: Delivery) -> None:
        waiting.append(len(ids(room.queue("chat_events"), State.READY)))

    result = with_worker(room, handle, lambda: dead.replay(EVERYTHING, canary=True, canary_timeout="60s"))
    assert (result.done, result.stopped) == (5, "")
    assert waiting[0] == 0


def test_a_canary_that_dies_again_stops_the_others(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(5))

    def handle(delivery: Delivery) -> None:
        raise ValueError("still broken")

    result = with_worker(room, handle, lambda: dead.replay(EVERYTHING, canary=True, canary_timeout="60s"))
    assert result.done == 1
    assert "died again: ValueError: still broken" in result.stopped
    assert len(dead.find(Filter(replayed=True)).letters) == 1


def test_a_canary_nobody_takes_stops_the_others_in_time(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(5))
    result = dead.replay(EVERYTHING, canary=True, canary_timeout="50ms")
    assert result.done == 1
    assert "is ready after 50ms" in result.stopped
    assert len(ids(room.queue("chat_events"), State.READY)) == 1


@pytest.mark.parametrize("how", ["cancel", "purge"])
def test_a_canary_that_was_taken_away_did_not_succeed(room: Room, dead: DeadLetters, how: str) -> None:
    (first, *_) = bury(room, "chat_events", *range(5))
    queue, canary = room.queue("chat_events"), replay_id(first, 1)

    def take_away() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and canary not in ids(queue, State.READY):
            time.sleep(0.005)
        queue.purge() if how == "purge" else queue.cancel(canary)

    thread = threading.Thread(target=take_away)
    thread.start()
    result = dead.replay([first, *_], canary=True, canary_timeout="60s")
    thread.join()
    assert result.done == 1
    assert "was taken away" in result.stopped


def test_a_canary_that_cannot_be_put_is_not_waited_for(room: Room, dead: DeadLetters) -> None:
    (held,) = bury(room, "chat_events", "a", unique_key="k")
    room.queue("chat_events").put("b", unique_key="k")
    result = dead.replay([held], canary=True, canary_timeout="60s")
    assert (result.done, result.refused, result.stopped) == (0, 1, "")


@pytest.mark.parametrize("to", [None, "fast_default"])
def test_when_the_first_is_refused_the_next_is_the_canary(
    room: Room, dead: DeadLetters, to: str | None
) -> None:
    bury(room, "chat_events", "a", "b", unique_key="k")
    (free,) = bury(room, "chat_events", "c")
    bury(room, "chat_events", *range(5))
    room.queue(to or "chat_events").put("holder", unique_key="k", delay="1h")
    result = dead.replay(EVERYTHING, to=to, canary=True, canary_timeout="50ms")
    assert (result.done, result.refused, result.last) == (1, 2, replay_id(free, 1))
    assert "is ready after 50ms" in result.stopped


# ---- discard --------------------------------------------------------------------------------------


def test_discard_by_filter_and_by_id(room: Room, dead: DeadLetters) -> None:
    slow = Failure(type="TimeoutError", text="timed out", traceback="…")
    bury(room, "chat_events", *range(450), failure=slow)
    keep, gone = bury(room, "chat_events", "keep", "gone", failure=BOOM)
    assert dead.discard(Filter(error="timed out"), dry_run=True).eligible == 450
    assert room.queue("chat_events").stats().dead == 452
    result = dead.discard(Filter(error="timed out"))
    assert (result.done, result.scanned) == (450, 452)
    assert dead.discard([gone]).done == 1
    assert ids(room.queue("chat_events"), State.DEAD) == [keep]
    assert room.queue("chat_events").stats().counters["discarded"] == 451


def test_bulk_work_is_in_the_audit_at_both_ends(room: Room) -> None:
    bury(room, "chat_events", *range(3))
    view = DeadLetters(room, "dlq_fast")
    before = len(events(room))
    with audit.acting("ada"):
        view.replay(Filter(error="boom"))
        view.discard(EVERYTHING)
    acts = audit.read(room.engine).acts[before:]
    assert events(room)[before:] == [
        ("replay", "dlq_fast", 0, "begun"),
        ("replay", "dlq_fast", 3, "done"),
        ("discard", "dlq_fast", 0, "begun"),
        ("discard", "dlq_fast", 3, "done"),
    ]
    assert acts[0].info["filter"] == {"error": "boom"}
    assert {act.by for act in acts} == {"ada"}


def test_a_result_keeps_few_ids_however_many_there_were(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(450))
    result = dead.discard(EVERYTHING)
    assert (result.done, len(result.ids)) == (450, 50)
    assert result.as_dict()["done"] == 450
