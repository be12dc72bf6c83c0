"""Publishes with confirms, many at a time: on RabbitMQ over a connection of its own.

A message is sent when the broker said that it has it. Inside `window()` the next ones do not wait for that:
up to 256 are on their way at a time, and the end of the block waits for the last. Whatever a lost connection
left unconfirmed is sent again; the event's id absorbs what arrives twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import AMQPError, PreconditionFailed
from kombu.exceptions import OperationalError

from postroom.celery.events import leaderless
from postroom.celery.events.declaring import explain
from postroom.celery.events.envelope import CONTENT_TYPE, ENCODING, Headers
from postroom.celery.events.topology import EXCHANGE
from postroom.errors import Conflict, EngineUnavailable, NotFound, QueueFull

log: logging.Logger = logging.getLogger(__name__)

#: Messages on their way at a time.
WINDOW = 256
#: How long to wait for one confirm, and how often to connect anew before the caller is told (s).
_PATIENCE = 30.0
_TRIES = 3
#: What a new connection may heal; a time-out is none of them, as it is how waiting for a confirm ends.
_LOST = (AMQPError, OperationalError, OSError)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. Whatever does not go to `events` must arrive somewhere."""

    exchange: str
    routing_key: str
    headers: Headers
    body: bytes


class ConfirmingPublisher:
    """For one process; its children make their own. Threads take turns."""

    def __init__(self, app: Any, *, unrouted_is_error: bool) -> None:
        self._app = app
        self._unrouted_is_error = unrouted_is_error
        self._lock = threading.RLock()
        #: Events that went nowhere, because no service is bound to them.
        self.unrouted: int = 0
        #: Messages that were sent again, because the connection was lost before their confirm.
        self.resent: int = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._connection: Any = None
        self._channel: Any = None
        self._sent = 0
        self._open: dict[int, Outgoing] = {}
        self._refused: list[Outgoing] = []
        self._returned: list[str] = []
        self._depth = 0

    # --- what callers do --------------------------------------------------------------------

    def publish(self, message: Outgoing) -> None:
        """Publish, and wait for the confirm unless a window is open.

        Raises NotFound when nobody is bound to it, QueueFull when a queue takes no more, Conflict when
        `events` is another kind of exchange, and EngineUnavailable when the broker cannot be reached.
        """
        with self._lock:
            self._forget_parent()
            self._transmit([message])
            self._wait(WINDOW - 1 if self._depth else 0)

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        """Let what is published in this block overlap; its end waits for every confirm.

        Other threads wait until it ends.
        """
        with self._lock:
            self._forget_parent()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            if not self._depth:
                self._wait(0)

    def close(self) -> None:
        with self._lock:
            self._drop_connection()

    # --- sending ----------------------------------------------------------------------------

    def _send(self, message: Outgoing) -> None:
        channel = self._connected()
        prepared = channel.prepare_message(
            message.body, 0, CONTENT_TYPE, ENCODING, message.headers,
            {"delivery_mode": 2, "message_id": message.headers["id"],
             "correlation_id": message.headers["id"]},
        )  # fmt: skip
        self._sent += 1
        self._open[self._sent] = message
        channel.basic_publish(
            prepared, exchange=message.exchange, routing_key=message.routing_key, mandatory=True
        )

    def _wait(self, most: int) -> None:
        """Wait until at most so many are unconfirmed; then say what became of the others."""
        end = time.monotonic() + _PATIENCE
        while len(self._open) > most:
            if time.monotonic() > end:
                self._drop_connection()
                raise EngineUnavailable(f"RabbitMQ confirmed nothing for {_PATIENCE:g} s")
            before = len(self._open)
            self._drain()
            end = time.monotonic() + _PATIENCE if len(self._open) < before else end
        self._report()

    def _drain(self) -> None:
        try:
            self._connection.drain_events(timeout=1.0)
        except TimeoutError:
            return
        except _LOST as error:
            unconfirmed = list(self._open.values())
            log.warning("the connection to RabbitMQ was lost: %s", error, extra={"event": "events.reconnect"})
            self._drop_connection()
            self.resent += len(unconfirmed)
            self._transmit(unconfirmed)

    def _report(self) -> None:
        refused, self._refused = self._refused, []
        returned, self._returned = self._returned, []
        if refused:
            raise QueueFull(
                f"RabbitMQ refused {len(refused)} of the events: a queue is full, or {leaderless.HELP}"
            )
        if returned and (self._unrouted_is_error or "" in returned):
            raise NotFound(f"no service is bound to {', '.join(sorted(set(filter(None, returned)))) or 'it'}")
        for name in returned:
            self.unrouted += 1
            _warn_of_unrouted(name, self.unrouted)

    # --- the connection ---------------------------------------------------------------------

    def _transmit(self, messages: list[Outgoing]) -> None:
        """Send them; over a new connection, with all that is unconfirmed, when the old one is lost."""
        for attempt in range(1, _TRIES + 1):
            try:
                for message in messages:
                    self._send(message)
            except _LOST as error:
                sent = list(self._open.values())
                self.resent += len(sent)
                messages = [*sent, *(message for message in messages if not _is_any_of(message, sent))]
                self._drop_connection()
                if attempt == _TRIES:
                    raise EngineUnavailable(f"RabbitMQ cannot be reached: {error}") from error
            else:
                return

    def _connected(self) -> Any:
        if self._channel is None:
            options = {**(self._app.conf.broker_transport_options or {}), "confirm_publish": False}
            self._connection = self._app.connection_for_write(transport_options=options)
            self._connection.ensure_connection(max_retries=3, interval_start=0.2, interval_max=2)
            channel = self._connection.channel()
            self._declare(channel)
            channel.confirm_select()
            channel.events["basic_ack"].add(self._on_ack)
            channel.events["basic_nack"].add(self._on_nack)
            channel.events["basic_return"].add(self._on_return)
            self._channel, self._sent = channel, 0
        return self._channel

    def _declare(self, channel: Any) -> None:
        try:
            channel.exchange_declare(EXCHANGE, "topic", durable=True, auto_delete=False)
        except PreconditionFailed as error:
            self._drop_connection()
            raise Conflict(explain(str(error.reply_text))) from error

    def _on_ack(self, tag: int, multiple: bool) -> None:
        for done in [open_ for open_ in self._open if open_ <= tag] if multiple else [tag]:
            self._open.pop(done, None)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        for done in [open_ for open_ in self._open if open_ <= tag] if multiple else [tag]:
            if message := self._open.pop(done, None):
                self._refused.append(message)

    def _on_return(self, error: Any, exchange: str, routing_key: str, message: Any) -> None:
        # An event nobody listens to; anything else of ours must arrive.
        self._returned.append(routing_key if exchange == EXCHANGE else "")

    def _drop_connection(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._open.clear()
        if connection is not None:
            with contextlib.suppress(Exception):  # it is lost, or closed in a moment
                connection.close()

    def _forget_parent(self) -> None:
        """A forked child must not write into the socket of its parent."""
        if self._pid != os.getpid():
            self._inherited = self._connection  # kept, so that nobody closes it here
            self._reset()


def _warn_of_unrouted(name: str, count: int) -> None:
    log.warning(
        "no service is bound to %s: the event went nowhere", name,
        extra={"event": "events.unrouted", "name_of_event": name, "count": count},
    )  # fmt: skip


def _is_any_of(message: Outgoing, messages: list[Outgoing]) -> bool:
    return any(message is other for other in messages)


class StorePublisher:
    """The same over a Postroom engine: a put is confirmed by its answer."""

    #: What kombu sends again here it tells nobody.
    resent = 0

    def __init__(self, app: Any, *, unrouted_is_error: bool) -> None:
        self._app = app
        self._unrouted_is_error = unrouted_is_error
        self.unrouted: int = 0

    def publish(self, message: Outgoing) -> None:
        """Put the event into the queue of every service that is bound to it. Raises as the other one."""
        try:
            self._put(message)
        except OperationalError as error:  # what kombu makes of whatever a new connection may heal
            raise EngineUnavailable(str(error)) from error

    def _put(self, message: Outgoing) -> None:
        with self._app.producer_pool.acquire(block=True) as producer:
            if message.exchange == EXCHANGE:
                self._look(producer.channel, message.routing_key)
            producer.publish(
                message.body, exchange=message.exchange, routing_key=message.routing_key,
                headers=message.headers, content_type=CONTENT_TYPE, content_encoding=ENCODING,
                delivery_mode=2, correlation_id=message.headers["id"], retry=True,
                retry_policy={"max_retries": _TRIES},
            )  # fmt: skip

    def _look(self, channel: Any, name: str) -> None:
        channel.exchange_declare(EXCHANGE, "topic")
        if channel.office.exchanges.matching(EXCHANGE, name):
            return
        if self._unrouted_is_error:
            raise NotFound(f"no service is bound to {name}")
        self.unrouted += 1
        _warn_of_unrouted(name, self.unrouted)

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        """Puts do not wait for each other here, so there is nothing to overlap."""
        yield

    def close(self) -> None:
        """The connections are those of the app."""


Publisher = ConfirmingPublisher | StorePublisher
