"""The judge finds what it is there to find: each kind of wrong, in the smallest battle that has it."""

from __future__ import annotations

import pytest

from tests.chaos.ledger import Line
from tests.chaos.verdict import SETTLE_WINDOW, Fate, History, Outage, Told, Verdict, judge

LEASE = 2.0

PUT = ["p 0.0 intend a1 1 0.0 -", "p 0.1 accepted a1 0.1"]
CLAIMED = ["v 1.1 claimed a1 t1 1 1.0", "v 1.2 begin a1 t1"]
DONE = ["v 1.3 end a1 t1", "v 1.4 acked a1 t1"]
AGAIN = ["w 5.1 claimed a1 t2 2 5.0", "w 5.2 begin a1 t2", "w 5.3 end a1 t2", "w 5.4 acked a1 t2"]

OTHER = ["p 0.0 intend b1 2 0.0 -", "p 0.1 accepted b1 0.1", "v 1.0 claimed b1 t9 1 1.0", "v 1.1 end b1 t9"]
UNHARMED = {"p": Fate(), "v": Fate(), "w": Fate()}


def verdict_on(
    lines: list[str],
    fates: dict[str, Fate],
    dead: frozenset[str] = frozenset(),
    outages: tuple[Outage, ...] = (),
    history: History = History(),  # noqa: B008 - frozen
) -> Verdict:
    return judge(map(parsed, lines), UNHARMED | fates, set(dead), LEASE, outages, history)


def parsed(text: str) -> Line:
    by, at, word, id, *rest = text.split()
    return Line(by, float(at), word, id, tuple(rest))


@pytest.mark.parametrize(
    ("lines", "fates", "cause"),
    [
        ([*PUT, *CLAIMED, *DONE], {}, None),
        ([*PUT, *CLAIMED, *AGAIN], {"v": Fate(killed_at=2.0)}, "killed"),
        ([*PUT, *CLAIMED, DONE[0], *AGAIN], {"v": Fate(killed_at=2.0)}, "killed"),
        ([*PUT, *CLAIMED, *AGAIN, "v 6.0 late a1 t1 gone"], {"v": Fate(stops=((1.5, 5.9),))}, "stopped"),
        ([*PUT, *CLAIMED, "v 4.0 slow - 1.5", *AGAIN], {}, "starved"),
        ([*PUT, *CLAIMED, "v 1.3 failed a1 t1", "v 1.4 retried a1 t1 ok", *AGAIN], {}, "failed"),
        ([*PUT, *CLAIMED, DONE[0]], {"v": Fate(killed_at=1.4)}, None),
        (PUT[:1], {"p": Fate(killed_at=0.1)}, None),
        ([*PUT[:1], *CLAIMED, *DONE], {"p": Fate(killed_at=0.1)}, None),
    ],
)
def test_what_has_a_reason_is_right(lines: list[str], fates: dict[str, Fate], cause: str | None) -> None:
    verdict = verdict_on(lines, fates)
    assert verdict.wrong == []
    assert list(verdict.causes) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("lines", "fates", "wrong"),
    [
        (PUT, {}, "LOST"),
        ([*PUT, *CLAIMED], {"v": Fate(killed_at=2.0)}, "LOST"),
        ([*PUT, *CLAIMED, *AGAIN], {}, "neither killed nor stopped"),
        ([*PUT, *CLAIMED, *AGAIN], {"v": Fate(killed_at=1.15)}, "neither killed nor stopped"),
        ([*PUT, *CLAIMED, *AGAIN], {"v": Fate(stops=((5.5, 6.0),))}, "neither killed nor stopped"),
        ([*PUT, *CLAIMED, *AGAIN, "w 4.0 slow - 1.5"], {}, "neither killed nor stopped"),
        ([*PUT, *CLAIMED, *DONE, *AGAIN], {"v": Fate(killed_at=1.5)}, "after the ack of v was taken"),
        ([*PUT, *CLAIMED, DONE[0]], {}, "not acked"),
        ([*PUT, *CLAIMED, DONE[0], "v 1.4 late a1 t1 lost"], {}, "not acked"),
        ([*PUT, "v 1.1 claimed a1 t1 1 4.0", *AGAIN], {}, "1.100 s after its claim"),
        ([*PUT, CLAIMED[0], *AGAIN], {}, "given out again, and v was neither killed nor stopped"),
        ([*PUT, *CLAIMED, *DONE, "w 5.1 claimed a1 t2 1 5.0"], {}, "one number"),
        ([*PUT, *CLAIMED, *DONE, *CLAIMED], {}, "one token"),
        ([*PUT, *CLAIMED, CLAIMED[1], *DONE], {}, "twice"),
        (["p 0.0 intend a1 1 3.0 -", PUT[1], *CLAIMED, *DONE], {}, "1.800 s before it was due"),
        ([*PUT, *CLAIMED, "v 1.25 wrong a1 t1", *DONE], {}, "another body"),
        ([PUT[0], "p 0.1 refused a1", *CLAIMED, *DONE], {}, "refused, and yet given out"),
        ([PUT[0], "p 0.1 merged a1 b2", *CLAIMED, *DONE], {}, "merged, and yet given out"),
        ([PUT[0], "p 0.1 repeated a1", *CLAIMED, *DONE], {}, "had changed nothing had"),
        ([*CLAIMED, *DONE], {}, "nobody put it"),
        ([PUT[0], "p 0.0 intend b2 1 0.0 -", *CLAIMED, *DONE], {"p": Fate(killed_at=0.1)}, "1 of 2 messages"),
    ],
)
def test_what_has_none_is_wrong(lines: list[str], fates: dict[str, Fate], wrong: str) -> None:
    assert wrong in "\n".join(verdict_on(lines, fates).wrong)


