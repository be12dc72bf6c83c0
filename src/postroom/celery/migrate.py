"""From kombu's own Redis transport to Postroom: every waiting task moves over, once.

A message is put here first, under an id that follows from its queue and its delivery tag, and only then taken
out of its old list. Whoever dies in between leaves it in both places, and the next run puts it under the same
id: one message, also when a worker was done with it meanwhile, for its id is remembered for a day.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from postroom import audit
from postroom.celery.office import Office
from postroom.celery.stock import Holds, StockRedis, Unacked, Waiting, read
from postroom.celery.wrapping import PUBLISH_ID, Payload, wrap
from postroom.errors import InvalidInput
from postroom.limits import check_name
from postroom.model import NewMessage

#: Messages moved at once: at first, at most, and of about so many bytes. A step keeps Redis for about 1 ms.
_FIRST, _MOST, _BYTES = 10, 100, 2 * 2**20
#: A list is left alone when so many messages at its end cannot be moved.
_MOST_KEPT = 1_000
#: How long the id of a migrated message is known after it is done (ms).
_REMEMBER = 24 * 3_600_000
#: The least urgent priority of kombu's Redis transport.
_LEAST_URGENT = 9

Progress = Callable[[int, int], None]


class Priorities(StrEnum):
    """What becomes of priorities, of which kombu's Redis transport takes 0 for the most urgent."""

    ZERO_IS_HIGHEST = "zero-is-highest"  # as the option priority_zero_is_highest stores them
    TURNED = "turned"  # 0 becomes 9 and 9 becomes 0
    SAME = "same"  # the number stays; what was urgent is not


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found, and what of it is going to move."""

    move: list[Waiting]
    leave: list[Waiting]
    #: Lists that are none of kombu's.
    unknown: list[str]
    exchanges: list[str]
    unacked: int
    #: Connections that look like workers; None when nobody may ask.
    workers: int | None

    @property
    def count(self) -> int:
        return sum(waiting.count for waiting in self.move)

    def as_dict(self) -> dict[str, Any]:
        rows = [(waiting, True) for waiting in self.move] + [(waiting, False) for waiting in self.leave]
        lists = [
            {"queue": found.queue, "priority": found.step, "waiting": found.count, "holds": str(found.holds),
             "moves": moves}
            for found, moves in rows
        ]  # fmt: skip
        return {
            "lists": lists,
            "unknown": self.unknown,
            "exchanges": self.exchanges,
            "unacked": self.unacked,
            "workers": self.workers,
        }


@dataclass(slots=True)
class Report:
    """What came of it, by queue."""

    moved: Counter[str] = field(default_factory=Counter)
    #: They had been put by a run that did not get to taking them out of their list.
    already: Counter[str] = field(default_factory=Counter)
    #: They stay in their old place: nobody could make a message of them.
    kept: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)

    def keep(self, queue: str, reason: str) -> None:
        self.kept[queue] += 1
        if len(self.reasons) < 10:
            self.reasons.append(f"{queue}: {reason}")

    def as_dict(self) -> dict[str, Any]:
        counts = {name: dict(getattr(self, name)) for name in ("moved", "already", "kept")}
        return {**counts, "reasons": self.reasons}


def look(old: StockRedis, queues: Sequence[str] = (), on_key: Callable[[], None] = lambda: None) -> Plan:
    """What there is to move: the tasks of every queue; or whatever is in the queues that are named."""
    bindings = old.bindings()
    found, unknown = old.lists(bindings, on_key)
    move: list[Waiting] = []
    leave: list[Waiting] = []
    for waiting in found:
        wanted = waiting.queue in queues if queues else waiting.holds is Holds.TASKS
        (move if wanted else leave).append(waiting)
    ours = [name for name in unknown if not _is_postrooms(name)]
    return Plan(move, leave, ours, sorted(bindings), old.unacked_count(), old.workers())


def _is_postrooms(name: str) -> bool:
    return "{" in name and name.endswith("}:wake")


class Migration:
    """Moves what a plan names. Safe to repeat, to interrupt, and to run twice at a time."""

    def __init__(self, old: StockRedis, office: Office, priorities: Priorities) -> None:
        self._old = old
        self._office = office
        self._priorities = priorities
        self.report: Report = Report()

    def run(self, plan: Plan, *, unacked: bool = False, on_progress: Progress | None = None) -> Report:
        """Move the lists of the plan until each is empty; then, if asked to, what workers left behind."""
        total = plan.count + (plan.unacked if unacked else 0)
        try:
            for waiting in plan.move:
                self._move(waiting, lambda: self._tell(on_progress, total))
            if unacked:
                for page in self._old.unacked():
                    self._move_unacked(page)
                    self._tell(on_progress, total)
        finally:
            self._note()
        return self.report

    def _tell(self, on_progress: Progress | None, total: int) -> None:
        if on_progress:
            report = self.report
            done = sum(map(Counter.total, (report.moved, report.already, report.kept)))
            on_progress(done, max(done, total))

    def _note(self) -> None:
        for queue, count in self.report.moved.items():
            audit.note(self._office.room.engine, "migrate", queue, count, source=self._old.where)

    def _move(self, waiting: Waiting, on_batch: Callable[[], None]) -> None:
        size, kept = _FIRST, 0
        while kept < _MOST_KEPT and (raws := self._old.next(waiting, size, kept)):
            put = self._put_run(waiting, raws)
            if put:
                self._old.cut(waiting, raws[:put], kept)
            else:
                kept += 1
            average = sum(map(len, raws)) // len(raws) or 1
            size = max(1, min(_MOST, _BYTES // average))
            on_batch()

    def _put_run(self, waiting: Waiting, raws: Sequence[bytes]) -> int:
        """Put these up to the first that cannot be; how many. None at all: the first one stays for good."""
        messages: list[NewMessage] = []
        for raw in raws:
            try:
                messages.append(self._message(waiting.queue, read(raw), waiting.step))
            except InvalidInput as error:
                if not messages:
                    self.report.keep(waiting.queue, str(error))
                break
        return self._put(waiting.queue, messages)

    def _put(self, queue: str, messages: Sequence[NewMessage]) -> int:
        """Put them together, or else, when the store takes one of them for wrong, the first alone."""
        while messages:
            try:
                self._office.declare(queue)
                puts = self._office.room.queue(queue).put_many(messages)
            except InvalidInput as error:
                if len(messages) == 1:
                    self.report.keep(queue, str(error))
                    return 0
                messages = messages[:1]
                continue
            created = sum(put.created for put in puts)
            self.report.moved[queue] += created
            self.report.already[queue] += len(puts) - created
            return len(puts)
        return 0

    def _move_unacked(self, page: Sequence[Unacked]) -> None:
        gone = [held for held in page if self._put_held(held)]
        if gone:
            self._old.drop(gone)

    def _put_held(self, held: Unacked) -> bool:
        if not held.queues:
            self.report.keep("unacked", "no queue is bound to its exchange")
        for queue in held.queues:
            try:
                message = self._message(queue, held.payload, 0)
            except InvalidInput as error:
                self.report.keep(queue, str(error))
                return False
            if not self._put(queue, [message]):
                return False
        return bool(held.queues)

    def _message(self, queue: str, payload: Payload | None, step: int) -> NewMessage:
        if payload is None:
            raise InvalidInput("no message of kombu's")
        check_name(queue)
        properties = dict(payload["properties"])
        properties[PUBLISH_ID] = _id(queue, str(properties["delivery_tag"]))
        properties["priority"] = self._priority(properties.get("priority"), step)
        highest_first = self._priorities is not Priorities.ZERO_IS_HIGHEST
        made = wrap(queue, {**payload, "properties": properties}, zero_is_highest=not highest_first)
        return made.replace(remember=_REMEMBER)

    def _priority(self, given: Any, step: int) -> int:
        """Kombu knows 0 to 9; what it cannot read it takes for that of the list."""
        number = given if isinstance(given, int) else step
        number = max(0, min(number, _LEAST_URGENT))
        return _LEAST_URGENT - number if self._priorities is Priorities.TURNED else number


def _id(queue: str, tag: str) -> str:
    """Of the queue too: an exchange gives one tag to all the queues it delivers to."""
    return hashlib.sha256(f"{queue}\0{tag}".encode(), usedforsecurity=False).hexdigest()[:32]
