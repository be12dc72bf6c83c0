"""A delivery: one message in the hands of one consumer, until it is settled.

    with delivery:                  acked at the end; an exception is a retry with backoff
        send(delivery.body)

A delivery that no longer holds its message (`LeaseLost`) changes nothing, whatever it is told.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from postroom.content import decode
from postroom.duration import Duration, Instant, instant, milliseconds
from postroom.engine import Engine
from postroom.errors import Bury, EngineUnavailable, InvalidInput, Later, LeaseLost, Retry, Undecodable
from postroom.limits import check_when
from postroom.model import Failure, Leased, Message, Outcome, Receipt, Settlement, Verb
from postroom.policy import Policy

if TYPE_CHECKING:
    import random

log: logging.Logger = logging.getLogger(__name__)

#: The header that names the work; the same in every door.
IDEMPOTENCY_KEY = "idempotency-key"

_current: ContextVar[Delivery | None] = ContextVar("postroom_delivery", default=None)


def current_delivery() -> Delivery | None:
    """The delivery that this thread or task is working on."""
    return _current.get()


class Delivery:
    """What a handler gets: the message, and the ways to settle it.

    `attempt` counts earlier starts that failed or ran out: 0 the first time. `context` is what the
    worker's `around` hook gave for this job. `lost` turns true when a heartbeat finds the lease gone.
    """

    __slots__ = (
        "__weakref__", "_body", "_engine", "_lease", "_leased", "_on_settled", "_policy", "_token",
        "context", "lost", "message", "receipt", "settled", "unanswered",
    )  # fmt: skip

    def __init__(
        self,
        leased: Leased,
        engine: Engine,
        policy: Policy,
        *,
        lease: int | None = None,
        on_settled: Callable[[Delivery], None] | None = None,
    ) -> None:
        #: What proves that this delivery holds its message.
        self.receipt: Receipt = leased.receipt
        self.message: Message = leased.message
        self._leased = leased
        self._engine = engine
        self._policy = policy
        self._lease = lease
        self._on_settled = on_settled
        self._body: Any = msgspec.UNSET
        self._token: Token[Delivery | None] | None = None
        self.settled: Verb | None = None
        self.lost: bool = False
        #: A call to settle it failed on its way: nobody knows whether it arrived.
        self.unanswered: bool = False
        self.context: Any = None

    # --- what it is -------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The store that this message is kept in."""
        return self._engine

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def queue(self) -> str:
        return self.message.queue

    @property
    def kind(self) -> str:
        return self.message.kind

    @property
    def headers(self) -> dict[str, str]:
        return self.message.headers

    @property
    def priority(self) -> int:
        return self.message.priority

    @property
    def data(self) -> bytes:
        """The body exactly as it was put."""
        return self.message.body

    @property
    def correlation_id(self) -> str:
        """What ties this message to the request it came from; its own id if nothing else was given."""
        return self.message.correlation_id or self.message.id

    @property
    def idempotency_key(self) -> str:
        """What names this work however often it is delivered, for a provider that honours such a key.

        The message's header `idempotency-key`; without one, the message's id.
        """
        return self.headers.get(IDEMPOTENCY_KEY) or self.id

    @property
    def is_held(self) -> bool:
        """Whether it is still to be settled: until then the store knows that it is worked on."""
        return self.settled is None

    @property
    def attempt(self) -> int:
        return self._leased.attempt

    @property
    def deliveries(self) -> int:
        return self._leased.deliveries

    @property
    def max_attempts(self) -> int:
        return self._leased.max_attempts

    @property
    def lease(self) -> int | None:
        """What its heartbeat promised (ms); None: it has none."""
        return self._lease

    @property
    def suspect(self) -> bool:
        return self._leased.suspect

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt saved with `checkpoint`; None if there is nothing."""
        saved = self._leased.checkpoint
        return None if saved is None else msgspec.json.decode(saved)

    @property
    def body(self) -> Any:
        """The body decoded: JSON to values, text to str, anything else as bytes. Raises Undecodable."""
        if self._body is msgspec.UNSET:
            self._body = decode(self.message)
        return self._body

    @property
    def log_extra(self) -> dict[str, Any]:
        """What every log line about this delivery carries."""
        return {
            "queue": self.queue,
            "message_id": self.id,
            "kind": self.kind,
            "attempt": self.attempt,
            "correlation_id": self.correlation_id,
        }

    def __repr__(self) -> str:
        return f"<Delivery {self.id} of {self.queue!r}, attempt {self.attempt}, {self.settled or 'open'}>"

    # --- settling ---------------------------------------------------------------------------

    def ack(self) -> None:
        """The work is done. Raises LeaseLost if this delivery no longer holds the message.

        Saying it twice is fine.
        """
        self._settle(Settlement(self.receipt))

    def fail(
        self,
        error: BaseException | str | None = None,
        *,
        after: Duration | None = None,
        at: Instant | None = None,
    ) -> None:
        """The work failed: try again later, by the queue's backoff unless told when.

        Counts as an attempt; when it was the last one the message becomes a dead letter.
        """
        self._settle(self._retry(_failure(error), after, at))

    def release(self, delay: Duration = 0) -> None:
        """Hand the message back to its place, or for a delay to nobody. Does not count as an attempt."""
        self._settle(self._release(delay))

    def bury(self, reason: BaseException | str = "") -> None:
        """Keep the message as a dead letter now, without further attempts."""
        failure = Failure.of(reason) if isinstance(reason, BaseException) else _rejected(reason)
        self._settle(Settlement(self.receipt, Verb.BURY, failure=failure))

    def settlement(self, error: BaseException | None) -> Settlement:
        """What the end of the work means: ack, or what the exception asks for."""
        match error:
            case None:
                return Settlement(self.receipt)
            case Retry():
                return self._retry_as_told(error)
            case Later():
                return self._release(error.retry_after)
            case Bury() | Undecodable():
                return Settlement(self.receipt, Verb.BURY, failure=_failure(error))
            case Exception():
                return self._retry(_failure(error), None, None)
            case _:
                # KeyboardInterrupt, SystemExit: the work was stopped, it did not fail.
                return Settlement(self.receipt, Verb.RELEASE)

    def _release(self, delay: Duration) -> Settlement:
        return Settlement(self.receipt, Verb.RELEASE, delay=milliseconds(delay, "delay"))

    def _retry_as_told(self, verdict: Retry) -> Settlement:
        try:
            return self._retry(_failure(verdict.__cause__ or verdict), verdict.after, verdict.at)
        except InvalidInput as error:  # a time that makes no sense: a failure like any other
            return self._retry(_failure(error), None, None)

    def _retry(self, failure: Failure, after: Duration | None, at: Instant | None) -> Settlement:
        if after is not None and at is not None:
            raise InvalidInput("a retry takes after or at, not both")
        if after is None and at is None:
            delay = retry_delay(self._policy, self.attempt)
            return Settlement(self.receipt, Verb.RETRY, delay=delay, failure=failure)
        delay = 0 if after is None else milliseconds(after, "after")
        due = None if at is None else instant(at, "at")
        # Not only by the engine: one that it refuses would hold up everything else a worker settles.
        check_when(delay, due)
        return Settlement(self.receipt, Verb.RETRY, delay=delay, due=due, failure=failure)

    def _settle(self, settlement: Settlement) -> None:
        if self.settled:
            if self.settled is not settlement.verb:
                raise LeaseLost(f"this delivery was settled before, by {self.settled}", outcome=Outcome.GONE)
            return
        try:
            (outcome,) = self._engine.settle(self.queue, [settlement])
        except EngineUnavailable:
            self.unanswered = True
            raise
        if not self.note_settled(settlement.verb, outcome):
            raise _lease_lost(outcome, self)

    def note_settled(self, verb: Verb, outcome: Outcome) -> bool:
        """The engine answered: whatever it said, this delivery holds nothing any more.

        Whether it is settled: also when it is gone and an earlier call went unanswered.
        """
        settled = outcome is Outcome.OK or (outcome is Outcome.GONE and self.unanswered)
        if settled:
            self.settled = verb
        else:
            self.lost = True
        if self._on_settled:
            self._on_settled(self)
        return settled

    # --- holding on -------------------------------------------------------------------------

    def extend(self, span: Duration | None = None) -> None:
        """TOUCH: the work may take this long from now; without a span, its ack_timeout again."""
        self._touch(span, None)

    def checkpoint(self, data: Any) -> None:
        """Save progress (JSON, at most 64 KB) that the next attempt finds in `last_checkpoint`.

        Also extends. Only the delivery that holds the message can save.
        """
        try:
            saved = msgspec.json.encode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"checkpoint: it cannot be written as JSON ({error})") from error
        self._touch(None, saved)

    def _touch(self, span: Duration | None, checkpoint: bytes | None) -> None:
        allowed = None if span is None else milliseconds(span, "span")
        (outcome,) = self._engine.extend(
            self.queue, [self.receipt], span=allowed, lease=self._lease, checkpoint=checkpoint
        )
        if outcome is not Outcome.OK:
            self.lost = True
            raise _lease_lost(outcome, self)

    # --- working ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Make this the current delivery of this thread or task."""
        self._token = _current.set(self)

    @property
    def under_way(self) -> bool:
        """Whether somebody works on it at this moment."""
        return self._token is not None

    def end(self) -> None:
        if self._token:
            _current.reset(self._token)
            self._token = None

    def conclude(self, error: BaseException | None) -> bool:
        """Settle as the end of the work asks for, unless it is settled; whether the error is dealt with."""
        if self.settled or (error is not None and self.lost):
            return False
        if error is None:
            self.ack()
            return False
        with contextlib.suppress(LeaseLost):  # the error of the work matters more than the lost lease
            self._settle(self.settlement(error))
        log.info("delivery failed", exc_info=error, extra={"event": "delivery.failed", **self.log_extra})
        return isinstance(error, Retry | Bury | Later)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.end()
        return self.conclude(error)


