"""The verdict: what the ledgers say about a battle, told from nothing but them and who was killed when.

Exact where it can be: the engine numbers the deliveries of a message, so that their order needs no clock.
The log of the store accuses, and tells what a killed worker did in its last moment; it excuses nobody else.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from tests.chaos.ledger import Line

#: Clocks are read a little before and after what they time (seconds).
_BLUR = 0.1
#: An ack is on its way for this long at most while its process runs (seconds): a turn may wait for the store.
SETTLE_WINDOW = 10.0
#: What the one thread of a worker that talks to the engine writes when that has answered.
_TURNED = {"claimed", "acked", "late", "retried", "returned", "unstarted"}

Span = tuple[float, float]


class Fate(NamedTuple):
    """What happened to one process: when it was killed, and from when to when stopped or too slow."""

    killed_at: float | None = None
    stops: tuple[Span, ...] = ()
    slow: tuple[Span, ...] = ()
    #: When it last wrote down an answer to a turn.
    last_turn: float = 0.0


class Outage(NamedTuple):
    """The store was away for so long, and may have forgotten what it answered in the seconds before.

    `owes`: each process answered for it meanwhile, and has told it everything so many seconds after.
    `gone`: until then it may have answered; None: it did not when this began.
    """

    began: float
    over: float
    forgets: float = 0.0
    owes: float | None = None
    gone: float | None = None

    def may_have_forgotten(self, asked: float, answered: float) -> bool:
        """Whether that concerns a call which was made and came back at these moments."""
        gone = self.began if self.gone is None else self.gone
        return bool(self.forgets) and asked <= gone + _BLUR and answered >= self.began - self.forgets


class Told(NamedTuple):
    """One entry in the log of a queue: when, what, to which messages; they may be more than it names."""

    at: float
    event: str
    ids: frozenset[str]
    number: int


class History(NamedTuple):
    """The logs of all queues, which tell of every retry and every reclaim, and of no release."""

    entries: Sequence[Told] = ()
    #: What was before has been let go.
    since: float = -math.inf

    def of(self, id: str, since: float, until: float) -> dict[str, float]:
        """What happened to a message in this time, and when; "unknown": something may have."""
        window = [told for told in self.entries if since - _BLUR <= told.at <= until + _BLUR]
        happened = {told.event: told.at for told in window if id in told.ids}
        if since < self.since or any(told.number > len(told.ids) for told in window):
            happened.setdefault("unknown", since)
        return happened


#: Whoever shows the judge no log gets no excuse that needs one.
_NO_HISTORY = History(since=math.inf)


class Known(NamedTuple):
    """What the judge knows beside the ledgers."""

    fates: Mapping[str, Fate]
    lease: float
    outages: Sequence[Outage] = ()
    history: History = _NO_HISTORY

    @property
    def forgetful(self) -> bool:
        return any(outage.forgets for outage in self.outages)

    def forgotten(self, asked: float, answered: float) -> bool:
        return any(outage.may_have_forgotten(asked, answered) for outage in self.outages)

    def owed(self, delivery: Delivery) -> bool:
        """Whether its answer was that of a process which stood in for the store."""
        return delivery.side == "" and any(
            outage.began - _BLUR <= delivery.answered <= outage.over + outage.owes
            for outage in self.outages
            if outage.owes is not None
        )


@dataclass
class Delivery:
    """One delivery of one message, as its holder wrote it down."""

    by: str
    #: Who gave it out: "" is the store, "spool" the one that stands in for it; each counts for itself.
    side: str
    number: int
    #: The moment before the claim was sent, and the one after it came back.
    asked: float
    claimed: float
    began: float | None = None
    ended: float | None = None
    #: How the engine answered when it was settled: acked, late, retried, returned, or unstarted when it
    #: refused the start of the work; "" if it never did.
    answer: str = ""
    answered: float = 0.0
    #: When the ack was sent that got this answer.
    settling: float = 0.0
    #: What it may have become by a call that got no answer: acked, retried, returned.
    unheard: str = ""
    #: Whether its handler asked for another attempt.
    failed: bool = False

    @property
    def handed_back(self) -> bool:
        return "acked" not in (self.answer, self.unheard) and bool(
            {self.answer, self.unheard} & {"retried", "returned"}
        )


@dataclass
class Story:
    """One message."""

    due: float = 0.0
    batch: str = ""
    keyed: bool = False
    puts: list[str] = field(default_factory=list)
    #: When its put was called, and when that returned.
    asked: float = 0.0
    accepted: float = 0.0
    #: Whether a put got no answer, so that a later one may have found the message there.
    unsure: bool = False
    deliveries: dict[str, Delivery] = field(default_factory=dict)

    def in_order(self, by_time: bool) -> list[Delivery]:
        """As the engine has numbered them; one that may forget may give a number twice."""
        deliveries = list(self.deliveries.values())
        by_time = by_time or len({delivery.side for delivery in deliveries}) > 1
        return sorted(deliveries, key=attrgetter("claimed" if by_time else "number"))

    @property
    def worked_on(self) -> bool:
        return any(delivery.began is not None for delivery in self.deliveries.values())


@dataclass
class Verdict:
    """What is wrong, and the numbers."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: Why each delivery that began was followed by another: killed, stopped, failed, starved, forgotten.
    causes: Counter[str] = field(default_factory=Counter)
    #: How many deliveries one process took down with it.
    taken_down: Counter[str] = field(default_factory=Counter)
    #: When the holder of each of those was killed.
    orphans: dict[str, float] = field(default_factory=dict)
    #: All ids that were ever worked on.
    begun: set[str] = field(default_factory=set)
    #: How long each put took (seconds).
    put_spans: dict[str, float] = field(default_factory=dict)


def judge(
    lines: Iterable[Line],
    fates: Mapping[str, Fate],
    dead: set[str],
    lease: float,
    outages: Sequence[Outage] = (),
    history: History = _NO_HISTORY,
) -> Verdict:
    """`dead`: the dead letters of the store; only poison may be among them."""
    verdict = Verdict()
    lines = sorted(lines, key=lambda line: line.at)
    slow, turns = _slow_times(lines), _last_turns(lines)
    fates = {
        name: fate._replace(slow=tuple(slow[name]), last_turn=turns.get(name, 0.0))
        for name, fate in fates.items()
    }
    known = Known(fates, lease, outages, history)
    stories, poison = _tell(lines, verdict)
    for id, story in stories.items():
        _judge_put(id, story, id in dead, known, verdict)
        _judge_deliveries(id, story, id in dead, known, verdict)
    _judge_batches(stories, verdict)
    for id in dead - poison:
        verdict.wrong.append(f"{id} is a dead letter, and no poison")
    verdict.begun = {id for id, story in stories.items() if story.worked_on}
    return verdict


def _slow_times(lines: Iterable[Line]) -> dict[str, list[Span]]:
    slow: dict[str, list[Span]] = defaultdict(list)
    for line in lines:
        if line.word == "slow":
            slow[line.by].append((float(line.rest[0]), line.at))
    return slow


def _last_turns(lines: Iterable[Line]) -> dict[str, float]:
    return {line.by: line.at for line in lines if line.word in _TURNED}


# ---- Reading --------------------------------------------------------------------------------------


def _tell(lines: Iterable[Line], verdict: Verdict) -> tuple[dict[str, Story], set[str]]:
    stories: dict[str, Story] = defaultdict(Story)
    poison: set[str] = set()
    for line in lines:
        verdict.counts[line.word] += 1
        match line.word:
            case "intend":
                batch, due, key = line.rest
                stories[line.id] = Story(float(due), f"{line.by}/{batch}", key != "-")
            case "accepted" | "merged" | "refused" | "repeated":
                _tell_put(line, stories[line.id], verdict)
            case "unsure":
                stories[line.id].unsure = True
            case "wrong":
                verdict.wrong.append(f"{line.id}: {line.by} got another body than was put")
            case "poison":
                poison.add(line.id)
            case "ready" | "closed" | "busy" | "slow" | "killed" | "stopped" | "goes-on" | "outage":
                pass
            case _:
                _tell_delivery(line, stories[line.id], verdict)
    return stories, poison


