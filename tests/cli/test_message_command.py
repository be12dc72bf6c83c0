"""`postroom message`: put, look, and what an operator does to one."""

from __future__ import annotations

import io
import json

import pytest

from postroom.errors import LeaseLost
from postroom.ids import new_id
from postroom.model import State
from postroom.policy import Policy
from postroom.room import Room
from tests.cli.inside import Inside
from tests.door.staging import taken

# ---- Find -----------------------------------------------------------------------------------------


def test_find_looks_for_a_kind_in_every_queue(inside: Inside, seen: Room) -> None:
    first = seen.queue("a").put(1, kind="shop.pay").id
    second = seen.queue("b").put(1, kind="shop.Pay", delay="1h").id
    seen.queue("b").put(1, kind="mail.send")
    found = inside.run("message", "find", "PAY", "--json").json
    assert [each["id"] for each in found["messages"]] == [first, second]
    assert (found["scanned"], found["complete"]) == (3, True)
    out = inside.run("message", "find", "shop.", "--queue", "b", "--state", "scheduled").out
    assert second in out and first not in out
    assert "there are more" in inside.run("message", "find", "pay", "--limit", "1").err


# ---- Put ------------------------------------------------------------------------------------------


def test_put_keeps_a_message_with_everything_said_about_it(inside: Inside, seen: Room) -> None:
    ran = inside.run(
        "message", "put", "emails", '{"to": 12345678901234567890}', "--kind", "welcome", "--priority", "high",
        "--header", "trace=a=b", "--correlation-id", "c1", "--unique-key", "u1", "--expires", "2h",
        "--delay", "1h",
    )  # fmt: skip
    entry = seen.queue("emails").get(ran.out.strip())
    message = entry.message
    assert (message.kind, message.priority, message.headers) == ("welcome", 10, {"trace": "a=b"})
    assert (message.correlation_id, message.unique_key, entry.state) == ("c1", "u1", State.SCHEDULED)
    assert message.body == b'{"to": 12345678901234567890}'
    assert message.expires == message.put_at + 7_200_000
    assert entry.due == message.put_at + 3_600_000


def test_put_says_whether_the_message_is_new(inside: Inside, seen: Room) -> None:
    id = new_id()
    assert inside.run("message", "put", "q", "1", "--id", id, "--json").json == {"id": id, "created": True}
    assert inside.run("message", "put", "q", "1", "--id", id, "--json").json == {"id": id, "created": False}
    assert seen.queue("q").stats().ready == 1


def test_put_is_counted_for_its_rate_key(inside: Inside, seen: Room) -> None:
    seen.queue("q", policy=Policy(put_rate="2/h"))
    inside.run("message", "put", "q", "--lines", "--rate-key", "ada", stdin="1\n2\n")
    inside.run("message", "put", "q", "3", "--rate-key", "bob")
    refused = inside.run("message", "put", "q", "4", "--rate-key", "ada", code=1)
    assert "takes 2/h of one rate_key" in refused.err
    assert seen.queue("q").stats().ready == 3


def test_a_body_comes_from_stdin_as_text_or_json(inside: Inside, seen: Room) -> None:
    inside.run("message", "put", "q", stdin="[1, 2]\n")
    inside.run("message", "put", "q", "-", "--text", "--priority", "0", stdin="hällo {")
    assert [taken(seen.queue("q")).body for _ in range(2)] == [[1, 2], "hällo {"]


def test_every_line_is_a_message(inside: Inside, seen: Room) -> None:
    lines = "".join(f"{n}\n\n" for n in range(2_500))
    ids = inside.run("message", "put", "q", "--lines", stdin=lines).out.split()
    assert len(set(ids)) == seen.queue("q").stats().ready == 2_500
    assert [taken(seen.queue("q")).body for _ in range(3)] == [0, 1, 2]
    out = inside.run("message", "put", "q", "--lines", "--json", stdin="1\n2").out
    assert [json.loads(line)["created"] for line in out.splitlines()] == [True, True]


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (["hello"], "", "body: it is not JSON"),
        (["--lines"], "1\n{\n", "line 2: it is not JSON"),
        (["1", "--lines"], "", "--lines reads JSON from stdin"),
        (["--lines", "--id", "0" * 32], "1\n", "id: it names one message"),
        (["1", "--at", "tomorrow"], "", "at: 'tomorrow' is no moment"),
        (["1", "--at", "2026-01-02T03:04:05"], "", "has no time zone"),
        (["1", "--header", "x"], "", "header: 'x' is not NAME=TEXT"),
        (["1", "--priority", "urgent"], "", "priority: 'urgent' is not one of low, normal, high"),
        (["1", "--priority", "²"], "", "priority: '²' is not one of low, normal, high"),
        (["1", "--delay", "soon"], "", "delay: 'soon' is not a duration"),
        (["1", "--expires", "0s"], "", "expires: a message must expire after now"),
        (["--text"], "\udcff", "body: it is not UTF-8"),
        ([], "\udcff", "body: it is not UTF-8"),
        (["--lines"], "1\n\udcff\n", "line 2: it is not UTF-8"),
        (["\udcff", "--text"], "", "body: it is not UTF-8"),
    ],
)
def test_what_cannot_be_put_is_one_line(
    inside: Inside, seen: Room, args: list[str], stdin: str, says: str
) -> None:
    ran = inside.run("message", "put", "q", *args, stdin=stdin, code=2)
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert seen.queue("q").stats().depth == 0