def retry_delay(policy: Policy, attempt: int) -> int:
    """When work that failed after so many earlier attempts is tried again, by its queue's backoff (ms)."""
    return policy.backoff.delay(attempt, _chance() if policy.jitter else None)


def _chance() -> random.Random:
    import random  # here and not above: only what fails needs it

    return random.SystemRandom()


def _lease_lost(outcome: Outcome, delivery: Delivery) -> LeaseLost:
    what = "is settled already" if outcome is Outcome.GONE else "is no longer held by this delivery"
    return LeaseLost(f"message {delivery.id} of {delivery.queue!r} {what}", outcome=outcome)


def _failure(error: BaseException | str | None) -> Failure:
    if isinstance(error, BaseException):
        return Failure.of(error)
    return Failure(type="Failed", text=error or "the consumer gave no reason")


def _rejected(reason: str) -> Failure:
    return Failure(type="Rejected", text=reason or "buried by its consumer")


class Work(Protocol):
    """The work in hand, as a guard sees it. A Delivery is one; another door may have its own."""

    @property
    def engine(self) -> Engine: ...
    @property
    def queue(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def is_held(self) -> bool:
        """Whether the store knows that this work is being done; not once its message is settled."""
        ...


_work: ContextVar[Work | None] = ContextVar("postroom_work", default=None)


@contextlib.contextmanager
def working_on(work: Work) -> Iterator[None]:
    """Make this the work in hand of this thread or task: for doors whose handlers get no Delivery."""
    token = _work.set(work)
    try:
        yield
    finally:
        _work.reset(token)


def in_hand() -> Work | None:
    """The work that this thread or task is doing."""
    return _work.get() or current_delivery()
