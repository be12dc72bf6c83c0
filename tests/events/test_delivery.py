"""Whatever way an attempt ends in, the next one comes by the ladder, and the last one is the archive's.

One service with one worker for all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.events.rabbit import Rabbit
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stage(rabbit: Rabbit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(rabbit.url, tmp_path_factory.mktemp("delivery")) as stage:
        stage.worker("billing", "--pool", "prefork")
        yield stage


def archive(stage: Stage) -> str:
    return stage.name("billing") + ".v1.archive"


def archived(stage: Stage, rabbit: Rabbit, header: str, value: str) -> Any:
    """The archived message that says this, once it is there."""

    def found() -> Any:
        return [letter for letter in rabbit.peek(archive(stage)) if letter.headers.get(header) == value]

    (letter,) = stage.until(found)
    return letter


def put(rabbit: Rabbit, body: bytes, event: str, headers: dict[str, Any]) -> None:
    """Publish as any AMQP client could."""
    with rabbit.connect() as connection:
        channel = connection.default_channel
        message = channel.prepare_message(body, 0, "application/json", "utf-8", headers)
        channel.basic_publish(message, exchange="events", routing_key=event)


# --- the ways in which an attempt ends ------------------------------------------------------


@pytest.mark.parametrize("way", ["soft", "hard"])
def test_a_time_limit_is_an_attempt(stage: Stage, way: str) -> None:
    stage.publish("shop.order.slow", way)
    stage.until(lambda: len(stage.lines("slow", way=way)) == 2)
    first, second = stage.lines("slow", way=way)
    assert (first["retries"], second["retries"]) == (0, 1)
    assert second["at"] - first["at"] >= 1.95, "the limit, and a second on the ladder"


@pytest.mark.parametrize(("way", "failure"), [("exit", "WorkerLostError"), ("reject", "Reject")])
def test_a_lost_process_and_a_reject_are_attempts_and_the_last_is_archived(
    stage: Stage, rabbit: Rabbit, way: str, failure: str
) -> None:
    id = stage.publish("shop.order.deadly", way)
    letter = archived(stage, rabbit, "event_id", id)
    tries = stage.lines("deadly", id=id)
    assert [line["retries"] for line in tries] == [0, 1]
    assert tries[1]["at"] - tries[0]["at"] >= 0.95
    assert (letter.headers["failure_type"], letter.headers["retries"]) == (failure, 1)


def test_a_delay_is_the_sum_of_its_rungs(stage: Stage) -> None:
    id = stage.publish("shop.order.late", 4.5)
    stage.until(lambda: len(stage.lines("late", id=id)) == 2)
    first, second = stage.lines("late", id=id)
    assert second["at"] - first["at"] >= 4.5
    assert second["rungs"] == ["1s", "4s"], "5 s, and no other rung"
    assert second["retries"] == 1


def test_an_eta_is_a_delay(stage: Stage) -> None:
    id = stage.publish("shop.order.late", 1.5, eta=True)
    stage.until(lambda: len(stage.lines("late", id=id)) == 2)
    first, second = stage.lines("late", id=id)
    assert second["at"] - first["at"] >= 1.45
    assert second["rungs"] == ["2s"]


def test_a_long_delay_waits_on_the_broker_and_not_in_the_worker(stage: Stage, rabbit: Rabbit) -> None:
    names = stage.name("billing") + ".v1"
    stage.publish("shop.order.late", 1_000)
    stage.until(lambda: rabbit.count(f"{names}.retry.512s") == 1)
    stage.until(lambda: rabbit.unacked(f"{names}.event.shop.order.late") == 0)
    assert rabbit.count(f"{names}.event.shop.order.late") == 0


def test_what_no_retry_helps_is_archived_with_its_error(stage: Stage, rabbit: Rabbit) -> None:
    id = stage.publish("shop.stock.broken", "tea")
    letter = archived(stage, rabbit, "event_id", id)
    headers = letter.headers
    assert (headers["event"], headers["retries"]) == ("shop.stock.broken", 1)
    assert (headers["failure_type"], headers["failure_text"]) == ("ValueError", "tea is broken")
    assert "raise ValueError" in headers["failure_traceback"]
    assert letter.delivery_info["routing_key"] == "shop.stock.broken"


@pytest.mark.parametrize(
    ("event", "failure", "text", "retries"),
    [("cursed", "ValueError", "tea is cursed", 1), ("stuck", "TimeLimitExceeded", "TimeLimitExceeded", 0)],
)
def test_what_celery_itself_rejects_is_archived_with_its_error_too(
    stage: Stage, rabbit: Rabbit, event: str, failure: str, text: str, retries: int
) -> None:
    id = stage.publish(f"shop.stock.{event}", "tea")
    headers = archived(stage, rabbit, "event_id", id).headers
    assert (headers["failure_type"], headers["event"]) == (failure, f"shop.stock.{event}")
    assert text in headers["failure_text"]
    assert headers.get("retries", 0) == retries
    assert ("raise ValueError" in headers["failure_traceback"]) == (event == "cursed")


# --- what arrives twice, and what cannot be read --------------------------------------------


def test_a_plain_amqp_producer_needs_no_more_than_a_name_and_an_id(stage: Stage, rabbit: Rabbit) -> None:
    id = secrets.token_hex(8)
    put(rabbit, b'[[], {"number": 5}, {}]', "shop.order.placed", {"task": "shop.order.placed", "id": id})
    (line,) = stage.until(lambda: stage.lines("placed", id=id))
    assert line["number"] == 5


def test_an_event_that_arrives_twice_runs_once(stage: Stage, rabbit: Rabbit) -> None:
    id, last = secrets.token_hex(8), secrets.token_hex(8)
    for twice in (id, id, last):
        headers = {"task": "shop.order.placed", "id": twice}
        put(rabbit, b'[[], {"number": 6}, {}]', "shop.order.placed", headers)
    stage.until(lambda: stage.lines("placed", id=last))
    assert len(stage.lines("placed", id=id)) == 1
    # As a worker leaves it that dies after its retry was confirmed, and before its ack.
    for _ in range(2):
        again = {"task": "shop.order.placed", "id": id, "event_id": id, "retries": 1}
        put(rabbit, b'[[], {"number": 6}, {}]', "shop.order.placed", again)
    last = stage.publish("shop.order.placed", 6)
    stage.until(lambda: stage.lines("placed", id=last))
    assert [line["retries"] for line in stage.lines("placed", id=id)] == [0, 1]


def test_a_replay_is_no_duplicate(stage: Stage, rabbit: Rabbit) -> None:
    id = secrets.token_hex(8)
    for replays in (0, 1, 2):
        headers = {"task": "shop.order.placed", "id": id, "replays": replays}
        put(rabbit, b'[[], {"number": 7}, {}]', "shop.order.placed", headers)
    stage.until(lambda: len(stage.lines("placed", id=id)) == 3)


def test_what_cannot_be_read_is_archived_and_does_not_come_back(stage: Stage, rabbit: Rabbit) -> None:
    headers = {"task": "shop.order.placed", "id": secrets.token_hex(8)}
    put(rabbit, b"no JSON", "shop.order.placed", headers)
    assert archived(stage, rabbit, "id", headers["id"]).body == "no JSON"
    put(rabbit, b'{"no": "task"}', "shop.order.placed", {"mark": headers["id"]})
    letter = archived(stage, rabbit, "mark", headers["id"])
    assert (letter.headers["failure_type"], letter.headers["event"]) == (
        "UnknownMessage",
        "shop.order.placed",
    )
    assert letter.body == '{"no": "task"}'
    put(rabbit, b"[[], {}, {}]", "shop.stock.gone", {"task": "unknown.event", "id": "x", "event": "no.one"})
    assert archived(stage, rabbit, "event", "no.one").headers["failure_type"] == "NoHandler"
