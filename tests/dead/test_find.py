"""Finding dead letters: by name, by filter, in pages, within bounds that are told."""

from __future__ import annotations

import pytest

from postroom.deadletters import DeadLetters, Filter
from postroom.deadletters.finding import Found
from postroom.errors import InvalidInput, NotFound
from postroom.model import Failure
from postroom.policy import Policy
from postroom.room import Room
from tests.dead.letters import BOOM, FAST, HEAVY, bury

TIMED_OUT = Failure(type="TimeoutError", text="timed out after 5 s", traceback="…")


def found(dead: DeadLetters, **conditions: object) -> set[str]:
    return {letter.id for letter in dead.find(Filter(**conditions)).letters}  # type: ignore[arg-type]  # any condition


def test_a_dead_letter_name_is_a_view_over_its_queues(room: Room) -> None:
    chat, fast, heavy = (bury(room, queue, {})[0] for queue in (*FAST, *HEAVY))
    assert found(DeadLetters(room, "dlq_fast")) == {chat, fast}
    assert found(DeadLetters(room, "dlq_heavy")) == {heavy}
    assert found(DeadLetters(room, "chat_events")) == {chat}
    assert found(DeadLetters(room)) == {chat, fast, heavy}


def test_a_name_that_means_nothing_is_not_found_and_the_names_are_told(room: Room) -> None:
    with pytest.raises(NotFound, match=r"the queues 'chat_events', .* and the names 'dlq_fast', 'dlq_heavy'"):
        DeadLetters(room, "dlq_slow").find()


def test_what_to_do_about_letters_is_told_by_queue(room: Room) -> None:
    room.queue("chat_events", Policy(dead_letter="dlq_fast", on_dead="replay after the fix"))
    room.queue("heavy_payouts", Policy(dead_letter="dlq_heavy", on_dead="escalate to finance"))
    assert DeadLetters(room, "dlq_fast").on_dead() == {"chat_events": "replay after the fix"}
    assert DeadLetters(room).on_dead().keys() == {"chat_events", "heavy_payouts"}
    assert DeadLetters(room).on_dead(["heavy_payouts"]) == {"heavy_payouts": "escalate to finance"}


def test_a_name_may_mean_queues_without_letters(room: Room) -> None:
    assert DeadLetters(room, "dlq_fast").find() == Found([], 0, True, None)


def test_a_page_is_bounded_in_bytes_too(room: Room, dead: DeadLetters) -> None:
    """All of it is in memory at once, and a server shows it to anybody who may look."""
    made = [id for _ in range(20) for id in bury(room, "chat_events", "x" * 2**21)]
    first = dead.find(limit=1_000)
    assert (16 <= len(first.letters) < 20, first.complete) == (True, False)
    rest = dead.find(limit=1_000, cursor=first.cursor)
    assert rest.complete and [each.id for each in first.letters + rest.letters] == made


def test_each_condition_narrows(room: Room, dead: DeadLetters) -> None:
    (slow,) = bury(room, "chat_events", {"user": {"id": 42}}, failure=TIMED_OUT, kind="chat.send")
    (wrong,) = bury(room, "chat_events", {"user": {"id": 7}, "tags": ["a"]}, correlation_id="task-7")
    assert found(dead, kind="chat.send") == {slow}
    assert found(dead, error="TIMED OUT") == {slow}
    assert found(dead, error="ValueError") == {wrong}
    assert found(dead, classification="timeout") == {slow}
    assert found(dead, where={"user.id": "42"}) == {slow}
    assert found(dead, where={"tags.0": "a"}) == {wrong}
    assert found(dead, where={"tags.1": "a"}) == set()
    assert found(dead, where={"user": '{"id":7}'}) == {wrong}
    assert found(dead, task="task-7") == {wrong}
    assert found(dead, task=slow) == {slow}
    assert found(dead, group=dead.get(slow).group) == {slow}
    assert found(dead, attempts=1) == set()
    assert found(dead, attempts=0, error="o", kind="chat.send") == {slow}
    assert found(dead, older="1h") == set()
    assert found(dead, newer="1h") == {slow, wrong}
    first, last = sorted(dead.get(id).died_at for id in (slow, wrong))
    assert found(dead, since=first, until=last + 1) == {slow, wrong}
    assert found(dead, until=first) == found(dead, since=last + 1) == set()


def test_what_was_replayed_can_be_left_out(room: Room, dead: DeadLetters) -> None:
    first, second = bury(room, "chat_events", {}, {})
    room.queue("chat_events").replay(first)
    assert found(dead, replayed=True) == {first}
    assert found(dead, replayed=False) == {second}


