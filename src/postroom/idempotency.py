"""The same work once, however often it is asked for.

    @idempotent(key=lambda delivery: delivery.body["invoice"], ttl="24h")
    def pay(delivery): ...

Two phases, fenced. First the work is *claimed*: a record names the delivery that does it. Then it is
*done*: the record holds the result, for `ttl`. Each is one round trip.

- A duplicate of work that is done gets the stored result, and nothing runs.
- A duplicate of work that is being done waits for it, up to `wait`, or is told by `InProgress`; in a
  handler that hands its message back for a moment, without an attempt.
- Work that failed is not done: the claim is given up, and the next attempt runs.
- Work whose process died is not done either. A claim lives as long as the delivery that made it holds
  its message: once that is redelivered, or waits, or is dead, whoever comes next takes the claim over,
  and the old one can no longer say that it is done.

What it cannot do: between the effect (the payment) and the second phase a process can die, and then the
effect happens again. Only the one who has the effect can close that gap: give your provider
`delivery.idempotency_key`, or keep the effect and the mark in one transaction (`postroom.sqlguard`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from postroom.delivery import Work, in_hand
from postroom.duration import Duration, milliseconds
from postroom.engine import Engine
from postroom.errors import EngineUnavailable, InProgress, InvalidInput, Later, PostroomError
from postroom.ids import new_token
from postroom.limits import MAX_RECORD, check_key
from postroom.model import State, Verb

if TYPE_CHECKING:
    from postroom.logs import Record
    from postroom.room import Room

log: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: The kind of the records that claims and results are.
KIND = "idempotency"
#: While it waits for somebody else it looks this often, at first and at last (seconds).
_LOOK_FIRST, _LOOK_LAST = 0.02, 0.5
#: When a duplicate that was told may come again (seconds).
_AGAIN = 2.0
#: Pauses between tries to say that the work is done, while the store is away (seconds).
_PAUSES = (0.1, 0.4, 1.5)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows about a piece of work: who claimed it and, once it is done, its result.

    deliveries  which delivery of the message it was: they are numbered
    caller      a name of its own for a claim that no delivery made; such a one ends by its lease
    """

    queue: str = ""
    id: str = ""
    deliveries: int = 0
    caller: str = ""
    done: bool = False
    result: Any = None


class Claim(NamedTuple):
    """Our claim, under the version that nobody else has."""

    mark: Mark
    version: int


