"""Work on many dead letters, in bounded steps: chosen by a filter or by name, told how it goes, stoppable.

What was done stays done, and the same call again does the rest: nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from postroom import audit
from postroom.deadletters.filter import Filter
from postroom.deadletters.finding import Scan, Step, exactly
from postroom.deadletters.groups import pages
from postroom.deadletters.letter import DeadLetter
from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.ids import is_id
from postroom.model import Action, Entry, Move, State

#: Letters of one step, ids of one selection, and how many ids and reasons a result keeps.
BATCH = 200
MOST_SELECTED = 1_000
_KEPT = 50

Chosen = Filter | Sequence[str]


class Progress(NamedTuple):
    """How far it is: `total` is how many dead letters there were at the beginning, matching or not."""

    scanned: int
    done: int
    total: int


class Refusal(NamedTuple):
    """A letter with which nothing was done, and why; `missing`: there is none of this id."""

    id: str
    reason: str
    missing: bool = False


class Result(msgspec.Struct, kw_only=True):
    """What came of it. `ids` and `refusals` keep the first 50; `stopped` says why it ended early."""

    action: str
    dry_run: bool = False
    scanned: int = 0
    matched: int = 0
    #: What a dry run would do.
    eligible: int = 0
    done: int = 0
    #: Was replayed before, by whomever; `again` replays it once more.
    already: int = 0
    refused: int = 0
    stopped: str = ""
    ids: list[str] = []
    #: The id of the last one done.
    last: str = ""
    refusals: list[Refusal] = []

    def did(self, id: str) -> None:
        self.done += 1
        self.last = id
        if len(self.ids) < _KEPT:
            self.ids.append(id)

    def refuse(self, id: str, reason: str, *, missing: bool = False) -> None:
        self.refused += 1
        if len(self.refusals) < _KEPT:
            self.refusals.append(Refusal(id, reason, missing))

    def as_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        shown["refusals"] = [refusal._asdict() for refusal in self.refusals]
        return shown


OnProgress = Callable[[Progress], None]


class Cancelled(Exception):
    """Raised by whoever is asked whether to go on, and wants it to end; its text says why, for the audit."""


class Place(msgspec.Struct, kw_only=True):
    """Where work is just before a step: enough to go on there after a crash, and to count right.

    `cursor` finds the step again, `letters` are those of the step with the replays that each had, and
    `result` is what came of all steps before.
    """

    result: Result
    cursor: str | None = None
    queue: str = ""
    letters: list[tuple[str, int]] = []
    #: How many dead letters there were at the beginning.
    total: int = 0


OnStep = Callable[[Place], None]


class Batch(NamedTuple):
    """Letters of one queue, how many were looked at to find them, and ids that were asked for in vain.

    `cursor` is where it was found.
    """

    queue: str
    letters: list[DeadLetter]
    scanned: int = 0
    missing: tuple[str, ...] = ()
    cursor: str | None = None


class Choice:
    """The dead letters that are meant: those that are there when it is made, and no later ones.

    A replay that fails again is a new dead letter: without that line it would be replayed for ever.
    """

    def __init__(
        self,
        engine: Engine,
        queues: Sequence[str],
        chosen: Chosen,
        until: int | None = None,
        place: Place | None = None,
        *,
        replayed_stay: bool = True,
    ) -> None:
        if not isinstance(chosen, Filter) and len(chosen) > MOST_SELECTED:
            raise InvalidInput(f"{len(chosen):,} ids are more than {MOST_SELECTED:,}; choose by a filter")
        self._engine = engine
        self._queues = queues
        self._chosen = chosen
        self.place = place
        #: Letters of the interrupted step with which it was done; nothing more is done with them.
        self._finished = _recount(engine, place, replayed_stay) if place else frozenset[str]()
        every = [group for queue in queues for group in pages(engine, queue)]
        #: How many there are, whether they match or not; at most so many are looked at.
        self.total: int = sum(group.count for group in every)
        self._horizon = max((group.last for group in every), default=0) if until is None else until

    def batches(self) -> Iterator[Batch]:
        """From the beginning, or from the place where it was interrupted."""
        cursor = self.place.cursor if self.place else None
        if not isinstance(self._chosen, Filter):
            yield from self._selected(list(dict.fromkeys(self._chosen)), cursor)
            return
        for step in Scan(self._engine, self._queues, self._chosen).steps(cursor, page=BATCH):
            letters = [letter for letter in step.letters if letter.died_at <= self._horizon]
            yield Batch(step.queue, self._open(letters), step.scanned, cursor=cursor)
            cursor = step.cursor

    def _selected(self, ids: list[str], cursor: str | None) -> Iterator[Batch]:
        """Id by id; a cursor is the number of the id, and the queue: a task may have died in several."""
        first, _, queue = (cursor or "0@").partition("@")
        for number in range(int(first), len(ids)):
            steps = [step for step in self._of(ids[number]) if step.letters and step.queue >= queue]
            for step in steps:
                at = f"{number}@{step.queue}"
                yield Batch(step.queue, self._open(step.letters), step.scanned, cursor=at)
            if not steps and not queue:  # with a queue, it was there before it was interrupted
                yield Batch("", [], missing=(ids[number],), cursor=f"{number}@")
            queue = ""

    def _of(self, id: str) -> Iterable[Step]:
        """The letter of this message id, or else those of this task or correlation id.

        What a handler puts bears the id of its message as correlation id. Whoever means a letter that is
        gone, or in another view, does not mean those: what could be a message's id is only a task's besides.
        """
        if found := list(exactly(self._engine, self._queues, id)):
            return found
        steps = Scan(self._engine, self._queues, Filter(task=id)).steps()
        return map(partial(_of_task, id), steps) if is_id(id) else steps

    def _open(self, letters: list[DeadLetter]) -> list[DeadLetter]:
        return [letter for letter in letters if letter.id not in self._finished]

    @property
    def described(self) -> dict[str, Any]:
        """For the audit."""
        chosen = self._chosen
        return chosen.as_dict() if isinstance(chosen, Filter) else {"ids": list(chosen)[:_KEPT]}


def _of_task(id: str, step: Step) -> Step:
    return step._replace(letters=[letter for letter in step.letters if letter.call.task_id == id])


class Work(Protocol):
    """What is done with each batch, and what that is called."""

    action: str

    def __call__(self, batch: Batch, result: Result) -> None:
        """Do it, and note in the result what came of it; set `stopped` to end early.

        In a dry run only count what is eligible.
        """


def run(
    engine: Engine,
    name: str,
    choice: Choice,
    work: Work,
    dry_run: bool,
    on_progress: OnProgress | None,
    on_step: OnStep | None = None,
) -> Result:
    """Work through the choice, noted in the audit at both ends; a dry run only counts, and is not noted."""
    place = choice.place
    result = place.result if place else Result(action=work.action, dry_run=dry_run, ids=[], refusals=[])
    total = place.total if place else choice.total
    note = _silent if dry_run else audit.note
    note(engine, work.action, name, 0, state="goes on" if place else "begun", filter=choice.described)
    state = "done"
    try:
        for batch in choice.batches():
            if on_step:
                on_step(_place(batch, result, total))
            _do(batch, work, result)
            if on_progress:
                on_progress(Progress(result.scanned, result.done, total))
            if result.stopped:
                state = f"stopped: {result.stopped}"
                break
    except Cancelled as error:
        state = str(error)
        raise
    except BaseException as error:
        state = f"stopped: {type(error).__name__} {error}"
        raise
    finally:
        note(engine, work.action, name, result.done, state=state, filter=choice.described)
    return result


def _recount(engine: Engine, place: Place, replayed_stay: bool) -> frozenset[str]:
    """The letters of an interrupted step that were done, now counted; what somebody else did with them
    meanwhile looks the same."""
    finished = list[str]()
    #: Whether a letter is gone when it is done.
    leaves = place.result.action == Discard.action or not replayed_stay
    if place.letters:
        found = engine.get(place.queue, [id for id, _ in place.letters])
        for (id, replays), entry in zip(place.letters, found, strict=True):
            if made := _made_of(id, replays, entry, leaves):
                finished.append(id)
                place.result.did(made)
    place.result.matched += len(finished)
    place.result.eligible += len(finished)
    if leaves:
        place.result.scanned += len(finished)  # they are not found again
    return frozenset(finished)


def _made_of(id: str, replays: int, entry: Entry | None, leaves: bool) -> str:
    """The id that stands for what was done with a letter; "": nothing was."""
    there = entry is not None and entry.state is State.DEAD
    if leaves:
        return "" if there else id
    return entry.replayed_as[replays] if entry and len(entry.replayed_as) > replays else ""


def _place(batch: Batch, result: Result, total: int) -> Place:
    letters = [(letter.id, len(letter.replayed_as)) for letter in batch.letters]
    return Place(result=result, cursor=batch.cursor, queue=batch.queue, letters=letters, total=total)


def _do(batch: Batch, work: Work, result: Result) -> None:
    result.scanned += batch.scanned
    result.matched += len(batch.letters)
    for id in batch.missing:
        result.refuse(id, "there is no such dead letter", missing=True)
    if batch.letters:
        work(batch, result)


def _silent(engine: Engine, event: str, queue: str = "", count: int = 0, **info: Any) -> None:
    pass


class Discard:
    """Let go of the letters."""

    action = "discard"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, batch: Batch, result: Result) -> None:
        result.eligible += len(batch.letters)
        if result.dry_run:
            return
        moves = [Move(id=letter.id, action=Action.DISCARD) for letter in batch.letters]
        for letter, moved in zip(batch.letters, self._engine.move(batch.queue, moves), strict=True):
            if moved.ok:
                result.did(letter.id)
            else:
                result.refuse(letter.id, moved.reason)
