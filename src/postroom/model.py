"""What things are: messages, deliveries, dead letters, queues — frozen values, no behaviour.

Spans and instants are integer milliseconds, always by the engine's clock. The words are those of
the glossary (docs/reference/glossary.md); nothing here knows an engine, a policy or a door.
"""

from __future__ import annotations

import enum
import re
import traceback as tracebacks
from typing import Any, NamedTuple

import msgspec

from postroom.duration import MAX_SPAN
from postroom.errors import InvalidInput
from postroom.ids import new_id
from postroom.limits import (
    BINARY,
    JSON,
    KEPT_ATTEMPTS,
    LAST_DUE,
    MAX_ATTEMPTS,
    MAX_PRIORITY,
    check_between,
    check_content_type,
    check_headers,
    check_id,
    check_name,
)


class State(enum.StrEnum):
    """Where a message stands; it is in exactly one state."""

    SCHEDULED = "scheduled"
    READY = "ready"
    PROCESSING = "processing"
    DONE = "done"
    DEAD = "dead"


class Outcome(enum.StrEnum):
    """The answer to a receipt: done as asked, no longer there, or held by somebody else."""

    OK = "ok"
    GONE = "gone"
    LOST = "lost"


_FAILURE_SIZES = {"type": 200, "text": 2_000, "traceback": 16_000, "signature": 400, "fingerprint": 64}
_VARIABLE = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8}[0-9a-f-]*\b|\d+", re.IGNORECASE)


def _signature(type: str, text: str) -> str:
    """The type, and the text without its numbers and ids."""
    return f"{type}: {_VARIABLE.sub('#', text)[:200]}"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why work on a message failed, cut to a size and made of characters that every store can keep.

    `signature` is what alike failures have in common; the engine makes the `fingerprint` of their
    group from it and the message's kind, and sets `failed_at` by its own clock.
    """

    type: str
    text: str = ""
    traceback: str = ""
    signature: str = ""
    fingerprint: str = ""
    failed_at: int = 0

    def __post_init__(self) -> None:
        for name, most in _FAILURE_SIZES.items():
            text = getattr(self, name)
            kept = text[:most] if name != "traceback" else text[-most:]
            clean = kept.encode("utf-8", "replace").decode()
            if name == "fingerprint":  # a part of keys, which are short and end with a zero
                clean = clean.replace("\0", "").encode()[:most].decode(errors="ignore")
            if clean != text:
                msgspec.structs.force_setattr(self, name, clean)
        if not self.signature:
            msgspec.structs.force_setattr(self, "signature", _signature(self.type, self.text))

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an exception stands for, cut to a size that is safe to keep."""
        trace = "".join(tracebacks.format_exception(error))
        return cls(type=type(error).__name__, text=str(error), traceback=trace)

    @property
    def summary(self) -> str:
        return f"{self.type}: {self.text}" if self.text else self.type


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work on a message that did not end well; the last 20 are kept.

    `extended` counts how often it was given more time (255: so often or more).
    """

    consumer: str
    started_at: int
    ended_at: int
    error: str
    extended: int = 0


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message before it was put as a dead letter: when it was first put, the work on it.

    `attempt` counts that work, `attempts` are the last 20 pieces of it. A `put_at` to come is now.
    """

    put_at: int
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()

    def __post_init__(self) -> None:
        check_between("put_at", self.put_at, 0, LAST_DUE)
        msgspec.structs.force_setattr(self, "attempts", self.attempts[-KEPT_ATTEMPTS:])
        check_between("attempt", self.attempt, len(self.attempts), MAX_ATTEMPTS)


