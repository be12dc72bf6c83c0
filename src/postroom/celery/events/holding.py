"""The letters of an archive on RabbitMQ, in the hands of one reader for a while.

A queue can be looked at only by taking out of it. So a reader consumes, acks nothing but what it means to
remove, and the end of its connection, by whatever cause, gives everything else back. That keeps the order:
one consumer holds all of it, and gives it back oldest first. And there is one reader at a time, by a queue
that is exclusive to its connection: two who give back at different times would mix what they held.

Meanwhile `postroom events stats` counts those letters not. A reader that does nothing for some minutes
loses its connection, and the letters are back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from amqp.exceptions import AMQPError, NotFound, ResourceLocked
from kombu.exceptions import OperationalError

from postroom.celery.events import leaderless
from postroom.errors import Conflict, EngineUnavailable
from postroom.errors import NotFound as NoArchive

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

#: What a reader takes at most, the oldest: letters, and bytes of their bodies.
MOST, MOST_BYTES = 20_000, 64_000_000
#: How long to wait for another reader, and for the next letter (s).
_PATIENCE, _QUIET = 15.0, 5.0
_STEP = 0.1
_TAKEN = "another reader has this archive at present; try again"
#: How long RabbitMQ may take for one answer (s): one that hangs must not hang who asks.
_ANSWER = 30.0
_LOST = (AMQPError, OperationalError, OSError)
_GIVEN_BACK = "the connection to RabbitMQ is lost, and the letters are back in the archive"


class Held:
    """Letters that one connection holds; `total` is how many there were."""

    def __init__(self, connection: Any, queue: str) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self.queue = queue
        self.messages: list[Any] = []
        self._bytes = 0
        self.total: int = self._counted()
        self._take(min(self.total, MOST) - len(self.messages))

    @property
    def is_all(self) -> bool:
        return len(self.messages) >= self.total

    def _counted(self) -> int:
        """How many there are, once they are in nobody's hands.

        After a restart a queue that has no leader yet tells 0: it is asked for a letter, and answers when it
        has one. Then it still counts who held letters before as a consumer, until it has missed them.
        """
        end, asked = time.monotonic() + _PATIENCE, False
        while True:
            told = self._channel.queue_declare(self.queue, passive=True)
            if told.consumer_count:
                if time.monotonic() > end:
                    raise Conflict(_TAKEN)
                time.sleep(_STEP)
            elif told.message_count or asked:
                return int(told.message_count)
            elif first := self._channel.basic_get(self.queue):
                self._keep(first)
                return 1 + int(first.delivery_info["message_count"])
            else:
                asked = True  # and had a leader: what it tells now is true

    def _take(self, count: int) -> None:
        if count <= 0:
            return
        # As many as are meant and no more: what dies meanwhile stays in the queue.
        self._channel.basic_qos(0, count, False)
        consumer = self._channel.basic_consume(self.queue, callback=self._keep)
        end, whole = time.monotonic() + _QUIET, len(self.messages) + count
        while len(self.messages) < whole and self._bytes < MOST_BYTES and time.monotonic() < end:
            before = len(self.messages)
            with contextlib.suppress(TimeoutError):
                self._connection.drain_events(timeout=1.0)
            if len(self.messages) > before:
                end = time.monotonic() + _QUIET
        if time.monotonic() >= end:
            self._check_rest()
        self._channel.basic_cancel(consumer)

    def _check_rest(self) -> None:
        """Fewer came than were counted: has the archive dropped them since, or does RabbitMQ not get on?"""
        if self._channel.queue_declare(self.queue, passive=True).message_count:
            raise EngineUnavailable("RabbitMQ has letters in the archive, and does not hand them out")

    def _keep(self, message: Any) -> None:
        if self._bytes < MOST_BYTES:  # what comes beyond that is given back unread
            self.messages.append(message)
            self._bytes += len(message.body)

    def check(self) -> None:
        """Whether the letters are still in these hands. Raises EngineUnavailable."""
        with as_unavailable(_GIVEN_BACK):
            self._channel.queue_declare(self.queue, passive=True)

    def remove(self, messages: Iterable[Any]) -> None:
        """Take these out for good; they are gone when this returns. Raises EngineUnavailable."""
        with as_unavailable(_GIVEN_BACK):
            for message in messages:
                self._channel.basic_ack(message.delivery_tag)
        self.check()  # its answer comes after the acks: RabbitMQ reads them in their order


@contextlib.contextmanager
def holding(app: EventsApp) -> Iterator[Held]:
    """Hold the archive of a service, to the end of the block.

    Raises NotFound when it has none, Conflict when another reader has it, and EngineUnavailable.
    """
    with contextlib.ExitStack() as stack:
        with as_unavailable():
            connection = stack.enter_context(connected(app))
            _be_alone(connection, app.names.reader)
            held = _held(connection, app.names.archive)
        yield held


@contextlib.contextmanager
def connected(app: EventsApp) -> Iterator[Any]:
    """A connection for one look: who asks should know soon when there is none."""
    bounds = {"read_timeout": _ANSWER, "write_timeout": _ANSWER}
    with app.connection_for_read(transport_options=bounds) as connection:
        connection.ensure_connection(max_retries=2, interval_start=0.2, interval_step=0.3)
        yield connection


def _held(connection: Any, queue: str) -> Held:
    try:
        return Held(connection, queue)
    except NotFound as error:
        raise NoArchive(f"there is no archive {queue} on this RabbitMQ") from error


def _be_alone(connection: Any, name: str) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            # Goes with the connection, and with its process.
            connection.channel().queue_declare(name, exclusive=True, durable=False, auto_delete=True)
        except ResourceLocked as error:  # which has closed that channel
            if time.monotonic() > end:
                raise Conflict(_TAKEN) from error
            time.sleep(_STEP)
        else:
            return


@contextlib.contextmanager
def as_unavailable(what: str = "RabbitMQ cannot be reached") -> Iterator[None]:
    """`what`: what a lost connection means here."""
    try:
        yield
    except _LOST as error:
        raise EngineUnavailable(leaderless.reason(error) or f"{what}: {error}") from error
