"""The judge of the battle finds what it is there to find, in the smallest ledgers that have it."""

from __future__ import annotations

import pytest

from tests.battle.verdict import HELD, KILLED_AWAY, STARVED, UNACCEPTED, Fault, Verdict, judge
from tests.chaos.ledger import Line

SENT = ["producer-1 0.0 intend a 0.0", "producer-1 0.1 accepted a"]
FIRST = ["v-2 1.0 begin a", "v-2 2.0 end a"]
SECOND = ["w-3 9.0 begin a", "w-3 9.5 end a"]
#: Both fall into the last moments of the first run.
KILLED = Fault("hard", 2.01, 2.02, "v")
ASKED = Fault("warm", 1.5, 3.0, "v")
LATER = Fault("hard", 2.09, 2.1, "v")
SOON, DURING = Fault("cut", 2.06, 4.0), Fault("hard", 3.0, 3.1, "v")
CUT = Fault("cut", 2.01, 4.0)
RESENT = [SENT[0], "producer-1 0.1 unsure a", SENT[1], *FIRST, *SECOND]


def verdict_on(
    lines: list[str],
    *faults: Fault,
    effects: dict[str, int] | None = None,
    left: dict[str, int] | None = None,
) -> Verdict:
    return judge([parsed(line) for line in lines], faults, effects, left)


def parsed(text: str) -> Line:
    by, at, word, label, *rest = text.split()
    return Line(by, float(at), word, label, tuple(rest))


@pytest.mark.parametrize(
    ("lines", "faults", "causes"),
    [
        ([*SENT, *FIRST], [], {}),
        ([*SENT, *FIRST, *SECOND], [KILLED], {"a": "hard"}),
        ([*SENT, *FIRST, *SECOND], [Fault("cold", 1.9, 3.0, "v")], {"a": "cold"}),
        ([*SENT, *FIRST, *SECOND], [CUT], {"a": "cut"}),
        ([*SENT, *FIRST, *SECOND], [CUT, Fault("hard", 3.0, 3.1, "v")], {"a": KILLED_AWAY}),
        ([*SENT, *FIRST, *SECOND], [CUT, Fault("warm", 3.0, 3.1, "v")], {"a": KILLED_AWAY}),
        ([*SENT, FIRST[0], *SECOND], [KILLED], {}),
        (
            [*SENT, FIRST[0], *SECOND, "v-2 9.9 end a"],
            [Fault("freeze", 1.5, 8.0)],
            {"a": "freeze, still at it"},
        ),
        ([*SENT, FIRST[0], "v-2 1.5 failed a", *SECOND], [], {}),
        (RESENT, [], {"a": "sent twice"}),
        # It had 90 ms to say so, and the machine gave it no time.
        ([*SENT, *FIRST, "v-2 2.08 slow - 2.01", *SECOND], [LATER], {"a": STARVED}),
        (
            [*SENT, *FIRST, "v-2 2.05 slow - 2.01", "store-0 2.08 slow - 2.03", *SECOND],
            [LATER],
            {"a": STARVED},
        ),
        ([*SENT, *FIRST, "v-2 2.05 slow - 2.01", *SECOND], [SOON, DURING], {"a": STARVED}),
        # Celery's parent had not heard of it when it was asked to stop.
        ([*SENT, *FIRST, *SECOND], [ASKED._replace(began=0.99, pool="prefork")], {"a": UNACCEPTED}),
        (SENT[:1], [], {}),
    ],
)
def test_what_has_a_reason_is_good(lines: list[str], faults: list[Fault], causes: dict[str, str]) -> None:
    verdict = verdict_on(lines, *faults, *[Fault("hard", 90, 91, "x")])
    assert verdict.complaints == []
    assert verdict.duplicated == causes


