"""What grows is found, and what only moves is not."""

from __future__ import annotations

import random

import pytest

from tests.battle.growth import Sample, growth

MB = 1_000_000


def series(value: float, *, slope: float = 0.0, noise: float = 0.0, count: int = 360) -> list[Sample]:
    """Half an hour, a sample every five seconds; `slope`: bytes a second."""
    chance = random.Random(1)
    return [(5.0 * n, value + slope * 5 * n + chance.uniform(-noise, noise)) for n in range(count)]


def with_start(samples: list[Sample], grown: float) -> list[Sample]:
    """What a process needs until it has done everything once."""
    third = len(samples) // 3
    return [(at, size - grown * max(0, third - n) / third) for n, (at, size) in enumerate(samples)]


def sawtooth(samples: list[Sample], height: float) -> list[Sample]:
    return [(at, size + height * (n % 12) / 12) for n, (at, size) in enumerate(samples)]


@pytest.mark.parametrize(
    "samples",
    [
        series(60 * MB),
        series(60 * MB, noise=10 * MB),
        with_start(series(60 * MB, noise=MB), grown=30 * MB),
        sawtooth(series(60 * MB), height=30 * MB),
        [*series(60 * MB)[:-20], *((at, 300 * MB) for at, _ in series(60 * MB)[-20:])],
    ],
    ids=["flat", "noise", "start", "sawtooth", "peak at the end"],
)
def test_what_does_not_grow(samples: list[Sample]) -> None:
    assert not growth("x", samples).is_growing


@pytest.mark.parametrize(
    "samples",
    [
        series(60 * MB, slope=6_000),
        series(60 * MB, slope=10_000, noise=5 * MB),
        sawtooth(series(60 * MB, slope=15_000), height=20 * MB),
        # Most of it in the first half, as when a file grows ever more slowly; but it still does.
        [(at, 10 * MB * (1 + at) ** 0.5) for at, _ in series(0)],
    ],
    ids=["leak", "leak in noise", "leak in a sawtooth", "ever more slowly"],
)
def test_what_grows(samples: list[Sample]) -> None:
    assert growth("x", samples).is_growing


def test_the_bound_follows_the_size() -> None:
    assert growth("x", series(1_000 * MB, slope=20_000)).added == pytest.approx(17.9 * MB, rel=0.01)
    assert not growth("x", series(1_000 * MB, slope=20_000)).is_growing
    assert growth("x", series(1_000 * MB, slope=20_000), part=0.01).is_growing


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="9 samples"):
        growth("x", series(MB, count=18))