def idempotent(
    key: Callable[..., str | int] | None = None,
    *,
    ttl: Duration = "24h",
    wait: Duration = 0,
    lease: Duration = "5m",
    name: str = "",
    room: Room | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Run a handler, or any function, once for each key. A decorator.

    key    what names the work, from the same arguments; without one, `delivery.idempotency_key`
    ttl    how long it is known that the work was done
    wait   how long to wait for somebody who is doing it, before InProgress
    lease  how long a claim lives that no delivery made: longer than the work takes
    name   keys of one name belong together; the function's own unless given
    room   where to keep it, for a function that is called outside of a delivery

    The result is kept as JSON of at most 64 KB; a larger or other one is not kept, and duplicates get None.
    """
    spans = milliseconds(ttl, "ttl"), milliseconds(wait, "wait"), milliseconds(lease, "lease")
    if not spans[0] or not spans[2]:
        raise InvalidInput("idempotent: ttl and lease must be longer than nothing")
    if key is not None and not callable(key):
        raise InvalidInput(f"key: expected a function such as lambda delivery: …, not {key!r:.80}")

    def guard(function: Callable[P, T]) -> Callable[P, T]:
        if inspect.iscoroutinefunction(function):
            raise InvalidInput("idempotent guards plain functions; a coroutine is done when it is awaited")
        scope = name or f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"

        @functools.wraps(function)
        def once(*args: P.args, **kwargs: P.kwargs) -> T:
            work = in_hand()
            wanted = key(*args, **kwargs) if key else _own_key(work)
            book = _book(room, work, f"{scope}:{_text(wanted)}", *spans)
            return book.once(functools.partial(function, *args, **kwargs))

        once.__idempotent__ = True  # type: ignore[attr-defined]  # found by `is_guarded`
        return once

    return guard


def is_guarded(function: Callable[..., Any]) -> bool:
    """Whether a function is idempotent already."""
    return hasattr(function, "__idempotent__")


def _own_key(work: Work | None) -> str:
    if work is None:
        raise InvalidInput("idempotent: outside of a delivery it needs a key")
    return work.idempotency_key


def _text(key: object) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        raise InvalidInput(f"key: {key!r:.80} names no work; expected text or a number")
    return str(key)


def _book(room: Room | None, work: Work | None, key: str, ttl: int, wait: int, lease: int) -> Book:
    engine = room.engine if room else work.engine if work else None
    if engine is None:
        raise InvalidInput("idempotent: outside of a delivery it needs a room")
    # A delivery of another store says nothing to those who ask this one, nor does one that is settled.
    if work and work.engine is engine and work.is_held:
        mark = Mark(queue=work.queue, id=work.id, deliveries=work.deliveries)
        return Book(engine, check_key(key, "key"), mark, work, ttl=ttl, wait=wait, lease=ttl)
    return Book(
        engine, check_key(key, "key"), Mark(caller=new_token()), None, ttl=ttl, wait=wait, lease=lease
    )


class Book:
    """One key, as one caller sees it: claim, run, say that it is done. Spans are milliseconds."""

    def __init__(
        self, engine: Engine, key: str, mark: Mark, work: Work | None, *, ttl: int, wait: int, lease: int
    ) -> None:
        self._engine = engine
        self._records = engine.records
        self._key = key
        self._mark = mark
        self._work = work
        self._ttl = ttl
        self._wait = wait / 1_000
        self._lease = lease

    def once(self, function: Callable[[], T]) -> T:
        """Run the function, or give the result of who ran it before."""
        try:
            claim = self._claim(0) or self._meet()
        except EngineUnavailable as error:
            if self._work is None:
                raise
            # Not a failure of the work: an outage must not use up its attempts.
            raise Later("it is not known whether this was done", retry_after=_AGAIN) from error
        if isinstance(claim, Mark):
            log.info("done before", extra={"event": "idempotency.duplicate", "key": self._key})
            stored: T = claim.result
            return stored
        return self._run(function, claim)

    # --- the first phase --------------------------------------------------------------------

    def _claim(self, expect: int) -> Claim | None:
        value = msgspec.json.encode(self._mark)
        version = self._records.put(KIND, self._key, value, ttl=self._lease, expect=expect)
        return None if version is None else Claim(self._mark, version)

    def _meet(self) -> Claim | Mark:
        """Somebody was here before: their result, or their claim once it is void, or InProgress."""
        end, pause = time.monotonic() + self._wait, _LOOK_FIRST
        while True:
            record = self._records.get(KIND, self._key)
            mark = _read(record)
            if mark and mark.done:
                return mark
            if (mark is None or not self._holds(mark)) and (
                claim := self._claim(record.version if record else 0)
            ):
                return claim
            left = end - time.monotonic()
            if left <= 0:
                raise InProgress(f"{self._key}: is being done elsewhere", retry_after=_AGAIN)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LOOK_LAST)

    def _holds(self, mark: Mark) -> bool:
        """Whether whoever made this claim may still be at it; not if that was this delivery or an earlier one
        of its message. A later one may be: then it is ours that is over."""
        if mark.caller:
            return True  # until its lease ends, and the record with it
        same = (mark.queue, mark.id) == (self._mark.queue, self._mark.id)
        if same and mark.deliveries <= self._mark.deliveries:
            return False
        (entry,) = self._engine.get(mark.queue, [mark.id])
        return entry is not None and entry.state is State.PROCESSING and entry.deliveries == mark.deliveries

    # --- the work, and the second phase -----------------------------------------------------

    def _run(self, function: Callable[[], T], claim: Claim) -> T:
        try:
            result = function()
        except BaseException:
            self._give_up(claim)
            raise
        if getattr(self._work, "settled", None) in (None, Verb.ACK):
            self._finish(claim, result)
        else:  # the handler itself has said that it is not done
            self._give_up(claim)
        return result

    def _give_up(self, claim: Claim) -> None:
        # If the store is away the claim ends with the delivery, or by its lease.
        with contextlib.suppress(PostroomError):
            self._records.delete(KIND, self._key, expect=claim.version)

    def _finish(self, claim: Claim, result: object) -> None:
        """Say that it is done. Never raises: the effect has happened, and an error would repeat it."""
        value = self._done(claim.mark, result)
        for pause in (*_PAUSES, 0.0):
            try:
                version = self._records.put(KIND, self._key, value, ttl=self._ttl, expect=claim.version)
                if version is None and not self._is_written(value):
                    self._warn("another delivery took it over meanwhile", "idempotency.lost")
                return
            except PostroomError as error:
                problem = str(error)
                time.sleep(pause)
        self._warn(f"done, but that could not be written down: {problem}", "idempotency.unwritten")

    def _is_written(self, value: bytes) -> bool:
        """Whether an earlier try arrived, and only its answer was lost."""
        record = self._records.get(KIND, self._key)
        return record is not None and record.value == value

    def _done(self, mark: Mark, result: object) -> bytes:
        done = msgspec.structs.replace(mark, done=True)
        try:
            value = msgspec.json.encode(msgspec.structs.replace(done, result=result))
        except (TypeError, ValueError, OverflowError, RecursionError):
            value = b""
        if value and len(value) <= MAX_RECORD:
            return value
        self._warn("the result cannot be kept: duplicates get None", "idempotency.no_result")
        return msgspec.json.encode(done)

    def _warn(self, what: str, event: str) -> None:
        log.warning("%s: %s", self._key, what, extra={"event": event, "key": self._key})


def _read(record: Record | None) -> Mark | None:
    if record is None:
        return None
    try:
        return msgspec.json.decode(record.value, type=Mark)
    except msgspec.DecodeError as error:
        # Written by a newer release, perhaps as done: nothing may run on a guess.
        raise InProgress("it is marked in a way that this release cannot read", retry_after=60) from error
