"""Ids: sortable, unique across threads and processes; replay ids and tokens."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.ids import is_id, new_id, new_token, replay_id

IDS = st.integers(0, 2**128 - 1).map(lambda value: f"{value:032x}")


def test_ids_sort_in_the_order_they_were_made() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(map(is_id, ids))


def test_an_id_begins_with_its_time() -> None:
    before = time.time_ns() // 1_000_000
    made = int(new_id()[:12], 16)
    assert before <= made <= time.time_ns() // 1_000_000


def test_ids_of_many_threads_are_unique_and_sorted_in_each() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def make(mine: list[str]) -> None:
        mine.extend(new_id() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({id for mine in made for id in mine}) == 16_000


def test_a_clock_that_steps_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 5_000, 4_000, 1_000, 6_000])
    new_id()
    far = time.time_ns() + 10**12
    monkeypatch.setattr(time, "time_ns", lambda: far + next(times) * 1_000_000)
    ids = [new_id() for _ in range(5)]
    assert ids == sorted(set(ids))
    new_id.restart()  # do not leave the future behind for the tests to come


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_ids_of_its_own() -> None:
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(writer)
    ours = {new_id() for _ in range(100)}
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    theirs = {text[start : start + 32] for start in range(0, len(text), 32)}
    assert len(theirs) == 100
    assert not ours & theirs


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n", " " + "0" * 31, "٣" * 32]
)
def test_what_is_no_id(text: str) -> None:
    assert not is_id(text)


@given(IDS, st.integers(1, 1_000))
def test_a_replay_id_is_an_id_and_always_the_same(old: str, number: int) -> None:
    assert is_id(replay_id(old, number))
    assert replay_id(old, number) == replay_id(old, number) != old


@given(IDS, IDS, st.integers(1, 50), st.integers(1, 50))
def test_replay_ids_differ_by_message_and_by_number(one: str, two: str, first: int, second: int) -> None:
    same = (one, first) == (two, second)
    assert (replay_id(one, first) == replay_id(two, second)) == same


@given(IDS)
def test_a_replay_sorts_near_its_message(old: str) -> None:
    assert replay_id(old, 1)[:12] == old[:12]


def test_tokens_do_not_repeat() -> None:
    assert len({new_token() for _ in range(1_000)}) == 1_000
