"""One message and everything about it that changes."""

from __future__ import annotations

import msgspec

from postroom.limits import KEPT_ATTEMPTS, MAX_EXTENDED
from postroom.model import Attempt, Entry, Failure, Message, State


class Slot(msgspec.Struct, gc=False):
    """A message in its queue. `order` is None while it is scheduled, `token` None while nobody holds it.

    An engine may leave the body out (b"") where nobody is going to look at it.
    """

    message: Message
    state: State
    due: int
    order: int | None = None
    attempt: int = 0
    deliveries: int = 0
    ran_out: int = 0
    strays: int = 0
    #: Whether it stands among the suspects while it is ready.
    suspect: bool = False
    token: str | None = None
    consumer: str = ""
    claimed_at: int = 0
    lease: int | None = None
    started_at: int | None = None
    ack_deadline: int | None = None
    deadline: int | None = None
    extended: int = 0
    ended_at: int = 0
    #: Done: until when people may look at it.
    kept_until: int = 0
    checkpoint: bytes | None = None
    attempts: tuple[Attempt, ...] = ()
    failure: Failure | None = None
    replayed_as: tuple[str, ...] = ()
    #: Where an engine keeps it, if that helps to find it again.
    key: int = 0

    def is_expired(self, now: int) -> bool:
        return self.message.expires is not None and self.message.expires <= now

    def lay_down(self) -> None:
        """Nobody holds it any more: no old receipt fits."""
        self.token = self.started_at = self.ack_deadline = self.deadline = None
        self.consumer, self.extended = "", 0

    def note_extension(self) -> None:
        self.extended = min(self.extended + 1, MAX_EXTENDED)

    def note_attempt(self, now: int, error: str) -> None:
        """Count the work that ends now as an attempt, and keep the newest of them."""
        self.attempt += 1
        began = self.claimed_at if self.started_at is None else self.started_at
        done = Attempt(
            consumer=self.consumer, started_at=began, ended_at=now, error=error[:500], extended=self.extended
        )
        self.attempts = (*self.attempts[1 - KEPT_ATTEMPTS :], done)

    def entry(self) -> Entry:
        return Entry(
            message=self.message,
            state=self.state,
            due=self.due,
            attempt=self.attempt,
            deliveries=self.deliveries,
            ran_out=self.ran_out,
            strays=self.strays,
            order=self.order,
            token=self.token,
            consumer=self.consumer,
            started_at=self.started_at,
            deadline=self.deadline,
            extended=self.extended,
            checkpoint=self.checkpoint,
            attempts=self.attempts,
            failure=self.failure,
            replayed_as=self.replayed_as,
        )