def _tell_put(line: Line, story: Story, verdict: Verdict) -> None:
    found = line.word == "repeated" and story.unsure
    story.puts.append("accepted" if found else line.word)
    if story.puts[-1] == "accepted":
        story.accepted = line.at
        story.asked = line.at - float(line.rest[0]) if line.rest else line.at
    if line.word == "accepted":
        verdict.put_spans[story.batch] = float(line.rest[0])


def _tell_delivery(line: Line, story: Story, verdict: Verdict) -> None:
    token, *rest = line.rest
    if line.word == "claimed":
        if token in story.deliveries:
            verdict.wrong.append(f"{line.id}: two deliveries under one token")
        side = token.rpartition(":")[0]
        story.deliveries[token] = Delivery(line.by, side, int(rest[0]), float(rest[1]), line.at)
        return
    delivery = story.deliveries[token]
    match line.word:
        case "begin":
            if delivery.began is not None:
                verdict.wrong.append(f"{line.id}: {line.by} began one delivery twice")
            delivery.began = line.at
        case "end" | "failed":
            delivery.ended, delivery.failed = line.at, line.word == "failed"
        case "unheard":
            delivery.unheard = rest[0]
        case "acked" | "late" | "unstarted":
            delivery.answer, delivery.answered = line.word, line.at
            delivery.settling = float(rest[0]) if line.word == "acked" and rest else line.at
        case "retried" | "returned":
            delivery.answer = line.word if rest[0] == "ok" else "late"


# ---- Judging --------------------------------------------------------------------------------------


def _judge_put(id: str, story: Story, dead: bool, known: Known, verdict: Verdict) -> None:
    """Accepted: worked on to the end. Refused or merged: never seen. Neither: its producer was killed."""
    ended = any(delivery.ended is not None for delivery in story.deliveries.values())
    if not story.batch:
        verdict.wrong.append(f"{id}: nobody put it")
    if len(story.puts) > 1 or "repeated" in story.puts:
        verdict.wrong.append(f"{id}: a put that had changed nothing had: {story.puts}")
    elif story.puts == ["accepted"] and not (ended or dead) and known.forgotten(story.asked, story.accepted):
        verdict.counts["lost, forgotten"] += 1
    elif story.puts == ["accepted"] and not (ended or dead):
        verdict.wrong.append(f"{id}: LOST: it was accepted, and never worked on to the end")
    elif story.puts in (["merged"], ["refused"]) and story.deliveries and not known.forgetful:
        verdict.wrong.append(f"{id}: it was {story.puts[0]}, and yet given out")
    elif not story.puts:
        verdict.counts["unknown, kept" if story.deliveries else "unknown, not kept"] += 1


def _judge_batches(stories: Mapping[str, Story], verdict: Verdict) -> None:
    """A batch whose producer was killed is there as a whole, or not at all."""
    batches: dict[str, list[Story]] = defaultdict(list)
    for story in stories.values():
        # What has a unique key may have been merged, and nobody lived to say so.
        if not (story.keyed or story.puts):
            batches[story.batch].append(story)
    for name, batch in batches.items():
        there = sum(story.worked_on for story in batch)
        if 0 < there < len(batch):
            verdict.wrong.append(f"{name}: {there} of {len(batch)} messages of one put are there")


def _judge_deliveries(id: str, story: Story, dead: bool, known: Known, verdict: Verdict) -> None:
    deliveries = story.in_order(known.forgetful)
    numbers = [
        (each.side, each.number) for each in deliveries if not known.forgotten(each.asked, each.claimed)
    ]
    if len(set(numbers)) < len(numbers):
        verdict.wrong.append(f"{id}: two deliveries have one number: {numbers}")
    for delivery in deliveries:
        if delivery.began is not None and delivery.began < story.due - _BLUR:
            verdict.wrong.append(f"{id}: begun {story.due - delivery.began:.3f} s before it was due")
    for delivery in deliveries[:-1]:
        kept = not (known.forgotten(delivery.settling, delivery.answered) or known.owed(delivery))
        if delivery.answer == "acked" and kept:
            verdict.wrong.append(f"{id}: given out again after the ack of {delivery.by} was taken")
    for earlier, later in itertools.pairwise(deliveries):
        _judge_again(id, earlier, later, known, verdict)
    if deliveries and not dead:
        _judge_last(id, story, deliveries[-1], known, verdict)


