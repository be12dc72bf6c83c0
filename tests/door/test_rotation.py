"""The order between queues, by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from postroom.errors import InvalidInput
from postroom.rotation import Rotation


def gives(rotation: Rotation, times: int) -> list[str]:
    """Who gives when every queue always has something."""
    order = []
    for _ in range(times):
        first = rotation.sequence()[0]
        rotation.gave(first)
        order.append(first)
    return order


def test_round_robin() -> None:
    assert gives(Rotation(["a", "b", "c"]), 7) == list("abcabca")


def test_whoever_has_nothing_does_not_lose_its_place() -> None:
    rotation = Rotation(["a", "b", "c"])
    rotation.gave("b")
    rotation.gave("c")
    assert rotation.sequence() == ["a", "b", "c"]


def test_a_round_robin_can_be_joined_in_the_middle() -> None:
    for turn, order in enumerate(["abc", "bca", "cab", "abc"]):
        rotation = Rotation(["a", "b", "c"])
        rotation.begin_at(turn)
        assert "".join(rotation.sequence()) == order


@pytest.mark.parametrize("order", ["listed", "priority", "weighted"])
def test_no_other_order_can(order: Any) -> None:
    rotation = Rotation(["a", "b", "c"], order, urgency=lambda queue: 0)
    rotation.begin_at(1)
    assert rotation.sequence()[0] == "a"


def test_listed_stays_as_it_is() -> None:
    assert gives(Rotation(["b", "a"], "listed"), 4) == list("bbbb")


def test_priority_asks_for_the_urgency() -> None:
    urgency = {"a": 1, "b": 9, "c": -1}
    rotation = Rotation(["a", "b", "c"], "priority", urgency=urgency.__getitem__)
    assert rotation.sequence() == ["b", "a", "c"]
    urgency["b"] = 0
    assert rotation.sequence() == ["a", "b", "c"]
    assert rotation.sequence({"a": 0, "b": 0, "c": 1}.__getitem__)[0] == "c"


def test_among_equals_whoever_gave_comes_last() -> None:
    assert gives(Rotation(["a", "b", "c"], "priority", urgency=lambda queue: 5), 6) == list("abcabc")


@pytest.mark.parametrize("weights", [{"a": 3, "b": 1}, {"a": 1, "b": 5, "c": 2}, {"a": 7}])
def test_weights_come_out_exact_and_well_mixed(weights: dict[str, int]) -> None:
    names = ["a", "b", "c"]
    all_weights = {name: weights.get(name, 1) for name in names}
    total = sum(all_weights.values())
    order = gives(Rotation(names, "weighted", weights=weights), 10 * total)
    for start in range(0, 10 * total, total):
        assert Counter(order[start : start + total]) == all_weights


def test_a_weighted_queue_that_had_nothing_does_not_save_up_for_ever() -> None:
    """It may catch up on what it was owed, and its share is right again."""
    rotation = Rotation(["a", "b"], "weighted", weights={"a": 1, "b": 1})
    for _ in range(3):
        rotation.gave("a")
    assert Counter(gives(rotation, 23)) == {"a": 10, "b": 13}


def test_weights_are_shares_of_messages_however_many_come_at_once() -> None:
    rotation = Rotation(["a", "b"], "weighted", weights={"a": 3, "b": 1})
    given = Counter[str]()
    for turn in range(400):
        queue = rotation.sequence()[0]
        rotation.gave(queue, size := turn % 7 + 1)
        given[queue] += size
    # To the batch: 7 of some 1,600.
    assert abs(given["a"] - 3 * given["b"]) <= 4 * 7


def test_a_queue_is_named_once() -> None:
    assert Rotation(["a", "b", "a"]).queues == ["a", "b"]


@pytest.mark.parametrize(
    ("queues", "options"),
    [
        ([], {}),
        ("text", {}),
        (["a{b"], {}),
        (["a"], {"order": "random"}),
        (["a"], {"order": "weighted", "weights": {"a": 0}}),
        (["a"], {"order": "weighted", "weights": {"a": -1}}),
    ],
    ids=repr,
)
def test_what_makes_no_order_is_refused(queues: Any, options: Any) -> None:
    with pytest.raises(InvalidInput):
        Rotation(queues, **options)
