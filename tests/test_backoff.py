"""How long to wait before the next attempt."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.backoff import Backoff
from postroom.duration import MAX_SPAN
from postroom.errors import InvalidInput

BACKOFFS = st.builds(
    Backoff, unit=st.integers(0, 10**9), factor=st.floats(1, 1_000), cap=st.integers(0, MAX_SPAN)
)
ATTEMPTS = st.integers(0, 10_000)


def test_a_constant_backoff() -> None:
    backoff = Backoff.parse("5s")
    assert [backoff.delay(attempt) for attempt in range(3)] == [5_000, 5_000, 5_000]


def test_an_exponential_backoff_begins_with_its_unit() -> None:
    backoff = Backoff.parse("2^n * 5s")
    assert [backoff.delay(attempt) for attempt in range(4)] == [5_000, 10_000, 20_000, 40_000]


def test_a_backoff_stops_at_its_cap() -> None:
    assert Backoff.parse("2^n * 5s", cap=12_000).delay(2) == 12_000
    assert Backoff.parse("10^n * 1d", cap=60_000).delay(10**9) == 60_000


@pytest.mark.parametrize("text", ["2^n * 5s", "2^n*5s", " 2 ^ n * 5s ", "2.0^n * 5000ms"])
def test_spelling_does_not_matter(text: str) -> None:
    assert Backoff.parse(text) == Backoff(unit=5_000, factor=2.0)


@pytest.mark.parametrize(
    "text", ["", "x", "2^n", "n^2 * 5s", "0.5^n * 5s", "0^n * 5s", "2^n * x", "-5s", "2^m * 5s", 5, None]
)
def test_what_is_no_backoff_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput, match="backoff"):
        Backoff.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["5s", "1h30m", "2^n * 5s", "1.5^n * 250ms", "0s"])
def test_a_backoff_is_written_as_it_was_read(text: str) -> None:
    assert str(Backoff.parse(text)) == text


@given(st.integers(0, MAX_SPAN), st.integers(100, 9_999))
def test_a_written_backoff_reads_back_as_itself(unit: int, factor: int) -> None:
    backoff = Backoff(unit=unit, factor=factor / 100)
    assert Backoff.parse(str(backoff)) == backoff


@given(BACKOFFS, ATTEMPTS)
def test_a_wait_is_never_beyond_the_cap(backoff: Backoff, attempt: int) -> None:
    assert 0 <= backoff.delay(attempt) <= backoff.cap


@given(BACKOFFS, ATTEMPTS)
def test_a_later_attempt_never_waits_less(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1)


@given(BACKOFFS, ATTEMPTS, st.randoms(use_true_random=False))
def test_jitter_stays_between_nothing_and_the_whole_wait(
    backoff: Backoff, attempt: int, jitter: random.Random
) -> None:
    assert 0 <= backoff.delay(attempt, jitter) <= backoff.delay(attempt)


def test_jitter_is_spread_over_the_whole_wait() -> None:
    backoff, jitter = Backoff.parse("10s"), random.Random(7)
    waits = [backoff.delay(0, jitter) for _ in range(2_000)]
    tenths = {wait * 10 // 10_001 for wait in waits}
    assert tenths == set(range(10))
    assert 4_500 < sum(waits) / len(waits) < 5_500