_NONE = (None,) * 6
_NORMAL = 5
_OURS = frozenset({JSON, BINARY})
_RANGES = {
    "due": (0, LAST_DUE),
    "ttl": (1, MAX_SPAN),
    "expires": (1, MAX_SPAN + LAST_DUE),
    "ack_timeout": (1, MAX_SPAN),
    "max_attempts": (1, MAX_ATTEMPTS),
    "remember": (0, MAX_SPAN),
}


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as its producer makes it. Bad input never becomes one: InvalidInput instead.

    `delay` and `ttl` are spans from the engine's now, `due` and `expires` instants by its clock.
    None means "as the queue's policy says". A `failure` makes it a dead letter on arrival, which may have
    a `past`.
    """

    body: bytes = b""
    #: Made here unless given.
    id: str = ""
    kind: str = ""
    content_type: str = JSON
    headers: dict[str, str] = {}
    priority: int = 5
    delay: int = 0
    due: int | None = None
    ttl: int | None = None
    expires: int | None = None
    ack_timeout: int | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    unique_key: str | None = None
    remember: int | None = None
    failure: Failure | None = None
    past: Past | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, bytes):
            raise InvalidInput(f"body: expected bytes, not {self.body!r:.80}")
        if self.id:
            check_id(self.id)
        else:
            msgspec.structs.force_setattr(self, "id", new_id())
        # Most messages leave most things out: asking first whether anything is there keeps them cheap.
        if self.priority != _NORMAL:
            check_between("priority", self.priority, 0, MAX_PRIORITY)
        if self.delay:
            check_between("delay", self.delay, 0, MAX_SPAN)
        if self.kind or self.correlation_id or self.unique_key or self.headers:
            _check_texts(self)
        if self.content_type not in _OURS:
            check_content_type(self.content_type)
        if (self.due, self.ttl, self.expires, self.ack_timeout, self.max_attempts, self.remember) != _NONE:
            _check_numbers(self)
        if self.past is not None and self.failure is None:
            raise InvalidInput("past: only a dead letter has one")

    def replace(self, **changes: Any) -> NewMessage:
        """A copy with some fields changed, checked like a new one."""
        return msgspec.structs.replace(self, **changes)


def _check_texts(message: NewMessage) -> None:
    check_headers(message.headers)
    for name in ("kind", "correlation_id", "unique_key"):
        if text := getattr(message, name):
            check_name(text, name)


def _check_numbers(message: NewMessage) -> None:
    for name, (least, most) in _RANGES.items():
        if (value := getattr(message, name)) is not None:
            check_between(name, value, least, most)


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as an engine keeps it; written once, never changed. `due` is when it was first due."""

    id: str
    queue: str
    body: bytes
    put_at: int
    due: int
    kind: str = ""
    content_type: str = JSON
    headers: dict[str, str] = {}
    priority: int = 5
    expires: int | None = None
    ack_timeout: int | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    unique_key: str | None = None
    remember: int | None = None


