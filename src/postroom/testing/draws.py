"""What the machine draws: policies, messages, requests, endings, spans. Small, so that things meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from postroom.engine import ClaimRequest
from postroom.model import Failure, Verb

POLICIES = st.fixed_dictionaries(
    {
        "lease": st.just("10s"),
        "ack_timeout": st.sampled_from(["5s", "20s", None]),
        "max_attempts": st.integers(1, 3),
        "aging": st.sampled_from([None, "2s"]),
        "capacity": st.sampled_from([None, 6]),
        "rate": st.sampled_from([None, None, "3/s", "40/m"]),
        "max_in_flight": st.sampled_from([None, 3]),
        "on_expire": st.sampled_from(["dead", "drop"]),
        "dead_limit": st.sampled_from([None, 2]),
        "dead_retention": st.sampled_from([None, "30s"]),
        "dedupe_window": st.sampled_from([0, "10s"]),
        "keep_done": st.sampled_from([0, "10s"]),
        "suspect_after": st.sampled_from([1, 3]),
    }
)
FAILURES = [Failure(type="ValueError", text="boom 1"), Failure(type="OSError")]
MESSAGES = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([5, 5, 5, 0, 6, 255]),
        "delay": st.sampled_from([0, 0, 0, 0, 0, 1, 500, 5_000]),
        "ttl": st.sampled_from([None, None, None, None, 6_000, 20_000]),
        "unique_key": st.sampled_from([None, None, None, "a", "b"]),
        "remember": st.sampled_from([None, None, 0, 5_000]),
        "max_attempts": st.sampled_from([None, None, 1, 4]),
        "ack_timeout": st.sampled_from([None, None, 3_000]),
        "failure": st.sampled_from([None] * 18 + FAILURES),
    }
)
REQUESTS = st.builds(
    ClaimRequest,
    n=st.sampled_from([1, 2, 3, 5, 1, 2, 3, 5, 0]),
    start=st.sampled_from([None, None, 0, 1, 2]),
    lease=st.sampled_from([None, 4_000, 10_000]),
    suspects=st.sampled_from([True, True, False]),
    consumer=st.sampled_from(["w1", "w2"]),
)
ONE_IN_FOUR = st.sampled_from([False, False, False, True])
#: Which of the receipts, ids and so on so far.
PICK = st.integers(0, 99)
PICKS = st.lists(PICK, min_size=1, max_size=3)


class Ending(NamedTuple):
    """How some delivery is settled."""

    number: int
    verb: Verb
    delay: int
    failure: Failure | None


ENDINGS = st.lists(
    st.builds(
        Ending,
        PICK,
        st.sampled_from(Verb),
        st.sampled_from([0, 0, 1, 2_000]),
        st.sampled_from([None, Failure(type="E")]),
    ),
    min_size=1,
    max_size=3,
)
SPANS = st.sampled_from(["1ms", "2ms", "500ms", "999ms", "1s", "2s", "2500ms", "4s", "4999ms", "11s", "2m"])