def _judge_again(id: str, earlier: Delivery, later: Delivery, known: Known, verdict: Verdict) -> None:
    """One delivery was followed by another: why?"""
    if earlier.handed_back:
        verdict.causes["failed"] += "retried" in (earlier.answer, earlier.unheard)
        return
    if known.forgotten(earlier.asked, earlier.answered or earlier.claimed):
        verdict.causes["forgotten"] += earlier.began is not None
        return
    if known.owed(earlier) and earlier.answer in ("acked", "unstarted"):
        verdict.causes["owed"] += earlier.began is not None
        return
    early = _is_next(earlier, later) and later.claimed < earlier.asked + known.lease - _BLUR
    fate, happened = known.fates[earlier.by], known.history.of(id, earlier.asked, later.claimed)
    if early and not _is_unwritten(earlier, later, fate, happened):
        after = f"{later.claimed - earlier.asked:.3f} s after its claim"
        verdict.wrong.append(f"{id}: taken from {earlier.by} {after}; the log says {happened}")
    cause = _cause(earlier, later, fate)
    if cause == "unexplained":
        again = "given out again" if earlier.began is None else "begun again"
        harmless = f"{earlier.by} was neither killed nor stopped"
        verdict.wrong.append(f"{id}: {again}, and {harmless}: {earlier} {later}; the log says {happened}")
    if earlier.began is None:
        return
    verdict.causes[cause] += 1
    if cause == "killed":
        assert fate.killed_at is not None
        verdict.taken_down[earlier.by] += 1
        verdict.orphans[id] = fate.killed_at


def _is_unwritten(earlier: Delivery, later: Delivery, fate: Fate, happened: Mapping[str, float]) -> bool:
    """Whether its holder handed it back in its last turn, and was killed before it could write that down.

    A retry is in the log. A release is not: there nothing else has happened, and no handler had begun.
    """
    if earlier.answer or earlier.unheard or fate.killed_at is None:
        return False
    if happened.keys() == {"retry"}:
        return earlier.failed and _is_last_act(fate, happened["retry"])
    return not happened and earlier.began is None and _is_last_act(fate, later.claimed)


def _is_last_act(fate: Fate, at: float) -> bool:
    """Whether no turn was written down since: whoever makes another has written about the one before."""
    return fate.last_turn <= at + _BLUR


def _is_next(earlier: Delivery, later: Delivery) -> bool:
    return earlier.side == later.side and later.number == earlier.number + 1


def _cause(earlier: Delivery, later: Delivery, fate: Fate) -> str:
    if _overlaps(fate.stops, earlier, later):
        return "stopped"
    if fate.killed_at is not None and _in_flight(earlier, fate.killed_at):
        return "killed"
    # On a machine that is much too busy a lease may run out although its holder does what it can.
    return "starved" if _overlaps(fate.slow, earlier, later) else "unexplained"


def _overlaps(spans: Iterable[Span], earlier: Delivery, later: Delivery) -> bool:
    return any(began <= later.claimed and over >= earlier.asked for began, over in spans)


def _in_flight(delivery: Delivery, at: float) -> bool:
    """Whether this delivery may have been without an answer at that moment."""
    since = delivery.asked if delivery.began is None else delivery.began
    return since <= at and (delivery.ended is None or at - delivery.ended <= SETTLE_WINDOW)


def _judge_last(id: str, story: Story, delivery: Delivery, known: Known, verdict: Verdict) -> None:
    """The last delivery must have been acked, unless its holder was killed between the ack and its line."""
    if delivery.answer == "acked":
        return
    if delivery.answer == "late" and delivery.unheard == "acked":
        verdict.counts["acked, unheard"] += 1
        return
    if known.forgotten(story.asked, story.accepted):  # the message itself, and all that became of it
        verdict.counts["lost, forgotten"] += delivery.handed_back
        return
    fate = known.fates[delivery.by]
    killed = fate.killed_at is not None and delivery.ended is not None
    if not killed:
        verdict.wrong.append(f"{id}: the last delivery was not acked: {delivery}")
    verdict.counts["acked, unwritten"] += killed