class Put(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: the id under which the message is kept, and whether this call made it."""

    id: str
    created: bool = True


class Accepted(NamedTuple):
    """The answer to one put call: a result per message, and how deep the queue is now.

    The depth is None where the policy of the queue has no use for it: neither capacity nor warn_depth.
    """

    puts: list[Put]
    depth: int | None


class Receipt(NamedTuple):
    """What proves a delivery: the token is random per claim, and fences out whoever held it before."""

    queue: str
    id: str
    token: str


class Leased(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message in the hands of one consumer, as a claim gives it out.

    `attempt` counts earlier starts that failed or ran out (0 the first time), `deliveries` every
    claim so far. A `suspect` is claimed as started, and a process works on one at a time.
    """

    message: Message
    token: str
    attempt: int
    deliveries: int
    max_attempts: int
    ack_timeout: int | None
    deadline: int
    started: bool
    suspect: bool = False
    checkpoint: bytes | None = None

    @property
    def receipt(self) -> Receipt:
        message = self.message
        return Receipt(message.queue, message.id, self.token)


class BlockedBy(enum.StrEnum):
    """Why a claim may give nothing although messages are ready."""

    PAUSE = "pause"
    RATE = "rate"
    MAX_IN_FLIGHT = "max_in_flight"
    SUSPECT = "suspect"


class Claimed(NamedTuple):
    """The answer to a claim. `next_wake` is a span: ask again then, even if nothing rings."""

    deliveries: list[Leased]
    next_wake: int = 0
    blocked_by: BlockedBy | None = None


class Verb(enum.StrEnum):
    """How a delivery is settled; a cancel is an operator's, with the receipt that was seen."""

    ACK = "ack"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"
    CANCEL = "cancel"


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One delivery's end.

    `delay` (a span) or `due` (an instant) say when a retry comes back; a release takes a delay too.
    """

    receipt: Receipt
    verb: Verb = Verb.ACK
    delay: int = 0
    due: int | None = None
    failure: Failure | None = None


class Turned(NamedTuple):
    """The answer to a turn: an outcome per settlement, an outcome per start, and the next claim."""

    settled: list[Outcome]
    started: list[Outcome]
    claimed: Claimed


class Swept(NamedTuple):
    """What one sweep of a queue did; `dead` is how many of the reclaimed ones had used up their attempts.

    `full` means: call again at once, there is more.
    """

    reclaimed: int = 0
    dead: int = 0
    promoted: int = 0
    expired: int = 0
    evicted: int = 0
    full: bool = False
    next_wake: int = 0

    def plus(self, later: Swept) -> Swept:
        """Both together, as if they had been one."""
        reclaimed, dead, promoted, expired, evicted = (
            mine + its for mine, its in zip(self[:5], later[:5], strict=True)
        )
        return Swept(reclaimed, dead, promoted, expired, evicted, later.full, later.next_wake)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A message and where it stands; what `get` and `find` show.

    `token` is that of the delivery which holds it, while it is processing: whoever looks can settle or
    extend exactly what was seen, and is told `lost` if it has changed hands since. `extended` counts how
    often that delivery was given more time (255: so often or more).
    """

    message: Message
    state: State
    due: int
    attempt: int = 0
    deliveries: int = 0
    #: Leases that ran out after a start, and before one.
    ran_out: int = 0
    strays: int = 0
    order: int | None = None
    token: str | None = None
    consumer: str = ""
    started_at: int | None = None
    deadline: int | None = None
    extended: int = 0
    checkpoint: bytes | None = None
    attempts: tuple[Attempt, ...] = ()
    failure: Failure | None = None
    replayed_as: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the delivery that holds it."""
        return None if self.token is None else Receipt(self.message.queue, self.message.id, self.token)

    @property
    def failed_at(self) -> int | None:
        return self.failure.failed_at if self.failure else None

    @property
    def last_error(self) -> str | None:
        return self.failure.summary if self.failure else None

    @property
    def payload_hash(self) -> str:
        import hashlib  # here and not above: it takes OpenSSL to load

        # SHA-1 groups payloads, it protects nothing; a script inside Redis can make it too.
        return hashlib.sha1(self.message.body, usedforsecurity=False).hexdigest()


class Page(NamedTuple):
    """Some entries of one state in that state's order; `cursor` is None on the last page."""

    entries: list[Entry]
    cursor: str | None = None


class Action(enum.StrEnum):
    """What an operator may do with a message that no consumer holds."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RUN_NOW = "run_now"
    REPLAY = "replay"
    MARK_REPLAYED = "mark_replayed"
    DISCARD = "discard"


#: The states from which each action may start; from any other it is a conflict.
EXPECTED: dict[Action, frozenset[State]] = {
    Action.CANCEL: frozenset({State.READY, State.SCHEDULED}),
    Action.RESCHEDULE: frozenset({State.READY, State.SCHEDULED}),
    Action.RUN_NOW: frozenset({State.SCHEDULED}),
    Action.REPLAY: frozenset({State.DEAD}),
    Action.MARK_REPLAYED: frozenset({State.DEAD}),
    Action.DISCARD: frozenset({State.DEAD}),
}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One message's move by an operator. `number` is the replays seen + 1; `body` and `content_type`
    an edited payload, `headers` those of the new message, if they are to be others.

    MARK_REPLAYED only notes `replayed_as`: the second half of a replay into another queue.
    """

    id: str
    action: Action
    delay: int = 0
    due: int | None = None
    number: int = 1
    body: bytes | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    replayed_as: str | None = None


class Moved(NamedTuple):
    """The answer to one move: the state it found (None: no such message), and why not, if not."""

    ok: bool
    state: State | None = None
    replayed_as: str | None = None
    reason: str = ""
