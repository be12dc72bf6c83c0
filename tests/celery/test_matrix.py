"""The queue matrix and Celery: real workers retry, give up and hold back as postroom.toml says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.deadletters import DeadLetter, DeadLetters
from postroom.room import Room
from tests.celery.workers import Shop
from tests.dead.letters import check_fields

pytestmark = pytest.mark.timeout(600)

APP = "tests.celery.matrix_app"
MATRIX = """
[queues.work]
tasks = ["work.*"]
visibility_timeout = "1m"
retries = 2
backoff = "2^n * 20ms"
dead_letter = "dlq_work"

[queues.brief]
tasks = ["brief.*"]
visibility_timeout = "9s"
lease = "8s"
retries = 1
backoff = "20ms"

[queues.few]
tasks = ["few.*"]
concurrency = 2

[roles.both]
queues = ["work", "few"]
concurrency = 6
prefetch = 0

[roles.holding]
queues = ["few"]
concurrency = 2
prefetch = 3
stop_timeout = "1s"

[roles.unfair]
queues = ["a", "b"]
order = "weighted"
weights = { a = 3 }
prefetch = 0

[roles.urgent]
queues = ["a", "b"]
order = "priority"
prefetch = 0
"""


WORKER = ("--queues", "work,brief,few", "--pool", "prefork", "--concurrency", "2")


def dead(shop: Shop, room: Room, count: int = 1) -> list[DeadLetter]:
    letters = DeadLetters(room)

    def found() -> list[DeadLetter]:
        there = letters.find().letters if room.queues() else []
        return there if len(there) >= count else []

    return list(shop.until(found, f"{count} dead letters"))


def tries(shop: Shop, label: str) -> list[int]:
    return [line["retries"] for line in shop.lines("try", label)]


# ---- retries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_task_that_says_nothing_is_retried_by_its_queue_and_then_dead(
    shop: Shop, room: Room, pool: str
) -> None:
    shop.worker("--queues", "work", "--pool", pool, "--concurrency", "2")
    id = shop.python("print(fail.delay('a').id)")
    (letter,) = dead(shop, room)
    assert tries(shop, "a") == [0, 1, 2]
    shown = letter.as_dict()
    assert (shown["task_id"], shown["task_name"], shown["queue"]) == (id, "work.fail", "work")
    assert (shown["args"], shown["kwargs"], shown["retries"]) == (["a"], {}, 2)
    assert shown["exception"] == "ValueError: order a has no customer"
    assert "raise ValueError" in shown["traceback"]
    assert (shown["classification"], len(shown["attempts"])) == ("exception", 3)
    assert all("no customer" in attempt["error"] for attempt in shown["attempts"])
    check_fields(shown, raised=True)
    assert [each.id for each in DeadLetters(room, "dlq_work").find().letters] == [letter.id]


def test_what_recovers_in_time_is_done_and_never_dead(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    assert shop.python("print(fail.delay('a', 2).get(timeout=90))") == "a"
    shop.until(lambda: room.engine.stats("work").processing == 0)
    stats = room.engine.stats("work")
    assert (stats.dead, stats.depth, stats.counters["put"]) == (0, 0, 1)


def test_a_task_that_asks_for_its_retries_gets_those_of_its_queue(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    shop.python("asks.delay('a')")
    (letter,) = dead(shop, room)
    assert (tries(shop, "a"), letter.retries) == ([0, 1, 2], 2)
    assert letter.failure.summary == "KeyError: 'a'"


def test_more_retries_than_the_queue_allows_are_made_if_the_task_says_so(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    shop.python("stubborn.delay('a')")
    (letter,) = dead(shop, room)
    assert (tries(shop, "a"), letter.retries) == ([0, 1, 2, 3, 4], 4)
    assert room.engine.stats("work").depth == 0


# ---- every way to give up --------------------------------------------------------------------------


def test_an_early_acked_task_that_fails_for_good_is_a_dead_letter_too(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    id = shop.python("print(early.delay('a', amount=3).id)")
    (letter,) = dead(shop, room)
    assert (tries(shop, "a"), letter.retries) == ([0, 1, 2], 2)
    assert (letter.call.task_id, letter.call.args, letter.call.kwargs) == (id, ["a"], {"amount": 3})
    assert letter.failure.summary == "OSError: the printer is on fire"
    assert "raise OSError" in letter.failure.traceback
    check_fields(letter.as_dict(), raised=True)


def test_what_is_rejected_unknown_or_expired_is_dead_at_once(shop: Shop, room: Room) -> None:
    code = """