@pytest.mark.parametrize(
    ("lines", "faults", "complaint"),
    [
        (SENT, [], "1 lost: a"),
        ([*SENT, FIRST[0]], [KILLED], "1 lost: a"),
        ([*SENT, FIRST[0], "v-2 1.5 failed a"], [], "1 lost: a"),
        ([*SENT, *FIRST, *SECOND], [], "1 unattributed"),
        ([*SENT, FIRST[0], *SECOND], [], "1 unattributed"),
        ([*SENT, *FIRST, SECOND[0]], [], "1 unattributed"),
        # It had 31 ms to say so; it was another worker; the store was back; it was asked politely.
        ([*SENT, *FIRST, *SECOND], [Fault("hard", 2.031, 2.04, "v")], "1 unattributed"),
        ([*SENT, *FIRST, *SECOND], [KILLED._replace(worker="w")], "1 unattributed"),
        ([*SENT, *FIRST, *SECOND], [Fault("cut", 0.5, 1.9)], "1 unattributed"),
        ([*SENT, *FIRST, *SECOND], [KILLED._replace(kind="warm")], "1 unattributed"),
        ([*SENT, FIRST[0], *SECOND], [KILLED._replace(kind="warm")], "1 unattributed"),
        # It had time, and somebody else had none; who is slow twice at once is so only once.
        ([*SENT, *FIRST, "v-2 2.05 slow - 2.01", "store-0 2.05 slow - 2.01", *SECOND], [LATER], "1 unatt"),
        ([*SENT, *FIRST, "v-2 1.9 slow - 1.8", *SECOND], [LATER], "1 unattributed"),
        ([*SENT, *FIRST, "w-3 2.08 slow - 2.01", *SECOND], [LATER], "1 unattributed"),
        ([*SENT, *FIRST, "v-2 2.08 slow - 2.01", *SECOND], [], "1 unattributed"),
        # Long before it was asked to stop; other pools do not forget.
        ([*SENT, *FIRST, *SECOND], [ASKED._replace(pool="prefork")], "1 unattributed"),
        ([*SENT, *FIRST, *SECOND], [ASKED._replace(began=0.99, pool="threads")], "1 unattributed"),
        (
            [*SENT, *FIRST, *SECOND],
            [ASKED._replace(began=0.99, pool="prefork", worker="w")],
            "1 unattributed",
        ),
        # Begun elsewhere before the fault that would explain it.
        ([*SENT, FIRST[0], *SECOND], [Fault("hard", 9.2, 9.3, "v")], "1 unattributed"),
    ],
)
def test_what_has_none_is_not(lines: list[str], faults: list[Fault], complaint: str) -> None:
    assert verdict_on(lines, *faults).complaints[0].startswith(complaint)


def test_what_is_sent_again_with_its_id_must_not_be_there_twice() -> None:
    verdict = judge([parsed(line) for line in RESENT], [], renames=False)
    assert verdict.complaints[0].startswith("1 unattributed")
    assert verdict.causes == {"no reason": 1}


#: On RabbitMQ: tried again is a copy and an ack; the connections are lost while the first is at it.
AGAIN = ["v-2 1.0 begin a", "v-2 1.5 failed a"]
RUNS = ["w-3 3.0 begin a", "w-3 4.0 end a", "x-4 5.0 begin a", "x-4 6.0 end a"]
LOST = Fault("disconnect", 1.4, 1.45)


@pytest.mark.parametrize(
    ("lines", "fault", "cause"),
    [
        ([*SENT, *FIRST, *SECOND], LOST, HELD),
        ([*SENT, *AGAIN, *RUNS], Fault("hard", 1.51, 1.6, "v"), "hard"),
        ([*SENT, *AGAIN, *RUNS], Fault("restart", 1.2, 1.3), "restart"),
        ([*SENT, AGAIN[0], *RUNS], Fault("hard", 1.3, 1.4, "v"), "hard"),
        # It had 60 ms for its ack, and RabbitMQ or the machine no time for it.
        ([*SENT, *FIRST, "store-0 2.05 slow - 2.01", *SECOND], Fault("restart", 2.06, 3.0), STARVED),
        ([*SENT, *FIRST, "v-2 2.05 slow - 2.01", *SECOND], Fault("restart", 2.06, 3.0), STARVED),
        ([*SENT, *FIRST, "store-0 2.03 slow - 2.02", *SECOND], Fault("restart", 2.06, 3.0), ""),
        # It was not at it, or had time enough for its ack.
        ([*SENT, *FIRST, *SECOND], LOST._replace(began=2.03, over=2.1), ""),
        ([*SENT, *FIRST, *SECOND], LOST._replace(began=0.1, over=0.9), ""),
        ([*SENT, *AGAIN, *RUNS], Fault("hard", 1.54, 1.6, "v"), ""),
        ([*SENT, *AGAIN, *RUNS], Fault("hard", 1.51, 1.6, "u"), ""),
        ([*SENT, *AGAIN, *RUNS], Fault("warm", 1.51, 1.6, "v"), ""),
    ],
)
def test_on_rabbitmq_a_lease_is_a_connection_and_a_retry_is_a_copy(
    lines: list[str], fault: Fault, cause: str
) -> None:
    verdict = judge([parsed(line) for line in lines], [fault], amqp=True)
    assert verdict.duplicated == {"a": cause}
    assert bool(verdict.unattributed) is not bool(cause)
    assert verdict_on(lines, fault).unattributed, "nowhere else"


