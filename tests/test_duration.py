"""Spans and instants: what people write, and the milliseconds it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.duration import MAX_SPAN, format_duration, instant, milliseconds
from postroom.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "span"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("1h30m", 5_400_000),
        ("1h 30m 5s 7ms", 5_405_007),
        ("1.5s", 1_500),
        (" 2 s ", 2_000),
        ("45", 45_000),
        ("0", 0),
        (0, 0),
        (30, 30_000),
        (0.25, 250),
        (timedelta(minutes=1, milliseconds=1), 60_001),
    ],
)
def test_what_people_write_is_read(written: str | float | timedelta, span: int) -> None:
    assert milliseconds(written) == span


@pytest.mark.parametrize(
    "written",
    ["", " ", "s", "5 parsecs", "5x", "-5s", "1h-5m", "5s!", "٣s", "1e3", "nan", -1, -0.001, float("nan"),
     float("inf"), timedelta(seconds=-1), True, None, b"5s", [], MAX_SPAN, "200000w"],
)  # fmt: skip
def test_what_is_no_span_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput, match="delay"):
        milliseconds(written, "delay")  # type: ignore[arg-type]


def test_a_hundred_years_are_the_most() -> None:
    assert milliseconds(MAX_SPAN // 1_000) == MAX_SPAN
    with pytest.raises(InvalidInput):
        milliseconds(MAX_SPAN // 1_000 + 1)


@pytest.mark.parametrize(
    ("seconds", "span"), [(0.0001, 1), (1.0005, 1_001), (0.1, 100), (0.3, 300), (1.1, 1_100)]
)
def test_spans_are_rounded_up_but_not_by_binary_fractions(seconds: float, span: int) -> None:
    assert milliseconds(seconds) == span


@given(st.integers(0, MAX_SPAN))
def test_a_formatted_span_reads_back_as_itself(span: int) -> None:
    assert milliseconds(format_duration(span)) == span


@given(st.integers(0, MAX_SPAN))
def test_a_timedelta_is_what_it_says(span: int) -> None:
    assert milliseconds(timedelta(milliseconds=span)) == span


@given(st.floats(0, MAX_SPAN / 1_000))
def test_a_span_is_never_shorter_than_written(seconds: float) -> None:
    assert -0.001 <= milliseconds(seconds) - seconds * 1_000 <= 1.001


@pytest.mark.parametrize(
    ("span", "text"),
    [(0, "0s"), (1, "1ms"), (1_000, "1s"), (5_400_000, "1h30m"), (90_061_001, "1d1h1m1s1ms")],
)
def test_spans_are_formatted_briefly(span: int, text: str) -> None:
    assert format_duration(span) == text


def test_an_instant_is_an_aware_datetime_or_epoch_seconds() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert instant(moment) == instant(moment.timestamp()) == instant(1_767_225_600) == 1_767_225_600_000
    assert instant(moment.astimezone(timezone(timedelta(hours=5)))) == instant(moment)


@pytest.mark.parametrize(
    "written",
    [datetime(2026, 1, 1), float("nan"), float("inf"), "2026-01-01", True, None],  # noqa: DTZ001
)
def test_what_names_no_moment_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput, match="due"):
        instant(written, "due")  # type: ignore[arg-type]


@given(st.integers(0, 2**42))
def test_an_instant_in_milliseconds_survives_as_seconds(at: int) -> None:
    assert instant(at / 1_000) == at
