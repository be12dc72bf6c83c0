"""A message as kombu's consumers see it: what cannot be decoded is not acked away.

A Celery worker acks a message that it cannot decode, so that it does not come back for ever. Here it is kept
as a dead letter, with what was wrong with it.
"""

from __future__ import annotations

from typing import Any

from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.transport import virtual

from postroom.celery.presence import worker_state
from postroom.model import Failure, Verb


class Message(virtual.Message):
    """See the module; in a process that is no worker whoever acks it means it."""

    _error: BaseException | None = None

    def _decode(self) -> Any:
        try:
            return super()._decode()
        except Exception as error:
            self._error = error
            raise

    def ack(self, multiple: bool = False) -> None:
        # `errors`: what went wrong before anybody asked for the content, such as a broken compression.
        error = self.errors[0][1] if self.errors else self._error
        if error is not None and worker_state() is not None:
            # Before Celery says that it is done: whoever is first is heard.
            self.channel.office.settle(self.delivery_tag, Verb.BURY, _failure(error))
        super().ack(multiple)


def _failure(error: BaseException) -> Failure:
    """By the name that kombu has for it, whatever a codec calls its errors: they are a class of their own."""
    failure = Failure.of(error)
    if isinstance(error, DecodeError | ContentDisallowed):
        return failure
    return Failure(type="DecodeError", text=failure.summary, traceback=failure.traceback)