HELD = "v 4.0 claimed a1 t1 1 3.9"
FAILED = [HELD, "v 4.1 begin a1 t1", "v 4.2 failed a1 t1"]
KILLED = {"v": Fate(killed_at=5.2)}


def told(at: float, event: str, id: str = "a1", count: int = 1) -> History:
    return History([Told(at, event, frozenset([id]), count)])


@pytest.mark.parametrize(
    ("lines", "history", "cause"),
    [
        (FAILED, told(4.3, "retry"), "killed"),
        ([HELD], History(), None),  # released: no log tells of that
        ([HELD], told(4.5, "requeue", id="b2"), None),
        ([HELD], told(2.0, "requeue"), None),
        ([HELD, "v 4.5 slow - 4.0"], History(), None),
    ],
)
def test_a_killed_worker_may_have_handed_back_in_its_last_turn(
    lines: list[str], history: History, cause: str | None
) -> None:
    verdict = verdict_on([*PUT, *lines, *AGAIN], KILLED, history=history)
    assert verdict.wrong == []
    assert list(verdict.causes) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("lines", "fates", "history"),
    [
        ([HELD], KILLED, told(4.5, "requeue")),  # the store took it, from whoever that was
        (FAILED, KILLED, told(4.5, "requeue")),
        (FAILED, {}, told(4.3, "retry")),  # the living write down what they do
        ([HELD], {}, History()),
        (FAILED, KILLED, History()),  # what has failed is not released
        (FAILED[:2], KILLED, told(4.3, "retry")),  # no handler asked for that
        (FAILED[:2], KILLED, History()),  # nor is what has begun released
        ([*FAILED, "v 4.5 acked b1 t9"], KILLED, told(4.3, "retry")),  # a turn later it would be written
        ([HELD, "v 5.3 acked b1 t9"], {"v": Fate(killed_at=5.4)}, History()),
        ([HELD], KILLED, told(4.5, "requeue", id="b2", count=60)),  # of these the log names only some
        ([HELD], KILLED, History(since=4.5)),  # so old a log is not kept
    ],
)
def test_but_nothing_may_be_taken_from_it_too_early(
    lines: list[str], fates: dict[str, Fate], history: History
) -> None:
    (early, *_) = verdict_on([*PUT, *OTHER, *lines, *AGAIN], fates, history=history).wrong
    assert "taken from v 1.200 s after its claim" in early


def test_an_ack_is_not_on_its_way_for_ever() -> None:
    """Worked on to the end, and long afterwards begun again: the ack was lost, not cut off by the kill."""
    late = Fate(killed_at=1.3 + SETTLE_WINDOW + 1)
    again = [line.replace("w 5.", "w 15.").replace(" 5.0", " 15.0") for line in AGAIN]
    assert "neither killed" in verdict_on([*PUT, *CLAIMED, DONE[0], *again], {"v": late}).wrong[0]


def test_a_dead_letter_must_be_poison() -> None:
    killing = [*PUT, *CLAIMED, "v 1.3 poison a1 t1"]
    dead, killed = frozenset({"a1"}), {"v": Fate(killed_at=1.3)}
    assert verdict_on(killing, killed, dead).wrong == []
    assert "no poison" in verdict_on([*PUT, *CLAIMED], killed, dead).wrong[0]


def test_what_was_put_but_not_in_the_ledger_of_its_producer_is_counted() -> None:
    unknown = {"p": Fate(killed_at=0.1)}
    assert verdict_on([PUT[0], *CLAIMED, *DONE], unknown).counts["unknown, kept"] == 1
    assert verdict_on(PUT[:1], unknown).counts["unknown, not kept"] == 1


UNSURE = [PUT[0], "p 0.1 unsure a1", "p 0.2 repeated a1"]
UNHEARD = [DONE[0], "v 1.4 unheard a1 t1 acked", "v 1.5 late a1 t1 gone"]


