"""The verdict: what the ledgers and the list of faults say about a leg, and nothing else.

Every accepted label has to end. One that ended twice is excused by a fault that was within 25 ms of the
earlier end: that of its own worker, or of the store. Everything else that was begun or ended again counts
against us; but time that the machine gave to somebody else is not the worker's (`starved`, told separately).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.ledger import Line

#: What ended this long before a fault may be done again (seconds).
WINDOW = 0.025
#: Who was asked politely had all the time it needs: it excuses nothing.
POLITE = frozenset({"warm"})
#: Killed before it could tell a store that was away, or asked to stop then, for which it waits a few seconds
#: and no longer: it costs what was done meanwhile, however much that is.
KILLED_AWAY = "killed, store away"
#: A worker may notice so late that a store is back, or that its connection is dead (seconds): it waits 5 s
#: for an answer, and up to 5 s before it asks again.
RETURN = 5.0
#: The machine gave its worker no time to tell anybody. On one that is not busy there must be none.
STARVED = "starved"
#: A prefork parent of Celery that stops forgets what it gave a child and was not told of yet, although the
#: child works on it (`flush` of celery.concurrency.asynpool): nobody acks that.
UNACCEPTED = "forgotten by prefork"
#: RabbitMQ gives what a worker holds to another one at once when their connection is lost, also what it is
#: still at; however many that are.
HELD = "held, connection lost"
#: What ends all connections of a store.
LOSES = frozenset({"cut", "disconnect", "restart"})
#: Its call failed and it was sent again under another name: only the caller knows that it is the same.
RESENT = "sent twice"
#: Behind a fault: the first had not ended when the second began, for it had lost its lease to that fault.
AT_WORK = ", still at it"


class Fault(NamedTuple):
    """Something that was done, from when to when, to one worker; without a name, to the store."""

    kind: str
    began: float
    over: float
    worker: str = ""
    #: Celery's, if it was a worker of Celery.
    pool: str = ""

    def excuses(self, worker: str, since: float, until: float, window: float) -> bool:
        """Whether it may be why something of this worker, of this time, was done again."""
        if self.kind in POLITE or self.worker not in ("", worker):
            return False
        return since <= self.over + window and until >= self.began - window

    def forgets(self, run: Run, window: float) -> bool:
        """Whether it stopped a prefork parent politely that had not heard yet that its child began this."""
        return self.pool == "prefork" and self.worker == run.worker and run.began >= self.began - window


class Run(NamedTuple):
    """One time that one worker worked on a label; `over`: when that ended, whatever became of it."""

    worker: str
    began: float
    over: float | None
    word: str


@dataclass
class Story:
    due: float = 0.0
    accepted: bool = False
    unsure: bool = False
    #: In the order in which they began.
    runs: list[Run] = field(default_factory=list)

    @property
    def ended(self) -> list[Run]:
        return [run for run in self.runs if run.word == "end"]


@dataclass
class Verdict:
    """What came out. Spans are seconds."""

    submitted: int = 0
    lost: list[str] = field(default_factory=list)
    #: The labels that ended twice and what excuses it, "" if nothing does; how often one was begun again.
    duplicated: dict[str, str] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)
    #: Begun or ended again, and nothing excuses it.
    unattributed: list[str] = field(default_factory=list)
    #: From due to the first begin; from the end of a worker to the next begin of what it had in its hands.
    waits: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    #: From the end of a fault of the store to the next end of any work.
    returns: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    #: Labels whose effect is there twice, or not at all.
    doubled: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    #: What is left in the store, by where; and what else went wrong.
    left: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def attributed(self) -> int:
        return sum(bool(cause) for cause in self.duplicated.values())

    @property
    def causes(self) -> Counter[str]:
        """How many ended twice, by their reason."""
        return Counter(cause or "no reason" for cause in self.duplicated.values())

    @property
    def starved(self) -> int:
        return sum(cause == STARVED for cause in self.duplicated.values())

    @property
    def bounded(self) -> int:
        """Those of which a fault may cost one, in the mean."""
        unbounded = ("", KILLED_AWAY, STARVED, UNACCEPTED, HELD)
        return sum(cause not in unbounded for cause in self.duplicated.values())

    @property
    def blows(self) -> int:
        """Faults that may cost a duplicate."""
        return sum(count for kind, count in self.faults.items() if kind not in POLITE)

    @property
    def complaints(self) -> list[str]:
        """Why this is not good enough; none: it is."""
        found = [(self.lost, "lost"), (self.unattributed, "unattributed"), (self.doubled, "effects doubled")]
        found += [(self.missing, "effects missing"), (self.wrong, "wrong")]
        said = [f"{len(what)} {name}: {', '.join(what[:5])}" for what, name in found if what]
        if self.bounded > self.blows:
            said.append(f"{self.bounded} duplicates for {self.blows} faults")
        return said + [f"{count} left in {where}" for where, count in self.left.items() if count]


def judge(
    lines: Iterable[Line],
    faults: Sequence[Fault],
    effects: Mapping[str, int] | None = None,
    left: Mapping[str, int] | None = None,
    window: float = WINDOW,
    *,
    amqp: bool = False,
    renames: bool = True,
) -> Verdict:
    """`effects`: how often each label has had its effect, where somebody guarded them.

    `window`: how close to a fault is close, on a machine that is too busy for the usual one.
    `amqp`: the store is RabbitMQ, where a lease is a connection, and to try again is a copy and an ack.
    `renames`: who sends again does so under another name. With the same id, it must not be there twice.
    """
    ordered = sorted(lines, key=lambda line: line.at)
    stories = _tell(ordered)
    verdict = Verdict(left=dict(left or {}), faults=Counter(fault.kind for fault in faults))
    known = Known(faults, _slow_times(ordered), window, amqp, renames)
    for label, story in stories.items():
        _judge_one(verdict, label, story, known)
        if effects is not None and effects.get(label, 0) > 1:
            verdict.doubled.append(label)
        if effects is not None and story.accepted and not effects.get(label, 0):
            verdict.missing.append(label)
    ends = [line.at for line in ordered if line.word == "end"]
    _judge_recovery(verdict, stories, faults, ends)
    return verdict


# --- reading ------------------------------------------------------------------------------------


def _tell(lines: Sequence[Line]) -> dict[str, Story]:
    stories: dict[str, Story] = defaultdict(Story)
    open_runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        match line.word:
            case "intend":
                stories[line.id].due = float(line.rest[0])
            case "accepted":
                stories[line.id].accepted = True
            case "unsure":
                stories[line.id].unsure = True
            case "begin":
                runs = stories[line.id].runs
                open_runs[line.by, line.id].append(len(runs))
                runs.append(Run(_worker(line), line.at, None, ""))
            case "end" | "failed":
                number = open_runs[line.by, line.id].pop(0)
                runs = stories[line.id].runs
                runs[number] = runs[number]._replace(over=line.at, word=line.word)
    return stories


def _worker(line: Line) -> str:
    """Its process may be one of several."""
    return line.by.rpartition("-")[0]


def _slow_times(lines: Iterable[Line]) -> dict[str, list[tuple[float, float]]]:
    slow: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        if line.word == "slow":
            slow[_worker(line)].append((float(line.rest[0]), line.at))
    return slow


# --- judging ------------------------------------------------------------------------------------


class Known(NamedTuple):
    """What the judge knows beside the stories: the faults, and when each worker got no time."""

    faults: Sequence[Fault]
    slow: Mapping[str, Sequence[tuple[float, float]]]
    window: float
    amqp: bool = False
    renames: bool = True

    def cause(self, run: Run, later: Run) -> str | None:
        """Why this was begun again, if there is a reason."""
        # Who had ended it had only to say so; who had not lost it before the other began.
        ended = run.over is not None and run.over <= later.began
        since, until = (run.over or 0.0,) * 2 if ended else (run.began, later.began)
        excuses = [fault for fault in self.faults if fault.excuses(run.worker, since, until, self.window)]
        if any(self._killed_during(fault, run.worker) for fault in excuses if not fault.worker):
            return KILLED_AWAY
        own = min(excuses, key=lambda fault: not fault.worker, default=None)  # its worker's, if there is one
        if self.amqp and not (own and own.worker) and self._was_held(run, later):
            return HELD
        if own:
            return own.kind if ended or run.over is None else own.kind + AT_WORK
        if any(fault.forgets(run, self.window) for fault in self.faults):
            return UNACCEPTED
        return STARVED if ended and self._starved(run.worker, until) else None

    def copied(self, earlier: Sequence[Run], later: Run) -> str | None:
        """Why there may be two of it: what is tried again is sent, then acked, and a fault came between."""
        for run in earlier if self.amqp else ():
            if run.word == "end":
                continue
            since, until = run.began, run.over or later.began
            for fault in self.faults:
                if fault.excuses(run.worker, since, until, self.window):
                    return fault.kind
        return None

    def _was_held(self, run: Run, later: Run) -> bool:
        """Whether its worker was at it when the connections were lost, and so could not tell of an end."""
        until = run.over or later.began
        return any(
            fault.kind in LOSES and fault.began <= until and run.began <= fault.over for fault in self.faults
        )

    def _killed_during(self, away: Fault, worker: str) -> bool:
        return any(
            fault.began <= away.over + RETURN and fault.over >= away.began
            for fault in self.faults
            if fault.worker == worker
        )

    def _starved(self, worker: str, ended: float) -> bool:
        """Whether it had no more than the usual time, of that which the machine gave it and the store."""
        killed = min((fault.began for fault in self._of(worker) if fault.began > ended), default=None)
        if killed is None:
            return False
        away = [(fault.began, fault.over) for fault in self.faults if not fault.worker]
        had, at = 0.0, ended
        for began, over in sorted([*self.slow.get(worker, ()), *self.slow.get("store", ()), *away]):
            if over > at and began < killed:
                had, at = had + max(0.0, began - at), over
        return had + max(0.0, killed - at) <= self.window

    def _of(self, worker: str) -> list[Fault]:
        """What ended it. On RabbitMQ also what ended its connection: over another no ack can be repeated."""
        whose = ("", worker) if self.amqp else (worker,)
        return [fault for fault in self.faults if fault.worker in whose and fault.kind not in POLITE]


def _judge_one(verdict: Verdict, label: str, story: Story, known: Known) -> None:
    verdict.submitted += story.accepted
    if story.accepted and not story.ended:
        verdict.lost.append(label)
    if story.runs:
        verdict.waits.append(story.runs[0].began - story.due)
    for number, (earlier, later) in enumerate(itertools.pairwise(story.runs)):
        if earlier.word == "failed":
            continue
        cause = known.cause(earlier, later) or known.copied(story.runs[:number], later)
        cause = cause or (RESENT if story.unsure and known.renames else None)
        if earlier.word == "end":
            verdict.duplicated[label] = cause or ""
        if cause is None:
            verdict.unattributed.append(f"{label}: {earlier} {later}")
        else:
            verdict.again[cause] += 1


def _judge_recovery(
    verdict: Verdict, stories: Mapping[str, Story], faults: Sequence[Fault], ends: Sequence[float]
) -> None:
    hit = {fault.worker: fault for fault in faults if fault.worker and fault.kind not in POLITE}
    for story in stories.values():
        for earlier, later in itertools.pairwise(story.runs):
            if earlier.over is None and earlier.worker in hit:
                verdict.recoveries.append(later.began - hit[earlier.worker].over)
    for fault in faults:
        if not fault.worker:
            verdict.returns += [next((at - fault.over for at in ends if at > fault.over), 0.0)]
