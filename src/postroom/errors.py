"""Everything Postroom raises, as one tree with stable codes.

    PostroomError                 error
    ├── InvalidInput              invalid_input        (also a ValueError)
    │   └── BodyTooLarge          body_too_large
    ├── ConfigError               config_error
    │   └── MissingExtra          missing_extra
    ├── Refused                   refused
    ├── QueueFull                 queue_full
    ├── RateLimited               rate_limited
    ├── PartialPut                partial_put
    ├── Uncertain                 uncertain
    ├── NotFound                  not_found
    ├── Conflict                  conflict
    ├── Unauthorized              unauthorized
    ├── Forbidden                 forbidden
    ├── LeaseLost                 lease_lost
    ├── Undecodable               undecodable
    ├── Closed                    closed
    ├── EngineUnavailable         engine_unavailable
    │   ├── EngineBusy            engine_busy
    │   ├── StoreFull             store_full
    │   ├── StoreReadOnly         store_read_only
    │   ├── StoreCorrupt          store_corrupt
    │   ├── StoreForeign          store_foreign
    │   ├── StoreTooNew           store_too_new
    │   └── StoreGone             store_gone
    └── Verdict                   verdict              (raised by handlers, for the worker)
        ├── Retry                 retry
        ├── Bury                  bury
        └── Later                 later
            ├── InProgress        in_progress
            └── BreakerOpen       breaker_open

A `code` never changes once released: HTTP statuses and CLI exit codes hang on it.
Without a message of its own, an error says the first line of its docstring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from postroom.duration import Duration


class PostroomError(Exception):
    """Something went wrong in Postroom."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class InvalidInput(PostroomError, ValueError):
    """The input is not acceptable; nothing was changed."""

    code = "invalid_input"


class BodyTooLarge(InvalidInput):
    """The body is larger than max_body; nothing was put."""

    code = "body_too_large"


class ConfigError(PostroomError):
    """The configuration (URL, file, environment or argument) is not usable."""

    code = "config_error"


class MissingExtra(ConfigError):
    """An optional part of Postroom is not installed; the message names the pip command."""

    code = "missing_extra"


class Refused(PostroomError):
    """A before_put hook refused the message; nothing was put."""

    code = "refused"


class QueueFull(PostroomError):
    """The queue is at its limit; nothing of this call was put.

    `reason` is "capacity" (the queue's own limit), "memory" (the store's) or "spool" (that of the spool,
    while the store is away).
    """

    code = "queue_full"

    def __init__(self, message: str = "", *, reason: str = "capacity") -> None:
        super().__init__(message)
        self.reason = reason


class RateLimited(PostroomError):
    """This key has put as much as the queue's `put_rate` allows; nothing of this call was put.

    `retry_after` (seconds) is when there is room for it again.
    """

    code = "rate_limited"

    def __init__(self, message: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PartialPut(PostroomError):
    """Some messages are safely put and some are not: repeat `refused`.

    `accepted` holds one put result per message that is safely stored, `refused`
    the messages that are not, or not for certain; the cause says why.
    """

    code = "partial_put"

    def __init__(self, accepted: Sequence[Any], refused: Sequence[Any]) -> None:
        super().__init__(f"{len(accepted)} messages are safely put, {len(refused)} are not: repeat those")
        self.accepted: list[Any] = list(accepted)
        self.refused: list[Any] = list(refused)


class Uncertain(PostroomError):
    """The messages are stored, but no replica has confirmed them in time: put them again under their ids.

    That makes no second message. `ids` are those of the messages.
    """

    code = "uncertain"

    def __init__(self, message: str = "", *, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids: list[str] = list(ids)


class NotFound(PostroomError):
    """There is no such message, queue or record."""

    code = "not_found"


class Conflict(PostroomError):
    """The present state does not allow this; nothing was changed."""

    code = "conflict"


class Unauthorized(PostroomError):
    """The server does not know who asks: no token, or one that is wrong, expired or revoked."""

    code = "unauthorized"


class Forbidden(PostroomError):
    """The server knows who asks, and they may not do this; nothing was changed."""

    code = "forbidden"


class LeaseLost(PostroomError):
    """This delivery no longer holds its message; nothing was changed.

    `outcome` is "lost" (the message is there without it: somebody else may be working on it, or it waits, or
    is dead) or "gone" (there is no such message any more, as after an ack).
    """

    code = "lease_lost"

    def __init__(self, message: str = "", *, outcome: str = "lost") -> None:
        super().__init__(message)
        self.outcome = outcome


class Undecodable(PostroomError):
    """The body cannot be decoded as its content type says."""

    code = "undecodable"


class Closed(PostroomError):
    """The room is shut down or closed and takes no more messages."""

    code = "closed"


class EngineUnavailable(PostroomError):
    """The engine's store cannot be reached."""

    code = "engine_unavailable"


class EngineBusy(EngineUnavailable):
    """Another process held the store for longer than the busy timeout; nothing was changed."""

    code = "engine_busy"


class StoreFull(EngineUnavailable):
    """There is no space left for the store; nothing was changed."""

    code = "store_full"


class StoreReadOnly(EngineUnavailable):
    """This process may not write to the store; nothing was changed."""

    code = "store_read_only"


class StoreCorrupt(EngineUnavailable):
    """The store is damaged: stop, and copy it before anything else."""

    code = "store_corrupt"


class StoreForeign(EngineUnavailable):
    """The file is something else than a Postroom store; it was left as it is."""

    code = "store_foreign"


class StoreTooNew(EngineUnavailable):
    """The store was written by a newer release of Postroom; it was left as it is."""

    code = "store_too_new"


class StoreGone(EngineUnavailable):
    """The store's file was deleted or replaced while it was open."""

    code = "store_gone"


class Verdict(PostroomError):
    """What a handler decided about its own delivery."""

    code = "verdict"


class Retry(Verdict):
    """Try this delivery again later: `after` a span or `at` a moment, else by the queue's backoff.

    It counts as an attempt. The cause (`raise Retry(...) from error`) is kept in the history.
    """

    code = "retry"

    def __init__(
        self,
        after: Duration | None = None,
        *,
        at: datetime | float | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(reason or "the handler asked for another attempt")
        if after is not None and at is not None:
            raise InvalidInput("Retry takes after or at, not both")
        self.after = after
        self.at = at


class Bury(Verdict):
    """Keep this delivery as a dead letter now, without further attempts."""

    code = "bury"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave it up")


class Later(Verdict):
    """Hand this delivery back, for nobody to take for a while; it does not count as an attempt.

    `retry_after` is that while in seconds.
    """

    code = "later"

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InProgress(Later):
    """The same work is being done elsewhere right now; nothing was done here."""

    code = "in_progress"


class BreakerOpen(Later):
    """The breaker is open: what it guards fails at present, and was not called."""

    code = "breaker_open"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for who mistyped a name: the known one that looks like it, or what else there is to say."""
    import difflib  # here and not above: only for who mistyped

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise
