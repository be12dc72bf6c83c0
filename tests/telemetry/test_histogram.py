"""The histogram: bounded, mergeable, and close to the truth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import percentile
from postroom.telemetry.histogram import BOUNDS, TOLD, Histogram, merged

spans = st.lists(st.floats(0.001, 500_000), min_size=1, max_size=200)


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_the_bounds_never_change_between_releases() -> None:
    assert len(BOUNDS) == 180
    assert list(BOUNDS) == sorted(BOUNDS)
    assert (BOUNDS[0], BOUNDS[60], BOUNDS[66], BOUNDS[-1]) == (0.001, 1.0, 2.0, 900_000.0)
    assert [BOUNDS[index] for index in TOLD[:7]] == [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]


@given(spans)
def test_a_percentile_is_off_by_no_more_than_the_bounds_are_apart(values: list[float]) -> None:
    found, exact = of(values).percentile(95), percentile(values, 95)
    assert found is not None
    assert exact / 1.13 <= found <= exact * 1.13


@pytest.mark.parametrize("step", [2, 4, 8])
def test_coarser_nothing_becomes_shorter_and_nothing_is_lost(step: int) -> None:
    fine = Histogram()
    for bound in (0.0, *BOUNDS, 2 * BOUNDS[-1]):
        fine.add(bound)
    coarse = fine.coarser(step)
    assert (coarse.count, coarse.sum) == (fine.count, fine.sum)
    assert len(coarse.counts) <= len(BOUNDS) / step + 2
    assert coarse.counts[len(BOUNDS)] == 1, "longer than everything"
    assert all(coarse.share_within(bound) <= fine.share_within(bound) for bound in BOUNDS)
    assert coarse.coarser(step).counts == coarse.counts


@given(spans, spans)
def test_two_histograms_merged_are_one_of_both(one: list[float], other: list[float]) -> None:
    both, whole = merged([of(one), of(other)]), of(one + other)
    assert both.counts == whole.counts
    assert both.count == whole.count
    assert abs(both.sum - whole.sum) < 1e-3


@given(spans)
def test_what_is_kept_is_what_was_measured(values: list[float]) -> None:
    before = of(values)
    after = Histogram.from_plain(before.to_plain())
    assert (after.counts, after.count) == (before.counts, before.count)


@given(spans)
def test_prometheus_is_told_how_many_are_at_most_so_long(values: list[float]) -> None:
    for bound, count in of(values).cumulative():
        assert count == sum(value <= bound for value in values)


def test_the_share_within_a_target_is_exact_at_a_bound() -> None:
    histogram = of([0.5] * 95 + [3.0] * 5)
    assert histogram.share_within(2.0) == 0.95
    assert histogram.share_within(5.0) == 1.0
    assert Histogram().share_within(1.0) == 1.0


def test_what_is_longer_than_everything_counts_too() -> None:
    histogram = of([2e6, 3e6])
    assert histogram.percentile(95) == BOUNDS[-1]
    assert histogram.cumulative()[-1][1] == 0
    assert histogram.count == 2


def test_nothing_has_no_percentile() -> None:
    assert Histogram().percentile(95) is None