@pytest.mark.parametrize(("how", "where"), [(["--text"], "body"), ([], "body"), (["--lines"], "line 1")])
def test_bytes_that_are_no_text_are_one_line(inside: Inside, seen: Room, how: list[str], where: str) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8")  # as in any locale but C
    ran = inside.run("message", "put", "q", *how, stdin=stdin, code=2)
    assert ran.err == f"postroom: {where}: it is not UTF-8 text\n"


# ---- Show -----------------------------------------------------------------------------------------


def test_show_tells_the_story_of_a_message(inside: Inside, seen: Room) -> None:
    queue = seen.queue("emails")
    id = queue.put({"to": "ada"}, kind="welcome", max_attempts=2).id
    taken(queue).fail("first", after=0)
    taken(queue).fail(ValueError("second"))
    shown = inside.run("message", "show", id, "--json").json
    assert (shown["state"], shown["queue"], shown["body"], shown["attempt"]) == (
        "dead", "emails", {"to": "ada"}, 2,
    )  # fmt: skip
    assert [attempt["error"] for attempt in shown["attempts"]] == ["Failed: first", "ValueError: second"]
    assert shown["failure"]["type"] == "ValueError"
    assert shown["put_at"].endswith("Z")
    out = inside.run("message", "show", id).out
    assert "ValueError: second" in out
    assert '{"to": "ada"}' in out


def test_stored_tells_what_the_store_itself_keeps(inside: Inside, seen: Room) -> None:
    id = seen.queue("q").put({"n": 1}, kind="mail").id
    told = json.loads(inside.run("message", "stored", id, "--json").out)
    assert "mail" in told.values()
    assert '{"n":1}' in told.values()
    inside.run("message", "stored", "0" * 32, code=3)


def test_show_never_gives_the_token_away(inside: Inside, seen: Room) -> None:
    queue = seen.queue("emails")
    queue.put(b"\xff\x00")
    delivery = taken(queue)
    ran = inside.run("message", "show", delivery.id, "--json")
    assert ran.json["state"] == "processing"
    assert ran.json["body_base64"] == "/wA="
    assert delivery.receipt.token not in ran.out


def test_an_id_alone_is_enough_unless_several_queues_have_it(inside: Inside, seen: Room) -> None:
    id = seen.queue("a").put("x").id
    seen.queue("b").put("y")
    assert inside.run("message", "show", id, "--json").json["queue"] == "a"
    seen.queue("b").put("z", id=id)
    assert "in a, b: name one of them with --queue" in inside.run("message", "show", id, code=4).err
    assert inside.run("message", "show", id, "--queue", "b", "--json").json["body"] == "z"


# ---- Operate --------------------------------------------------------------------------------------


def test_a_waiting_message_is_moved_in_time_and_cancelled(inside: Inside, seen: Room) -> None:
    queue = seen.queue("q")
    id = queue.put("x", delay="1h").id
    inside.run("message", "run-now", id)
    assert queue.get(id).state is State.READY
    inside.run("message", "reschedule", id, "--delay", "2h")
    entry = queue.get(id)
    assert entry.state is State.SCHEDULED
    inside.run("message", "reschedule", id, "--at", "2050-01-02T03:04:05Z")
    assert inside.run("message", "show", id, "--json").json["due"] == "2050-01-02T03:04:05.000Z"
    done = inside.run("message", "cancel", id, "--json").json
    assert done == {"id": id, "queue": "q", "done": "cancelled"}
    said = inside.run("message", "show", id, code=3).err
    assert said.endswith(f"postroom: there is no message {id} in any queue\n")


def test_work_is_extended_and_taken_away(inside: Inside, seen: Room) -> None:
    queue = seen.queue("q")
    queue.put("x")
    delivery = taken(queue)
    before = queue.get(delivery.id).deadline
    inside.run("message", "extend", delivery.id, "--by", "1h")
    after = queue.get(delivery.id).deadline
    assert before is not None
    assert after is not None
    assert after > before + 3_000_000
    inside.run("message", "release", delivery.id)
    assert queue.get(delivery.id).state is State.READY
    with pytest.raises(LeaseLost):
        delivery.ack()
    again = taken(queue)
    inside.run("message", "bury", again.id, "--reason", "it never ends")
    buried = queue.get(again.id)
    assert (buried.state, buried.last_error) == (State.DEAD, "Bury: it never ends")
    with pytest.raises(LeaseLost):
        again.ack()


def test_work_is_cancelled_only_if_that_is_said(inside: Inside, seen: Room) -> None:
    queue = seen.queue("q")
    queue.put("x")
    delivery = taken(queue)
    assert "cannot do cancel" in inside.run("message", "cancel", delivery.id, code=4).err
    inside.run("message", "cancel", delivery.id, "--processing")
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert queue.stats().counters["cancelled"] == 1


@pytest.mark.parametrize("verb", ["cancel", "run-now", "reschedule", "release", "bury", "extend"])
def test_what_does_not_fit_its_state_is_a_conflict(inside: Inside, seen: Room, verb: str) -> None:
    queue = seen.queue("q")
    id = queue.put("x").id
    taken(queue).bury("dead")
    more = ["--delay", "1s"] if verb == "reschedule" else []
    assert inside.run("message", verb, id, *more, code=4).err.count("\n") == 1
    inside.run("message", verb, new_id(), *more, code=3)
    assert "32 lower-case hex digits" in inside.run("message", verb, "abc", *more, code=2).err
    assert queue.get(id).state is State.DEAD
