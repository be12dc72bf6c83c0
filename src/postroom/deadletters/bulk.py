"""Work on many dead letters, in bounded steps: chosen by a filter or by name, told how it goes, stoppable.

What was done stays done, and the same call again does the rest: nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from postroom import audit
from postroom.deadletters.filter import Filter
from postroom.deadletters.finding import Scan
from postroom.deadletters.groups import pages
from postroom.deadletters.letter import DeadLetter
from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.model import Action, Move

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


class Batch(NamedTuple):
    """Letters of one queue, how many were looked at to find them, and ids that were asked for in vain."""

    queue: str
    letters: list[DeadLetter]
    scanned: int = 0
    missing: tuple[str, ...] = ()


class Choice:
    """The dead letters that are meant: those that are there when it is made, and no later ones.

    A replay that fails again is a new dead letter: without that line it would be replayed for ever.
    """

    def __init__(self, engine: Engine, queues: Sequence[str], chosen: Chosen) -> None:
        if not isinstance(chosen, Filter) and len(chosen) > MOST_SELECTED:
            raise InvalidInput(f"{len(chosen):,} ids are more than {MOST_SELECTED:,}; choose by a filter")
        self._engine = engine
        self._queues = queues
        self._chosen = chosen
        every = [group for queue in queues for group in pages(engine, queue)]
        #: How many there are, whether they match or not; at most so many are looked at.
        self.total = sum(group.count for group in every)
        self._horizon = max((group.last for group in every), default=0)

    def batches(self) -> Iterator[Batch]:
        if not isinstance(self._chosen, Filter):
            for id in dict.fromkeys(self._chosen):
                yield from self._selected(id)
            return
        for step in Scan(self._engine, self._queues, self._chosen).steps(page=BATCH):
            letters = [letter for letter in step.letters if letter.died_at <= self._horizon]
            yield Batch(step.queue, letters, step.scanned)

    def _selected(self, id: str) -> Iterator[Batch]:
        steps = Scan(self._engine, self._queues, Filter(task=id)).steps()
        found = [Batch(step.queue, step.letters, step.scanned) for step in steps if step.letters]
        yield from found or [Batch("", [], missing=(id,))]

    @property
    def described(self) -> dict[str, Any]:
        """For the audit."""
        chosen = self._chosen
        return chosen.as_dict() if isinstance(chosen, Filter) else {"ids": list(chosen)[:_KEPT]}


class Work(Protocol):
    """What is done with each batch, and what that is called."""

    action: str

    def __call__(self, batch: Batch, result: Result) -> None:
        """Do it, and note in the result what came of it; set `stopped` to end early.

        In a dry run only count what is eligible.
        """


def run(
    engine: Engine, name: str, choice: Choice, work: Work, dry_run: bool, on_progress: OnProgress | None
) -> Result:
    """Work through the choice, noted in the audit at both ends; a dry run only counts, and is not noted."""
    result = Result(action=work.action, dry_run=dry_run, ids=[], refusals=[])
    note = _silent if dry_run else audit.note
    note(engine, work.action, name, 0, state="begun", filter=choice.described)
    state = "done"
    try:
        for batch in choice.batches():
            _do(batch, work, result)
            if on_progress:
                on_progress(Progress(result.scanned, result.done, choice.total))
            if result.stopped:
                state = f"stopped: {result.stopped}"
                break
    except BaseException as error:
        state = f"stopped: {type(error).__name__} {error}"
        raise
    finally:
        note(engine, work.action, name, result.done, state=state, filter=choice.described)
    return result


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