refuse.delay("a")
app.send_task("work.nobody_knows", ["b"])
fail.apply_async(["c"], expires=-1)
"""
    shop.python(code)
    shop.worker(*WORKER)
    letters = {letter.call.task_name: letter for letter in dead(shop, room, 3)}
    assert {name: str(letter.classification) for name, letter in letters.items()} == {
        "work.refuse": "rejected", "work.nobody_knows": "undecodable", "work.fail": "expired",
    }  # fmt: skip
    assert letters["work.refuse"].failure.summary == "Reject: no template"
    assert len(shop.lines("try")) == 1
    for name, letter in letters.items():
        assert (letter.call.args, letter.call.kwargs) == (
            [{"work.refuse": "a", "work.fail": "c"}.get(name, "b")],
            {},
        )
        check_fields(letter.as_dict())


@pytest.mark.parametrize(
    ("broker", "pool"), [("redis", "prefork"), ("sqlite", "threads"), ("sqlite", "solo")], indirect=["broker"]
)
def test_what_cannot_be_decoded_is_a_dead_letter_and_not_acked_away(
    shop: Shop, room: Room, pool: str
) -> None:
    code = """
def publish(body, id=None, encoding="utf-8", type="application/json", **headers):
    headers |= {"task": "work.fail", "id": id} if id else {}
    told = {"content_type": type, "content_encoding": encoding, "headers": headers}
    with app.producer_or_acquire() as producer:
        producer.publish(body, routing_key="work", **told)

