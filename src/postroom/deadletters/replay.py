"""Replaying dead letters: here or into another queue, as they were or edited, slowly, one first.

A replay's id follows from the letter and the number of the replay, so that whoever asks again, after a
crash or beside somebody else, makes no second message. Letters that were replayed are left out unless
asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from postroom.call import headers_anew
from postroom.deadletters.bulk import BATCH, Batch, Result
from postroom.deadletters.canary import Canary
from postroom.deadletters.letter import DeadLetter
from postroom.engine import Engine
from postroom.errors import QueueFull
from postroom.ids import replay_id
from postroom.model import Action, Message, Move, NewMessage
from postroom.policy import Rate
from postroom.schemas import edited

#: A put that somebody may repeat is remembered for a day.
_DAY = 86_400_000
#: The longest sleep between two questions whether to go on (seconds).
_NAP = 0.5

Edit = Callable[[DeadLetter], Any]


class Replay:
    """Put the letters again as new messages.

    to      the queue to put them into; None: each into its own
    edit    gives the new body of a letter, or None to leave it
    again   also those that were replayed before
    rate    at most so many a second, minute or hour
    canary  one first; the others only if that one succeeded
    check   called before each step; it ends the replay by raising
    schemas the files of the schemas that edited bodies must fit, by kind

    An edited body that will not do raises InvalidInput before anything is put, in a dry run too.
    """

    action = "replay"

    def __init__(
        self,
        engine: Engine,
        *,
        to: str | None = None,
        edit: Edit | None = None,
        again: bool = False,
        rate: Rate | None = None,
        canary: Canary | None = None,
        check: Callable[[], object] | None = None,
        schemas: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._schemas = schemas or {}
        self._to = to
        self._edit = edit
        self._again = again
        self._pace = Pace(rate, check)
        self._canary = canary

    def __call__(self, batch: Batch, result: Result) -> None:
        letters = [letter for letter in batch.letters if self._again or not letter.replayed_as]
        result.already += len(batch.letters) - len(letters)
        result.eligible += len(letters)
        if result.dry_run:
            for letter in letters if self._edit else ():
                self._edited(letter)
            return
        if not letters:
            return
        if self._canary:
            letters = self._try_one(batch.queue, letters, result)
        for some in self._pace.portions(letters):
            if result.stopped:
                return
            self._send(batch.queue, some, result)

    def _try_one(self, queue: str, letters: list[DeadLetter], result: Result) -> list[DeadLetter]:
        """Replay the first that can be put, and wait for its end; those that are left."""
        assert self._canary
        into = self._to or queue
        self._canary.release(into)
        before = result.done
        while letters and result.done == before and not result.stopped:
            self._send(queue, letters[:1], result)
            letters = letters[1:]
        if result.done > before:
            result.stopped = self._canary.outcome(into, result.last)
            self._canary = None
        return letters

    # --- putting again ----------------------------------------------------------------------

    def _send(self, queue: str, letters: list[DeadLetter], result: Result) -> None:
        """All of them in one step; where they do not fit, half of them."""
        try:
            if self._to in (None, queue):
                self._here(queue, letters, result)
            else:
                self._there(queue, letters, result)
        except QueueFull as full:
            if len(letters) == 1:
                result.stopped = str(full)
                return
            middle = len(letters) // 2
            self._send(queue, letters[:middle], result)
            if not result.stopped:
                self._send(queue, letters[middle:], result)

    def _here(self, queue: str, letters: list[DeadLetter], result: Result) -> None:
        moves = [self._move(letter) for letter in letters]
        for letter, moved in zip(letters, self._engine.move(queue, moves), strict=True):
            if moved.ok:
                result.did(moved.replayed_as or "")
            else:
                result.refuse(letter.id, moved.reason or "it is not dead any more")

    def _move(self, letter: DeadLetter) -> Move:
        body, content_type, headers = self._edited(letter)
        return Move(
            id=letter.id,
            action=Action.REPLAY,
            number=_number(letter),
            body=body,
            content_type=content_type,
            headers=headers,
        )

    def _there(self, queue: str, letters: list[DeadLetter], result: Result) -> None:
        """A put that is remembered, then the mark: between the two a repeated put changes nothing."""
        assert self._to
        messages = [self._again_as(letter) for letter in letters]
        marks = []
        for letter, message, put in zip(
            letters, messages, self._engine.put(self._to, messages).puts, strict=True
        ):
            if put.id == message.id:
                marks.append(_mark(letter, put.id))
                result.did(put.id)
            else:
                result.refuse(letter.id, f"message {put.id} holds its unique_key")
        self._engine.move(queue, marks)

    def _again_as(self, letter: DeadLetter) -> NewMessage:
        body, content_type, headers = self._edited(letter)
        message = letter.entry.message
        return new_message(
            message,
            id=replay_id(letter.id, _number(letter)),
            body=message.body if body is None else body,
            content_type=content_type or message.content_type,
            headers=message.headers if headers is None else headers,
            remember=max(message.remember or 0, _DAY),
        )

    def _edited(self, letter: DeadLetter) -> tuple[bytes | None, str | None, dict[str, str] | None]:
        """What is to be other about the replay: body, content type, headers; None: nothing."""
        body = self._edit(letter) if self._edit else None
        message = letter.entry.message
        headers = headers_anew(message, edited=body is not None)
        if body is None:
            return None, None, headers
        return *edited(message, body, self._schemas), headers


def new_message(message: Message, **changes: Any) -> NewMessage:
    """A message like another one, to be put now; it does not expire, or it would at once."""
    fields = ("id", "body", "kind", "content_type", "headers", "priority", "ack_timeout", "max_attempts",
              "correlation_id", "unique_key", "remember")  # fmt: skip
    return NewMessage(**{name: getattr(message, name) for name in fields} | changes)


def _number(letter: DeadLetter) -> int:
    return len(letter.replayed_as) + 1


def _mark(letter: DeadLetter, replayed_as: str) -> Move:
    return Move(id=letter.id, action=Action.MARK_REPLAYED, number=_number(letter), replayed_as=replayed_as)


class Pace:
    """Portions of work, no faster than a rate allows."""

    def __init__(self, rate: Rate | None, check: Callable[[], object] | None) -> None:
        self._per_second = None if rate is None else rate.count * 1_000 / rate.per
        self._next = 0.0
        self._check = check

    def portions(self, letters: list[DeadLetter]) -> Iterator[list[DeadLetter]]:
        """Some at a time: ten portions a second where a rate is given."""
        size = BATCH if self._per_second is None else max(1, min(BATCH, int(self._per_second / 10)))
        for first in range(0, len(letters), size):
            some = letters[first : first + size]
            self._wait(len(some))
            if self._check:
                self._check()
            yield some

    def _wait(self, count: int) -> None:
        if self._per_second is None:
            return
        # A slow rate waits long: whoever may end it is asked meanwhile.
        while (left := self._next - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))
            if self._check:
                self._check()
        now = time.monotonic()
        self._next = max(self._next, now) + count / self._per_second