@pytest.mark.parametrize(
    "lines",
    [
        [*UNSURE, *CLAIMED, *DONE],
        [*PUT, *CLAIMED, *UNHEARD],
        [
            *PUT,
            *CLAIMED,
            "v 1.3 failed a1 t1",
            "v 1.4 unheard a1 t1 retried",
            "v 1.5 retried a1 t1 lost",
            *AGAIN,
        ],
    ],
)
def test_what_got_no_answer_may_have_been_done(lines: list[str]) -> None:
    assert verdict_on(lines, {}).wrong == []


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (UNSURE, "LOST"),
        ([*PUT, *CLAIMED, *UNHEARD, *AGAIN], "neither killed nor stopped"),
        ([*PUT, *CLAIMED, DONE[0], "v 1.4 unheard a1 t1 acked"], "not acked"),
    ],
)
def test_that_excuses_nothing_else(lines: list[str], wrong: str) -> None:
    assert wrong in "\n".join(verdict_on(lines, {}).wrong)


LONG_KILL = Outage(1.5, 3.0, forgets=0.3, gone=2.1)
FORGOTTEN_NUMBER = [line.replace("t2 2", "t2 1") for line in AGAIN]


@pytest.mark.parametrize(
    ("lines", "outage", "cause"),
    [
        (PUT, Outage(0.5, 0.6, forgets=1.0), None),
        ([*PUT, *CLAIMED, *DONE, *AGAIN], Outage(1.5, 1.6, forgets=1.0), "forgotten"),
        ([*PUT, *CLAIMED, *FORGOTTEN_NUMBER], Outage(1.5, 1.6, forgets=1.0), "forgotten"),
        ([*PUT, *CLAIMED, DONE[0], "v 1.8 late a1 t1 gone"], Outage(1.5, 1.6, forgets=1.5), None),
        # On a busy machine a kill, and the line about an answer, take their time.
        ([PUT[0], "p 2.9 accepted a1 0.9"], Outage(1.5, 3.0, forgets=1.0, gone=2.1), None),
        ([*PUT, *CLAIMED, DONE[0], "v 2.9 acked a1 t1 2.0", *AGAIN], LONG_KILL, "forgotten"),
    ],
)
def test_a_store_may_forget_its_last_answers(lines: list[str], outage: Outage, cause: str | None) -> None:
    verdict = verdict_on(lines, {}, outages=(outage,))
    assert verdict.wrong == []
    assert list(verdict.causes) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("lines", "causes"),
    [
        ([*PUT, *CLAIMED, *DONE, *AGAIN], ["owed"]),
        ([*PUT, CLAIMED[0], "v 1.2 unstarted a1 t1", *AGAIN], []),
        ([*PUT, CLAIMED[0], "v 1.2 unstarted a1 t1", *(line.replace("5.", "2.") for line in AGAIN)], []),
    ],
)
def test_a_process_may_answer_for_a_store_that_is_away(lines: list[str], causes: list[str]) -> None:
    verdict = verdict_on(lines, {}, outages=(Outage(1.0, 1.5, owes=1.0),))
    assert verdict.wrong == []
    assert [cause for cause, count in verdict.causes.items() if count] == causes
    assert verdict_on(lines, {}, outages=(Outage(1.0, 1.5),)).wrong or "unstarted" in lines[3]
    assert verdict_on([*PUT, *CLAIMED, *DONE, *AGAIN], {}, outages=(Outage(3.0, 3.5, owes=1.0),)).wrong


def test_a_spool_counts_its_deliveries_for_itself() -> None:
    here = [line.replace("t1", "spool:t1") for line in CLAIMED]
    failed = ["v 1.3 failed a1 spool:t1", "v 1.4 retried a1 spool:t1 ok"]
    assert verdict_on([*PUT, *here, *failed, *FORGOTTEN_NUMBER], {}).wrong == []
    done = [line.replace("t1", "spool:t1") for line in DONE]
    owing = (Outage(1.0, 1.5, owes=1.0),)
    taken = verdict_on([*PUT, *here, *done, *FORGOTTEN_NUMBER], {}, outages=owing)
    assert "after the ack of v was taken" in taken.wrong[0], "the ack of a spool is no promise but a fact"


def test_but_none_that_was_asked_for_when_it_was_gone() -> None:
    late = [*PUT, *CLAIMED, DONE[0], "v 2.9 acked a1 t1 2.3", *AGAIN]
    assert "after the ack of v was taken" in verdict_on(late, {}, outages=(LONG_KILL,)).wrong[0]
    assert "LOST" in verdict_on([PUT[0], "p 2.9 accepted a1 0.6"], {}, outages=(LONG_KILL,)).wrong[0]


@pytest.mark.parametrize("outage", [Outage(1.5, 1.6), Outage(4.0, 4.1, forgets=1.0)])
def test_but_not_earlier_ones(outage: Outage) -> None:
    assert "LOST" in verdict_on(PUT, {}, outages=(outage,)).wrong[0]
    again = verdict_on([*PUT, *CLAIMED, *DONE, *AGAIN], {}, outages=(outage,))
    assert "after the ack of v was taken" in again.wrong[0]