publish('[["a"], {', "garbled")
publish(b"\\xff\\xfe", "bytes")
publish("x", "packed", compression="application/x-gzip")
publish(b'[["a"]', "charset", encoding="no-such-code")
publish(b"\\x80\\x04N.", "pickle", "binary", "application/x-python-serialize")
publish("{no")
publish('{"a": 1}')
fail.delay("healthy", 0)
"""
    shop.python(code)
    shop.worker("--queues", "work", "--pool", pool, "--concurrency", "1")
    letters = {letter.call.task_id: letter for letter in dead(shop, room, 7)}
    shop.until(lambda: shop.lines("done", "healthy"))
    assert {str(letter.classification) for letter in letters.values()} == {"undecodable"}, letters
    types = {id: letter.failure.type for id, letter in letters.items()}
    assert {id: types[id] for id in types if len(id) < 10} == {
        "garbled": "DecodeError", "bytes": "DecodeError", "packed": "DecodeError", "charset": "DecodeError",
        "pickle": "ContentDisallowed",
    }  # fmt: skip
    assert sorted(types[id] for id in types if len(id) > 10) == ["DecodeError", "InvalidTaskError"]
    assert letters["garbled"].as_dict()["args"] == ['[["a"], {']
    for letter in letters.values():
        check_fields(letter.as_dict(), raised=letter.failure.type != "InvalidTaskError")
    shop.until(lambda: room.engine.stats("work").processing == 0)
    assert room.engine.stats("work").counters["acked"] == 1


def test_a_task_that_kills_its_process_is_a_crash_loop_and_takes_nobody_along(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    shop.python("die.delay('killer'); [fail.delay(f'b{n}', 0) for n in range(10)]")
    (letter,) = dead(shop, room)
    assert len(shop.lines("try", "killer")) == 3
    assert (str(letter.classification), letter.failure.type) == ("crash-loop", "WorkerLostError")
    check_fields(letter.as_dict(), raised=True)
    shop.until(lambda: len(shop.lines("done")) == 10)


def test_a_task_that_takes_too_long_is_stopped_before_another_begins_it(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    shop.python("sleep.delay('a', 60)")
    (letter,) = dead(shop, room)
    assert len(shop.lines("try", "a")) == 2, (letter.failure, letter.attempts)
    assert str(letter.classification) == "timeout", (letter.failure, letter.attempts, shop.workers[0].log())
    assert letter.failure.type in ("TimeLimitExceeded", "AckTimeout")
    # The pool that stops it has a traceback, an engine that takes it back has none.
    check_fields(letter.as_dict(), raised=bool(letter.failure.traceback))


def test_a_replay_begins_anew_whatever_celery_said_of_the_first_time(shop: Shop, room: Room) -> None:
    shop.worker(*WORKER)
    late = shop.python("print(fail.apply_async(['late', 0], expires=-1).id)")
    early = shop.python("print(early.delay('a', amount=3).id)")
    dead(shop, room, 2)
    result = DeadLetters(room).replay([late, early])
    assert (result.done, result.refused) == (2, 0)
    shop.until(lambda: shop.lines("done", "late"))
    dead(shop, room, 3)
    assert tries(shop, "a") == [0, 1, 2, 0, 1, 2]


# ---- how much at once ------------------------------------------------------------------------------


def test_a_queue_has_no_more_of_a_worker_than_its_concurrency(shop: Shop, room: Room, tmp_path: Path) -> None:
    worker = shop.worker("--queues", "work,few", "--pool", "threads", "--concurrency", "6")
    gate = tmp_path / "gate"
    shop.python(f"[hold.delay(str(n), {str(gate)!r}) for n in range(6)]; fail.delay('beside', 0)")
    shop.until(lambda: shop.lines("done", "beside"))
    shop.until(lambda: len(shop.lines("begin")) == 2)
    assert room.engine.stats("few").processing == 2
    assert room.engine.stats("few").ready == 4
    gate.touch()
    shop.until(lambda: len(shop.lines("end")) == 6)
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("broker", "pool"), [("redis", "prefork"), ("sqlite", "threads")], indirect=["broker"]
)
def test_tasks_that_are_acked_early_count_to_it_while_they_run(
    shop: Shop, room: Room, tmp_path: Path, pool: str
) -> None:
    shop.worker("--queues", "work,few", "--pool", pool, "--concurrency", "6")
    gate = tmp_path / "gate"
    shop.python(f"[hold_early.delay(str(n), {str(gate)!r}) for n in range(6)]")
    shop.until(lambda: len(shop.lines("begin")) == 2)
    shop.python("fail.delay('beside', 0)")
    shop.until(lambda: shop.lines("done", "beside"))
    shop.until(lambda: room.engine.stats("few").processing == 0)
    assert (len(shop.lines("begin")), room.engine.stats("few").ready) == (2, 4)
    gate.touch()
    shop.until(lambda: len(shop.lines("end")) == 6, "nobody looks whether they are over")


# ---- commands --------------------------------------------------------------------------------------


def answers(shop: Shop, *command: str) -> dict[str, Any]:
    found = json.loads(shop.celery(*command, "--json", "--timeout", "30"))
    each = found if isinstance(found, list) else [found]
    return {worker: said for one in each for worker, said in one.items()}


def test_celery_shows_dead_letters_and_retries_them(shop: Shop, room: Room) -> None:
    worker = shop.worker(*WORKER)
    me = ["--destination", f"{worker.name}@shop"]
    id = shop.python("print(fail.delay('a', 3).id)")
    (letter,) = dead(shop, room)
    (shown,) = answers(shop, "inspect", *me, "dead", "dlq_work").values()
    assert shown["letters"] == [letter.as_dict()]
    assert [group["count"] for group in shown["groups"]] == [1]
    (said,) = answers(shop, "control", *me, "retry", id).values()
    assert said["ok"].startswith(f"replayed {id} as ")
    shop.until(lambda: len(shop.lines("try", "a")) == 6)
    again = dead(shop, room, 2)
    assert {each.call.task_id for each in again} == {id}
    (said,) = answers(shop, "control", *me, "retry", "nobody").values()
    assert "no dead letter nobody" in said["error"]
