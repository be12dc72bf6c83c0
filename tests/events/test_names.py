"""What a service and an event may be called, and which patterns mean which events."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.celery.events import names
from postroom.errors import InvalidInput


@pytest.mark.parametrize("name", ["", None, 5, "celery", "__main__", "a.b", "a b", "x" * 51])
def test_a_service_needs_a_name_of_its_own(name: object) -> None:
    with pytest.raises(InvalidInput):
        names.check_service(name)


@pytest.mark.parametrize("name", ["", ".", "a.", "a..b", "a.*", "#", "a b", None, "x" * 121])
def test_an_event_has_a_plain_name(name: object) -> None:
    with pytest.raises(InvalidInput):
        names.check_event(name)


@pytest.mark.parametrize("pattern", ["", "a.", "a*.b", "a.##", ".#"])
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        names.check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ("a.b", "a.b", True), ("a.b", "a.c", False), ("a.*", "a.b", True), ("a.*", "a", False),
        ("a.*", "a.b.c", False), ("#", "a", True), ("a.#", "a", True), ("a.#", "a.b.c", True),
        ("#.c", "a.b.c", True), ("a.#.c", "a.c", True), ("a.#.c", "a.b", False), ("*.#", "a", True),
    ],
)  # fmt: skip
def test_patterns_mean_what_they_mean_in_amqp(pattern: str, event: str, expected: bool) -> None:
    assert names.overlap(pattern, event) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.*", "*.b", True),
        ("a.*", "b.*", False),
        ("a.#", "#.z", True),
        ("*", "*.*", False),
        ("#", "*", True),
    ],
)
def test_two_patterns_can_mean_one_event(one: str, other: str, expected: bool) -> None:
    assert names.overlap(one, other) is expected
    assert names.overlap(other, one) is expected


_words = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5)
_plain = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=6)


@given(_words, _plain)
def test_matching_is_that_of_a_regular_expression(pattern: list[str], event: list[str]) -> None:
    parts = {"*": r"\.[^.]+", "#": r"(\.[^.]+)*"}
    expression = "".join(parts.get(word, r"\." + word) for word in pattern)
    expected = re.fullmatch(expression, "." + ".".join(event)) is not None
    assert names.overlap(".".join(pattern), ".".join(event)) is expected
