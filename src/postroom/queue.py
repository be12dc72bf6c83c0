"""A queue of an open room: put messages, claim them, look at them, operate on them."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from postroom import audit
from postroom.call import headers_anew
from postroom.delivery import Delivery
from postroom.draft import PutOptions, calls, draft, drafter
from postroom.duration import Duration, Instant, instant, milliseconds
from postroom.engine import QueueInfo
from postroom.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    NotFound,
    PartialPut,
    PostroomError,
    RateLimited,
    Uncertain,
    did_you_mean,
)
from postroom.limits import check_key, check_name
from postroom.logs import Log
from postroom.model import (
    Accepted,
    Action,
    Entry,
    Failure,
    Move,
    Moved,
    NewMessage,
    Outcome,
    Page,
    Put,
    Receipt,
    Settlement,
    State,
    Verb,
)
from postroom.policy import Policy
from postroom.schemas import edited
from postroom.search import Found, search
from postroom.stats import Backlog, QueueStats

if TYPE_CHECKING:
    from postroom.room import Room

log: logging.Logger = logging.getLogger(__name__)

#: "As configured", where None already means something else.
Unset = Literal["configured"]
#: A queue that stays too deep is warned about once a minute (seconds).
_WARN_EVERY = 60.0


class Queue:
    """One queue by name; cheap to make, safe to share between threads."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.name: str = check_name(name)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def policy(self) -> Policy:
        """What the queue promises, as it is stored."""
        return self.room.policy(self.name)

    # --- put --------------------------------------------------------------------------------

    def put(
        self,
        body: Any,
        *,
        connection: object = None,
        rate_key: str | None = None,
        **options: Unpack[PutOptions],
    ) -> Put:
        """Keep a message; when this returns it is safe. For the options see `PutOptions`.

        With a `connection` (of sqlite3 or SQLAlchemy, to the file of this room) it becomes a part of
        the transaction there: kept if and only if that commits. Then call `room.ring()`; who waits
        notices without it a quarter of a second later.
        `rate_key` names who puts: each may put by the policy's `put_rate` and is then RateLimited.
        The body may also be a message made by `message`, which has its options already.
        Raises QueueFull, RateLimited, BodyTooLarge, InvalidInput or Refused (by a hook): nothing was put.
        With `durability="replicated"` also Uncertain: put it again with the same id, which it names.
        """
        policy = self.room.policy(self.name, declare=connection is None)
        message = self._hooked(_made(body, policy, options))
        return self._put([message], policy, connection, rate_key)[0]

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        connection: object = None,
        rate_key: str | None = None,
        **options: Unpack[PutOptions],
    ) -> list[Put]:
        """Keep many messages, in calls of at most 1,000 messages and 16 MB, each all or nothing.

        A body may also be a message made by `message`. Raises PartialPut when a later call was
        refused after an earlier one had been accepted, or when no replica has confirmed a call:
        repeat its `refused`, which have their ids. With a `connection` or a `rate_key`, see `put`; the
        messages of one call count together.
        """
        if options.get("id"):
            raise InvalidInput("put_many: an id is the name of one message; give it to `message`")
        policy = self.room.policy(self.name, declare=connection is None)
        make = drafter(policy, **options)
        messages = [body if isinstance(body, NewMessage) else make(body) for body in bodies]
        accepted: list[Put] = []
        for call in calls([self._hooked(message) for message in messages]):
            try:
                accepted += self._put(call, policy, connection, rate_key)
            except PostroomError as error:
                if not accepted and not isinstance(error, Uncertain):
                    raise
                # As they were before the hooks: those see them again when they are repeated.
                raise PartialPut(accepted, messages[len(accepted) :]) from error
        return accepted

    def message(self, body: Any, **options: Unpack[PutOptions]) -> NewMessage:
        """A message that is checked but not yet put; hand it to `put` or `put_many`."""
        return draft(body, self.policy, **options)

    def _hooked(self, message: NewMessage) -> NewMessage:
        for hook in self.room.hooks:
            message = hook(message, self) or message
        return message

    def _put(
        self, messages: Sequence[NewMessage], policy: Policy, connection: object, rate_key: str | None
    ) -> list[Put]:
        self.room.check_open()
        if rate_key is not None:
            self._take(len(messages), policy, connection, rate_key)
        if connection is None:
            accepted = self.room.engine.put(self.name, messages)
        else:
            accepted = self.room.put_within(connection, self.name, messages, policy)
        self._warn_if_deep(accepted, policy.warn_depth)
        return accepted.puts

    def _take(self, n: int, policy: Policy, connection: object, key: str) -> None:
        """Count these puts for this key, before they are put: a crash in between costs the key a little."""
        check_key(key, "rate_key")
        if (rate := policy.put_rate) is None:
            return
        if connection is not None:
            # Another step of the store, which waits for that transaction, which waits for us.
            raise InvalidInput("rate_key: puts in a transaction of your own cannot be counted")
        bucket = f"{self.name}\0{rate}\0{key}"  # with the rate: another one is another bucket
        if missing := self.room.engine.records.take("rate", bucket, n, rate=rate, burst=rate.count):
            raise RateLimited(
                f"queue {self.name!r} takes {rate} of one rate_key", retry_after=missing / 1_000
            )

    def _warn_if_deep(self, accepted: Accepted, limit: int | None) -> None:
        if limit is None or accepted.depth is None or accepted.depth < limit:
            return
        now, warned = time.monotonic(), self.room.warned
        if now - warned.get(self.name, float("-inf")) < _WARN_EVERY:
            return
        warned[self.name] = now
        log.warning(
            "queue %r is deep: %d wait",
            self.name,
            accepted.depth,
            extra={"event": "queue.deep", "queue": self.name, "depth": accepted.depth, "warn_depth": limit},
        )

    # --- claim ------------------------------------------------------------------------------

    def claim(self, timeout: Duration | Unset | None = "configured") -> Delivery | None:
        """The next message, started; waits for one up to `timeout` (None: for ever; 0: not at all;
        unless given, the room's `poll_timeout`: 5 s).

        It has no heartbeat, so its `ack_timeout` alone says when it is overdue (without one, the lease).
        None only when the time is over, or when the room is shut down and nothing is ready.
        """
        deliveries = self.room.claim([self.name], timeout=timeout)
        return deliveries[0] if deliveries else None

    def claim_many(self, n: int, timeout: Duration | Unset | None = "configured") -> list[Delivery]:
        """The next up to `n` messages, all started; waits until there is at least one."""
        return self.room.claim([self.name], n=n, timeout=timeout)

    def consume(self, timeout: Duration | Unset | None = None) -> Iterator[Delivery]:
        """Delivery after delivery, until none came for `timeout` or the room is shut down and empty."""
        while delivery := self.claim(timeout):
            yield delivery

    # --- look -------------------------------------------------------------------------------

    def info(self) -> QueueInfo:
        """What is stored of the queue. Raises NotFound: a name with a slip must not make a new one."""
        if infos := self.room.engine.queues([self.name]):
            return infos[0]
        hint = did_you_mean(self.name, [info.name for info in self.room.queues()])
        raise NotFound(f"there is no queue {self.name!r}{hint and f'; {hint}'}")

    def stats(self) -> QueueStats:
        return self.room.engine.stats(self.name)

    def backlog(self) -> Backlog:
        """What waits, ready by priority, and how many scheduled ones were tried before; a bounded look."""
        return self.room.engine.backlog(self.name)

    def get(self, id: str) -> Entry:
        """This message and where it stands. Raises NotFound."""
        (entry,) = self.room.engine.get(self.name, [id])
        if entry is None:
            raise NotFound(f"there is no message {id} in {self.name!r}")
        return entry

    def find(
        self,
        state: State | str,
        *,
        cursor: str | None = None,
        limit: int = 100,
        group: str | None = None,
        correlation_id: str | None = None,
    ) -> Page:
        """A page of one state in its own order; the dead also by group or correlation_id."""
        return self.room.engine.find(
            self.name, state_of(state), cursor=cursor, limit=limit, group=group, correlation_id=correlation_id
        )

    def find_all(self, state: State | str, **narrow: Any) -> Iterator[Entry]:
        """Every message of one state, page by page, for as long as there are more."""
        cursor = None
        while True:
            page = self.find(state, cursor=cursor, **narrow)
            yield from page.entries
            if (cursor := page.cursor) is None:
                return

    def search(self, state: State | str, match: Callable[[Entry], bool], **bounds: Any) -> Found:
        """Entries that `match`, by looking at them one by one; bounded, and says how far it got."""
        return search(self.room.engine, self.name, state_of(state), match, **bounds)

    def history(self, after: str | None = "", limit: int = 100) -> Log:
        """What happened to the queue: one entry per engine call that people want to see."""
        return self.room.engine.log(self.name, after=after, limit=limit)

    # --- operate ----------------------------------------------------------------------------

    def declare(self, policy: Policy) -> None:
        """Promise this, as a whole, from now on and to everybody. Noted if it changes anything."""
        if not isinstance(policy, Policy):
            raise InvalidInput(f"policy: expected postroom.Policy(…), not {policy!r:.80}")
        engine = self.room.engine
        infos = engine.queues([self.name])
        engine.declare(self.name, policy)
        self.room.forget_policy(self.name)
        before, after = infos[0].policy.to_text() if infos else {}, policy.to_text()
        if changed := {name: value for name, value in after.items() if before.get(name) != value}:
            audit.note(engine, "declare", self.name, policy=changed)

    def cancel(self, id: str, *, processing: bool = False, deliveries: int | None = None) -> None:
        """Take a waiting message out; with `processing`, also from whoever works on it.

        Work that has begun goes on: nobody stops it, but its end is told `gone` and changes nothing. With
        `deliveries`, the count that the caller saw, it is taken from that worker or from nobody. Raises
        NotFound, Conflict if it does not wait (and was not to be taken from a worker), else as `release`.
        """
        if deliveries is not None or (processing and self.get(id).receipt is not None):
            self._settle_held(id, deliveries, Verb.CANCEL)
        else:
            self._move(Move(id=id, action=Action.CANCEL))
        audit.note(self.room.engine, "cancel", self.name, 1, id=id)

    def reschedule(self, id: str, *, delay: Duration | None = None, at: Instant | None = None) -> None:
        """Give a waiting message another due time."""
        if (delay is None) == (at is None):
            raise InvalidInput("reschedule takes delay or at")
        due = None if at is None else instant(at, "at")
        span = 0 if delay is None else milliseconds(delay, "delay")
        self._move(Move(id=id, action=Action.RESCHEDULE, delay=span, due=due))
        when = {"delay": span} if due is None else {"due": due}
        audit.note(self.room.engine, "reschedule", self.name, 1, id=id, **when)

    def run_now(self, id: str) -> None:
        """Make a scheduled message ready."""
        self._move(Move(id=id, action=Action.RUN_NOW))
        audit.note(self.room.engine, "run_now", self.name, 1, id=id)

    def release(self, id: str, *, deliveries: int | None = None) -> None:
        """Take a message from whoever works on it and put it back to its place; does not count.

        `deliveries` is the count that the caller saw: then whoever claimed it later is left alone. Raises
        NotFound, Conflict when nobody works on it, or another does, and LeaseLost when it changed hands
        meanwhile.
        """
        self._settle_held(id, deliveries, Verb.RELEASE)
        audit.note(self.room.engine, "release", self.name, 1, id=id)

    def extend(self, id: str, span: Duration | None = None, *, deliveries: int | None = None) -> None:
        """Give whoever works on a message this long from now; without a span, its ack_timeout again.

        Raises as `release` does.
        """
        receipt = self._held(id, deliveries)
        allowed = None if span is None else milliseconds(span, "span")
        (outcome,) = self.room.engine.extend(self.name, [receipt], span=allowed)
        self._check_held(id, outcome)
        audit.note(self.room.engine, "extend", self.name, 1, id=id, span=allowed)

    def bury(self, id: str, reason: str = "", *, deliveries: int | None = None) -> None:
        """Take a message from whoever works on it and give it up: it becomes a dead letter.

        Raises as `release` does.
        """
        failure = Failure(type="Bury", text=reason or audit.why() or "given up by hand")
        self._settle_held(id, deliveries, Verb.BURY, failure)
        audit.note(self.room.engine, "bury", self.name, 1, id=id, reason=failure.text)

    def _settle_held(
        self, id: str, deliveries: int | None, verb: Verb, failure: Failure | None = None
    ) -> None:
        settlement = Settlement(self._held(id, deliveries), verb, failure=failure)
        (outcome,) = self.room.engine.settle(self.name, [settlement])
        self._check_held(id, outcome)

    def _held(self, id: str, deliveries: int | None) -> Receipt:
        entry = self.get(id)
        if entry.receipt is None:
            raise Conflict(f"nobody works on {id}: it is {entry.state}")
        if deliveries is not None and entry.deliveries != deliveries:
            raise Conflict(f"{id} has changed hands: now {entry.consumer or 'another'} works on it")
        return entry.receipt

    def _check_held(self, id: str, outcome: Outcome) -> None:
        if outcome is not Outcome.OK:
            raise LeaseLost(f"message {id} of {self.name!r} has changed hands meanwhile", outcome=outcome)

    def replay(self, id: str, *, body: Any = None, number: int | None = None, dry_run: bool = False) -> str:
        """Put a dead letter again as a new message, and return its id; the dead letter stays, marked.

        `number` is the replays seen + 1: with it, a repeated call is one message. Raises QueueFull,
        Conflict while another message holds its unique_key, and InvalidInput for a body that is not as
        the schema of its kind says. A dry run only asks whether it is dead and the body will do: "".
        """
        entry = self.get(id)
        message = entry.message
        schemas = self.room.config.schemas
        data, content_type = (None, None) if body is None else edited(message, body, schemas)
        if dry_run:
            if entry.state is not State.DEAD:
                raise Conflict(f"replay {id}: it is {entry.state}")
            return ""
        replay = Move(
            id=id,
            action=Action.REPLAY,
            number=len(entry.replayed_as) + 1 if number is None else number,
            body=data,
            content_type=content_type,
            headers=headers_anew(message, edited=body is not None),
        )
        moved = self._move(replay)
        audit.note(self.room.engine, "replay", self.name, 1, id=id, replayed_as=moved.replayed_as)
        return moved.replayed_as or ""

    def discard(self, id: str) -> None:
        """Let go of a dead letter."""
        self._move(Move(id=id, action=Action.DISCARD))
        audit.note(self.room.engine, "discard", self.name, 1, id=id)

    def _move(self, move: Move) -> Moved:
        (moved,) = self.room.engine.move(self.name, [move])
        if moved.ok:
            return moved
        error = NotFound if moved.state is None else Conflict
        raise error(f"{move.action} {move.id}: {moved.reason}")

    def pause(self, reason: str = "", span: Duration | None = None) -> None:
        """Stop claims; everything else goes on. With a span such as "15m" it resumes by itself after it."""
        allowed = None if span is None else milliseconds(span, "span")
        self.room.engine.pause(self.name, reason, span=allowed)
        until = {} if allowed is None else {"span": allowed}
        audit.note(self.room.engine, "pause", self.name, reason=reason, **until)

    def resume(self) -> None:
        self.room.engine.resume(self.name)
        audit.note(self.room.engine, "resume", self.name)

    def purge(self) -> int:
        """Drop what waits and return how many; what is processing or dead stays."""
        count = self.room.engine.purge(self.name)
        audit.note(self.room.engine, "purge", self.name, count)
        return count

    def drop(self, *, force: bool = False) -> int:
        """Remove the queue. Raises Conflict while anything is in it, unless forced."""
        count = self.room.engine.drop(self.name, force=force, by=audit.actor(), why=audit.why())
        self.room.forget_policy(self.name)
        if count:
            audit.nothing_to_note()  # the engine has told of it, in the same step
        else:
            audit.note(self.room.engine, "drop", self.name)
        return count


def state_of(state: State | str) -> State:
    """The state of this name, or InvalidInput."""
    with contextlib.suppress(ValueError):
        return State(state)
    raise InvalidInput(f"state: {state!r} is not one of {', '.join(State)}")


def _made(body: Any, policy: Policy, options: PutOptions) -> NewMessage:
    if not isinstance(body, NewMessage):
        return draft(body, policy, **options)
    if options:
        raise InvalidInput(f"a message that is made already takes no options: {', '.join(options)}")
    return body
