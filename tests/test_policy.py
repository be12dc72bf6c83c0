"""What a queue promises: the settings, their text, and the decisions that follow from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.limits import EPOCH, LAST_DUE
from postroom.model import Failure
from postroom.policy import (
    Policy,
    Rate,
    due_seq,
    exhausted,
    expired_failure,
    fingerprint,
    next_seq,
    ran_out_failure,
    stamped,
    ticks,
)

SPANS = st.integers(1, 10**10).map(lambda span: f"{span}ms")
COUNTS = st.none() | st.integers(1, 10**9)
NAMES = st.text("abcdefghij-_.ö", min_size=1, max_size=20)
PRIORITIES = st.integers(0, 255)
SEQS = st.integers(0, 2**45 - 1)
INSTANTS = st.integers(EPOCH, LAST_DUE)
POLICIES = st.builds(
    Policy,
    lease=SPANS,
    ack_timeout=st.none() | SPANS,
    max_attempts=st.integers(1, 1_000),
    backoff=st.sampled_from(["5s", "2^n * 5s", "1.5^n * 250ms"]),
    backoff_cap=SPANS,
    jitter=st.booleans(),
    labels=st.dictionaries(NAMES, PRIORITIES).map(lambda labels: {"normal": 5, **labels}),
    aging=st.none() | SPANS,
    capacity=COUNTS,
    warn_depth=COUNTS,
    rate=st.none() | st.builds("{}/{}".format, st.integers(1, 10**6), st.sampled_from("smh")),
    max_in_flight=COUNTS,
    on_expire=st.sampled_from(["dead", "drop"]),
    sla_p95=st.none() | SPANS,
    dead_letter=NAMES,
    dead_retention=st.none() | SPANS,
    dead_limit=COUNTS,
    dedupe_window=SPANS,
    keep_done=SPANS,
    suspect_after=st.integers(1, 100),
)


# ---- Settings -------------------------------------------------------------------------------------


@given(POLICIES)
def test_a_policy_reads_back_from_its_text(policy: Policy) -> None:
    assert Policy.from_text(policy.to_text()) == policy


@given(POLICIES)
def test_the_text_survives_json(policy: Policy) -> None:
    assert Policy.from_text(json.loads(json.dumps(policy.to_text()))) == policy


def test_the_default_policy_reads_back_too() -> None:
    assert Policy.from_text(Policy().to_text()) == Policy()


def test_settings_of_a_newer_release_are_passed_over() -> None:
    assert Policy.from_text({"lease": "9s", "from_the_future": 1}).lease == 9_000


def test_settings_that_are_missing_have_their_defaults() -> None:
    assert Policy.from_text({}) == Policy()


def test_the_native_defaults() -> None:
    policy = Policy()
    assert (policy.lease, policy.ack_timeout, policy.max_attempts) == (30_000, 30_000, 3)
    assert (policy.labels["low"], policy.labels["normal"], policy.labels["high"]) == (0, 5, 10)
    assert (policy.on_expire, policy.aging, policy.dedupe_window, policy.keep_done) == ("dead", None, 0, 0)


def test_retries_are_attempts_after_the_first() -> None:
    assert Policy(retries=0).max_attempts == 1
    assert Policy(retries=4) == Policy(max_attempts=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"lease": 0},
        {"lease": "-1s"},
        {"ack_timeout": 0},
        {"max_attempts": 0},
        {"max_attempts": 1_001},
        {"max_attempts": True},
        {"max_attempts": 3, "retries": 2},
        {"retries": -1},
        {"backoff": "fast"},
        {"backoff_cap": "never"},
        {"labels": {"low": 0}},
        {"labels": {"normal": 256}},
        {"labels": {"normal": 5, "a\0b": 1}},
        {"aging": 0},
        {"capacity": 0},
        {"capacity": 1.5},
        {"warn_depth": -1},
        {"rate": "0/s"},
        {"rate": "10"},
        {"rate": "10/d"},
        {"rate": 10},
        {"max_in_flight": 0},
        {"on_expire": "ignore"},
        {"sla_p95": 0},
        {"dead_letter": ""},
        {"dead_letter": "{x}"},
        {"dead_retention": 0},
        {"dead_limit": 0},
        {"dedupe_window": -1},
        {"keep_done": "x"},
        {"suspect_after": 0},
        {"suspect_after": None},
    ],
    ids=repr,
)
def test_a_bad_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Policy(**settings)


def test_a_policy_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Policy().lease = 5  # type: ignore[misc]


def test_priorities_by_label_or_number() -> None:
    policy = Policy(labels={"normal": 3, "vip": 200})
    assert [policy.priority(wanted) for wanted in ("normal", "vip", 0, 255)] == [3, 200, 0, 255]


@pytest.mark.parametrize("wanted", ["urgent", "", -1, 256, True, 1.5, None])
def test_a_priority_that_is_none_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        Policy().priority(wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "burst"),
    [("100/s", 100), ("30/m", 1), ("120/m", 2), ("500/h", 1), ("7200/h", 2), (" 5 / s ", 5)],
)
def test_a_bucket_holds_one_seconds_worth_but_at_least_one(text: str, burst: float) -> None:
    assert Rate.parse(text).burst == burst


# ---- Order ----------------------------------------------------------------------------------------


@given(PRIORITIES, PRIORITIES, SEQS, SEQS)
def test_strict_priority_outranks_every_sequence(one: int, two: int, first: int, second: int) -> None:
    policy = Policy()
    ranked = policy.order(one, first) < policy.order(two, second)
    assert ranked == ((-one, first) < (-two, second))


@given(POLICIES, PRIORITIES, SEQS, SEQS)
def test_inside_a_level_order_is_the_sequence(policy: Policy, priority: int, one: int, two: int) -> None:
    assert (policy.order(priority, one) < policy.order(priority, two)) == (one < two)


@given(st.integers(1, 10**8), st.integers(0, 254), INSTANTS, st.integers(0, 10**9))
def test_with_aging_one_level_is_worth_that_much_waiting(
    aging: int, priority: int, put_at: int, later: int
) -> None:
    policy = Policy(aging=f"{aging}ms")
    old = policy.order(priority, ticks(put_at))
    young = policy.order(priority + 1, ticks(put_at + later))
    assert (old < young) == (later > aging)


def test_an_order_fits_into_a_double() -> None:
    assert Policy().order(0, 2**45 - 1) < 2**53
    assert Policy().order(0, ticks(LAST_DUE)) < 2**53


@given(INSTANTS, st.lists(st.integers(0, 2), min_size=1, max_size=200))
def test_sequence_numbers_only_grow(now: int, steps: list[int]) -> None:
    last = 0
    for step in steps:
        now += step
        seq = next_seq(last, now)
        assert seq > last
        last = seq


@given(INSTANTS, st.integers(0, 10**6))
def test_a_clock_that_steps_back_does_not_break_the_sequence(now: int, back: int) -> None:
    last = next_seq(0, now)
    assert next_seq(last, now - back) == last + 1


@given(INSTANTS, st.integers(0, 10**6))
def test_a_due_message_stands_at_its_due_time(due: int, late: int) -> None:
    last = ticks(due)
    assert due_seq(last, due + late, due) == ticks(due)


@given(INSTANTS, st.integers(64, 10_000))
def test_a_due_message_stands_behind_a_burst_that_is_ahead_of_the_clock(now: int, burst: int) -> None:
    last = ticks(now) + burst
    assert due_seq(last, now, now) == last + 1


# ---- Decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ran_out", "strays", "suspect"), [(0, 0, False), (0, 2, False), (0, 3, True), (1, 0, True), (2, 9, True)]
)
def test_who_is_a_suspect(ran_out: int, strays: int, suspect: bool) -> None:
    assert Policy().is_suspect(ran_out, strays) is suspect


@pytest.mark.parametrize(
    ("lease", "ack_deadline", "deadline"),
    [(None, None, 130), (None, 500, 500), (20, None, 120), (20, 500, 120), (20, 110, 110)],
)
def test_a_deadline_is_the_earlier_of_lease_and_ack_timeout(
    lease: int | None, ack_deadline: int | None, deadline: int
) -> None:
    assert Policy(lease="30ms").deadline(100, lease, ack_deadline) == deadline


@given(st.integers(0, 10**6))
def test_a_silence_of_more_than_half_a_lease_gives_a_third_of_grace(silence: int) -> None:
    assert Policy(lease="30s").grace(silence) == (10_000 if silence > 15_000 else 0)


def test_attempts_are_used_up_at_their_maximum() -> None:
    assert [exhausted(attempt, 3) for attempt in range(5)] == [False, False, False, True, True]


# ---- Failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("user 17 not found", "user 4 not found"),
        ("object at 0x7f3a", "object at 0x11"),
        (
            "job 0189d1c2-77aa-7000-8000-000000000000 failed",
            "job ffffffff-77aa-7000-8000-000000000001 failed",
        ),
    ],
)
def test_alike_failures_have_one_fingerprint(one: str, two: str) -> None:
    first, second = (fingerprint("mail", Failure(type="E", text=text)) for text in (one, two))
    assert first == second


def test_kind_type_and_text_tell_failures_apart() -> None:
    failures = [("mail", "E", "x"), ("sms", "E", "x"), ("mail", "F", "x"), ("mail", "E", "y")]
    prints = {fingerprint(kind, Failure(type=type, text=text)) for kind, type, text in failures}
    assert len(prints) == 4


def test_a_kept_failure_has_the_engines_time_and_a_group() -> None:
    kept = stamped(Failure(type="E", text="x", traceback="t", failed_at=1), "mail", 99)
    assert (kept.type, kept.text, kept.traceback, kept.failed_at) == ("E", "x", "t", 99)
    assert kept.fingerprint == fingerprint("mail", kept)


def test_a_group_of_the_callers_own_stays() -> None:
    assert stamped(Failure(type="E", fingerprint="mine"), "mail", 99).fingerprint == "mine"


def test_the_failures_of_the_engine_itself() -> None:
    assert ran_out_failure("mail", too_slow=True, failed_at=9).type == "AckTimeout"
    assert ran_out_failure("mail", too_slow=False, failed_at=9).type == "LeaseExpired"
    assert expired_failure("mail", 9).summary.startswith("Expired: ")
