"""A delay is made of rungs: exact to the second, never early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.celery.events.ladder import LONGEST, Ladder
from postroom.errors import InvalidInput


def test_a_delay_is_the_sum_of_its_rungs() -> None:
    taken, rest = Ladder.of().climb(1_000_000)
    assert taken == (512_000, 256_000, 128_000, 64_000, 32_000, 8_000)
    assert rest == 0


def test_all_rungs_together_are_more_than_23_days() -> None:
    assert Ladder.of(21).span > 23 * 24 * 3_600_000


@given(st.integers(0, LONGEST), st.integers(1, 21), st.booleans())
def test_it_is_never_early_and_at_most_a_step_late(delay: int, count: int, fine: bool) -> None:
    ladder = Ladder.of(count, fine=fine)
    taken, rest = ladder.climb(delay)
    assert len(set(taken)) == len(taken)
    assert 0 <= sum(taken) + rest - delay < (104 if fine else 1_000)
    assert not rest or sum(taken) >= ladder.span - sum(ladder.rungs[:4])


@pytest.mark.parametrize("count", [0, 22, True, "3"])
def test_a_ladder_has_1_to_21_rungs(count: int) -> None:
    with pytest.raises(InvalidInput):
        Ladder.of(count)


@pytest.mark.parametrize("delay", [-1, LONGEST + 1])
def test_a_delay_beyond_a_year_is_refused(delay: int) -> None:
    with pytest.raises(InvalidInput):
        Ladder.of().climb(delay)