@pytest.mark.parametrize(
    ("fault", "cause", "elsewhere"),
    [
        (Fault("cut", 1.9, 4.0), HELD, "cut"),
        (Fault("disconnect", 1.9, 2.1), HELD, "disconnect"),
        (CUT, "cut", "cut"),  # it had ended, and its ack was on the way
        (Fault("freeze", 1.9, 4.0), "freeze", "freeze"),  # nobody lost a connection
        (Fault("hard", 1.9, 4.0, "v"), "hard", "hard"),
    ],
)
def test_on_rabbitmq_a_lost_connection_costs_what_was_in_hand(
    fault: Fault, cause: str, elsewhere: str
) -> None:
    lines = [parsed(line) for line in (*SENT, *FIRST, *SECOND)]
    assert judge(lines, [fault], amqp=True).duplicated == {"a": cause}
    assert judge(lines, [fault]).duplicated == {"a": elsewhere}


def test_one_fault_must_not_cost_many() -> None:
    two = [line.replace(" a", " b") for line in (*SENT, *FIRST, *SECOND)]
    assert verdict_on([*SENT, *FIRST, *SECOND, *two], KILLED).complaints == ["2 duplicates for 1 faults"]
    slow = [*SENT, *FIRST, *SECOND, *two, "v-2 2.08 slow - 2.01"]
    assert verdict_on(slow, LATER).complaints == []
    # What was in somebody's hands when RabbitMQ lost all connections is as much as there were hands.
    lines = [parsed(line) for line in (*SENT, *FIRST, *SECOND, *two)]
    assert judge(lines, [Fault("cut", 1.9, 4.0)], amqp=True).complaints == []
    assert judge(lines, [CUT], amqp=True).complaints == ["2 duplicates for 1 faults"]
    # But who is killed while it cannot tell anybody loses what it did meanwhile.
    away = [CUT, Fault("hard", 3.0, 3.1, "v")]
    three = [line.replace(" a", " c") for line in (*SENT, *FIRST, *SECOND)]
    assert verdict_on([*SENT, *FIRST, *SECOND, *two, *three], *away).complaints == []
    assert (
        verdict_on([*SENT, *FIRST, *SECOND, *two, *three], CUT, away[1]._replace(began=8.9)).complaints == []
    )
    late = verdict_on([*SENT, *FIRST, *SECOND, *two, *three], CUT, away[1]._replace(began=9.1))
    assert late.complaints == ["3 duplicates for 2 faults"]


def test_an_effect_is_there_once() -> None:
    lines = [*SENT, *FIRST, *SECOND]
    assert verdict_on(lines, KILLED, effects={"a": 1}).complaints == []
    assert verdict_on(lines, KILLED, effects={"a": 2}).complaints == ["1 effects doubled: a"]
    assert verdict_on(lines, KILLED, effects={}).complaints == ["1 effects missing: a"]


def test_nothing_is_left_in_the_store() -> None:
    assert verdict_on([*SENT, *FIRST], left={"ready": 0, "key body": 1}).complaints == ["1 left in key body"]


def test_how_long_it_took() -> None:
    verdict = verdict_on([*SENT, FIRST[0], *SECOND], Fault("hard", 1.5, 1.6, "v"), Fault("cut", 8.0, 9.25))
    assert (verdict.waits, verdict.recoveries, verdict.returns) == ([1.0], [9.0 - 1.6], [9.5 - 9.25])