def test_celery_arguments_are_searched_by_keyword(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "jobs", [[1], {"invoice": 7}, {}], headers={"task": "pay", "id": "t-1"})
    assert found(dead, where={"invoice": "7"}) == {id}
    assert found(dead, where={"kwargs.invoice": "7", "args.0": "1"}) == {id}
    assert found(dead, kind="pay") == {id}


def test_pages_go_on_from_their_cursor_over_all_queues(room: Room) -> None:
    view = DeadLetters(room, "dlq_fast")
    expected = bury(room, "chat_events", *range(7)) + bury(room, "fast_default", *range(5))
    seen: list[str] = []
    cursor = None
    while True:
        page = view.find(limit=3, cursor=cursor)
        assert len(page.letters) <= 3
        seen += [letter.id for letter in page.letters]
        cursor = page.cursor
        if page.complete:
            break
    assert sorted(seen) == sorted(expected)
    assert len(seen) == len(set(seen))


def test_a_page_is_no_longer_than_asked_for_also_with_a_filter(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *({"n": number % 3} for number in range(60)))
    seen: list[str] = []
    cursor = None
    while True:
        page = dead.find(Filter(where={"n": "1"}), limit=7, cursor=cursor)
        assert len(page.letters) <= 7
        seen += [letter.id for letter in page.letters]
        if page.complete:
            break
        cursor = page.cursor
    assert len(seen) == len(set(seen)) == 20


def test_a_search_that_stops_at_a_bound_says_so(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", *range(300))
    page = dead.find(Filter(error="nothing"), max_rows=200)
    assert (page.letters, page.scanned, page.complete, page.stopped_by) == ([], 200, False, "rows")
    rest = dead.find(Filter(error="nothing"), cursor=page.cursor)
    assert (rest.scanned, rest.complete, rest.stopped_by) == (100, True, None)
    hasty = dead.find(Filter(error="nothing"), max_seconds=0)
    assert (hasty.scanned, hasty.complete, hasty.stopped_by) == (0, False, "time")
    assert dead.find(limit=10).stopped_by == "limit"


def test_a_letter_is_got_by_its_id_and_by_its_task(room: Room, dead: DeadLetters) -> None:
    (id,) = bury(room, "heavy_payouts", {}, correlation_id="task-1")
    assert dead.get(id).id == dead.get("task-1").id == id
    with pytest.raises(NotFound, match="there is no dead letter"):
        dead.get("0" * 32)
    with pytest.raises(NotFound):
        DeadLetters(room, "dlq_fast").get(id)


def test_what_waits_or_works_is_no_dead_letter(room: Room, dead: DeadLetters) -> None:
    put = room.queue("chat_events").put({}, correlation_id="task-1")
    with pytest.raises(NotFound):
        dead.get(put.id)
    with pytest.raises(NotFound):
        dead.get("task-1")


def test_a_moment_is_written_with_its_zone() -> None:
    parsed = Filter.parse(["since=2026-11-17T10:00:00Z", "until=2026-11-17T12:00:00.250+01:00"])
    assert (parsed.since, parsed.until) == (1_794_909_600_000, 1_794_913_200_250)
    for text in ("soon", "2026-11-17T10:00:00"):
        with pytest.raises(InvalidInput, match="with a time zone"):
            Filter.parse([f"since={text}"])


@pytest.mark.parametrize(
    "conditions",
    [
        {"classification": "sad"},
        {"older": "soon"},
        {"attempts": -1},
        {"where": dict.fromkeys("abcdefghijklmnopqrstuvw", "")},
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(conditions: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Filter(**conditions)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("cursor", ["", "nonsense", "x@chat_events"])
def test_a_cursor_of_somebody_else_is_refused(room: Room, dead: DeadLetters, cursor: str) -> None:
    bury(room, "chat_events", {})
    with pytest.raises(InvalidInput):
        dead.find(cursor=cursor)


def test_a_group_is_named_by_its_beginning(room: Room, dead: DeadLetters) -> None:
    bury(room, "chat_events", {}, failure=Failure(type="A", fingerprint="abcd1"))
    (other,) = bury(room, "chat_events", {}, failure=Failure(type="A", fingerprint="abce2"))
    assert found(dead, group="abce") == {other}
    with pytest.raises(InvalidInput, match="2 groups begin like this"):
        dead.find(Filter(group="abc"))
    assert found(dead, group="zzz") == set()


def test_retention_is_counted(room: Room, dead: DeadLetters) -> None:
    from postroom.policy import Policy

    room.queue("jobs", Policy(dead_limit=2))
    bury(room, "jobs", *range(5), failure=BOOM)
    assert dead.evicted() == 3
