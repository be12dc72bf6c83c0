"""A message as kombu's consumers see it: what cannot be read or decoded is not acked away.

A Celery worker acks a message that it cannot decode, so that it does not come back for ever. Here it is kept
as a dead letter, with what was wrong with it; and so is what another program has put that is no message of
kombu's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.transport import virtual

from postroom.celery.presence import worker_state
from postroom.celery.wrapping import Payload, unwrap
from postroom.delivery import Delivery
from postroom.model import Failure, Verb

if TYPE_CHECKING:
    from postroom.celery.office import Office

log: logging.Logger = logging.getLogger(__name__)


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


def read(office: Office, tag: str, delivery: Delivery) -> Payload | None:
    """The message of a delivery; None: nobody can read it, and it is buried."""
    try:
        return unwrap(delivery, tag, zero_is_highest=office.options.zero_is_highest)
    except Exception as error:  # somebody else's message: it must not stop the consumer
        log.exception("unreadable: %r", delivery, extra={"event": "celery.unreadable", **delivery.log_extra})
        office.settle(tag, Verb.BURY, Failure.of(error))
        return None


def _failure(error: BaseException) -> Failure:
    """By the name that kombu has for it, whatever a codec calls its errors: they are a class of their own."""
    failure = Failure.of(error)
    if isinstance(error, DecodeError | ContentDisallowed):
        return failure
    return Failure(type="DecodeError", text=failure.summary, traceback=failure.traceback)
