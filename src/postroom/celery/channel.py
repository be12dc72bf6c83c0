"""A kombu channel over a room: declaring, binding, publishing, consuming."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from queue import Empty
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from postroom.celery.batch import PublishBatch
from postroom.celery.exchanges import Binding
from postroom.celery.news import is_answer, is_news
from postroom.celery.presence import begun_tags
from postroom.celery.qos import QoS as Prefetch
from postroom.celery.transient import DEFAULT as DEFAULT_EXPIRES
from postroom.celery.undecoded import Message as Received
from postroom.celery.undecoded import read
from postroom.celery.wrapping import Payload, publish_id, wrap
from postroom.engine import ClaimRequest, Engine
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from postroom.celery.office import Office
    from postroom.celery.transport import Transport

log: logging.Logger = logging.getLogger(__name__)


class Channel(virtual.Channel):
    """See kombu's documentation; what differs is that all of it is kept in the room."""

    QoS: Any = Prefetch
    Message: Any = Received
    qos: Prefetch
    supports_fanout = True
    supports_batch_publish = True
    do_restore = False
    body_encoding: str | None = None
    max_priority = 255
    from_transport_options: tuple[str, ...] = ("deadletter_queue",)
    closed: bool

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.office: Office = connection.office
        self.engine: Engine = self.office.room.engine
        self.no_ack_queues: set[str] = set()
        #: While this is set, what is published is collected there.
        self.collecting: PublishBatch | None = None

    # --- exchanges --------------------------------------------------------------------------

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Any = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        type = type or "direct"
        exchange = exchange or f"amq.{type}"
        if passive:
            if self.office.exchanges.type_of(exchange) is None:
                raise _not_found("exchange", exchange)
            return
        self.office.exchanges.declare(exchange, type)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        for binding in self.office.exchanges.bindings(exchange):
            self.office.exchanges.unbind(exchange, binding)
        self.office.exchanges.delete(exchange)

    def get_exchanges(self) -> list[str]:
        return self.office.exchanges.names()

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        return [(key, None, queue) for key, queue in self.office.exchanges.bindings(exchange)]

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        for exchange in self.get_exchanges():
            for routing_key, queue in self.office.exchanges.bindings(exchange):
                yield queue, exchange, routing_key
        yield from self.office.fanout.bindings()

    # --- queues -----------------------------------------------------------------------------

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        queue = queue or f"amq.gen-{uuid4()}"
        if passive and not self._has_queue(queue):
            raise _not_found("queue", queue)
        if passive or not self._new_queue(queue, **kwargs):
            return queue_declare_ok_t(queue, self._size(queue), 0)
        return queue_declare_ok_t(queue, 0, 0)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return queue in self.office.fanout or bool(self.engine.queues([queue]))

    def _new_queue(self, queue: str, auto_delete: bool = False, arguments: Any = None, **kwargs: Any) -> bool:
        """Declare the queue; whether it is a transient one, which is made when something needs it."""
        expires = (arguments or {}).get("x-expires")
        if auto_delete or expires:
            self.office.transients.expect(queue, int(expires or DEFAULT_EXPIRES))
            return True
        self.office.declare(queue)
        return False

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **kwargs)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        office = self.office
        if office.exchanges.type_of(exchange) == "fanout":
            office.fanout.bind(queue, exchange, routing_key or "")
            self.connection.intake.changed()
            return
        office.routed.add(queue)
        ttl = office.transients.ensure(queue, exchange, routing_key or "")
        office.exchanges.bind(exchange, Binding(routing_key or "", queue), ttl)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        self.office.fanout.unbind(queue, exchange, routing_key or "")
        self.office.exchanges.unbind(exchange, Binding(routing_key or "", queue))

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Remove the queue with its bindings and all that is in it."""
        office = self.office
        if if_empty and self.engine.stats(queue).depth:
            return
        office.fanout.forget(queue)
        for exchange, binding in office.transients.disown(queue) or self._bindings_of(queue):
            office.exchanges.unbind(exchange, binding)
        office.routed.discard(queue)
        office.transients.drop(queue)
        office.forget(queue)

    def _bindings_of(self, queue: str) -> Iterator[tuple[str, Binding]]:
        for exchange in self.get_exchanges():
            for binding in self.office.exchanges.bindings(exchange):
                if binding.queue == queue:
                    yield exchange, binding

    def _size(self, queue: str) -> int:
        return self.engine.stats(queue).ready

    def _purge(self, queue: str) -> int:
        return self.engine.purge(queue)

    # --- publishing -------------------------------------------------------------------------

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Put the message wherever the exchange sends it. Raises QueueFull when a queue takes no more."""
        properties = message["properties"]
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        if not exchange:
            self._put(routing_key, message, **kwargs)
        elif (type_ := self.office.exchanges.type_of(exchange)) == "fanout":
            self._put_fanout(exchange, message, routing_key, **kwargs)
        elif is_answer(exchange):
            self.office.news.answer(lambda: self._put_routed(exchange, message, routing_key, type_, **kwargs))
        else:
            self._put_routed(exchange, message, routing_key, type_, **kwargs)

    def _put_routed(
        self, exchange: str, message: Payload, routing_key: str | None, type_: str | None, **kwargs: Any
    ) -> None:
        queues = self._route(exchange, routing_key or "", type_)
        publish_id(message["properties"])
        for queue in queues:
            self._put(queue, message, **kwargs)

    def _route(self, exchange: str, routing_key: str, type_: str | None) -> list[str]:
        exchanges = self.office.exchanges
        find = exchanges.matching if type_ == "topic" else exchanges.queues_of
        queues = find(exchange, routing_key)
        if not queues and exchanges.heal(exchange):
            queues = find(exchange, routing_key)
        if not queues and self.deadletter_queue:
            queues = [self.deadletter_queue]
        if not queues:
            log.warning(
                "nothing is bound to exchange %r under %r: the message went nowhere",
                exchange,
                routing_key,
                extra={"event": "celery.unroutable", "exchange": exchange, "routing_key": routing_key},
            )
        return queues

    def _put(self, queue: str, message: Payload, _publish_batch: Any = None, **kwargs: Any) -> None:
        office = self.office
        wrapped = wrap(
            queue,
            message,
            zero_is_highest=office.options.zero_is_highest,
            ttl=office.options.message_ttl,
            remember=office.remember,
        )
        batch = _publish_batch or self.collecting
        if batch is not None:
            batch.add(queue, wrapped)
        else:
            office.put(queue, [wrapped])

    def _put_fanout(self, exchange: str, message: Payload, routing_key: str | None, **kwargs: Any) -> None:
        if is_news(exchange):
            self.office.news.tell(routing_key or "", message)
        else:
            self.office.fanout.publish(exchange, [(routing_key or "", message)])

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """Kombu's `Producer.batch()`: messages are collected, and put with one call a queue."""
        return PublishBatch(self, max_size)

    # --- consuming --------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        office = self.office
        if queue not in office.fanout and office.transients.ensure(queue) is None:
            office.promises.watch(queue)
        if no_ack:
            self.no_ack_queues.add(queue)
        else:
            self.no_ack_queues.discard(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self.connection.on_consume(no_ack=no_ack)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues and self._qos:
            claimed = self._qos.claimed
            self.office.release([tag for of, tag, _ in claimed if of == queue])
            kept = [item for item in claimed if item[0] != queue]
            claimed.clear()
            claimed.extend(kept)

    def _reset_cycle(self) -> None:
        """Whose turn it is, is the intake's to know."""
        self.connection.intake.changed()

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        try:
            message = self.Message(self._get(queue, no_ack=no_ack), channel=self)
        except Empty:
            return None
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        return message

    def _get(self, queue: str, timeout: float | None = None, *, no_ack: bool = False) -> Payload:
        office = self.office
        lease = office.promises.of(queue).lease
        payload = None
        while payload is None:  # each turn buries one that cannot be read
            tagged, _ = office.turn(queue, ClaimRequest(lease=lease, consumer=office.room.consumer))
            if not tagged:
                raise Empty
            ((tag, delivery),) = tagged
            payload = read(office, tag, delivery)
        if no_ack:
            office.settle(tag, soon=True)
            with contextlib.suppress(PostroomError):  # kept by the office, and the message is the caller's
                office.flush()
        return payload

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        self.qos.ack(delivery_tag)
        if (connection := self.connection) is not None:
            connection.intake.nudge()

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel the consumers and hand back what nobody works on. Acks may still come."""
        if self.closed:
            return
        self.closed = True
        for consumer in list(self._consumers):
            self.basic_cancel(consumer)
        if self._qos:
            self.connection.finish_acks()
            self._qos.let_go(keep=begun_tags())
        if not self.office.away:
            with contextlib.suppress(PostroomError):  # kept by the office, and sent when it can be
                self.office.flush()
        if self.connection is not None:
            self.connection.close_channel(self)

    def abandon(self) -> None:
        """The connection is lost, not closed: what is worked on stays leased, and its acks will come."""
        self.closed = True
        self._consumers.clear()
        self._active_queues.clear()
        if self._qos:
            claimed = [tag for _, tag, _ in self._qos.claimed]
            self._qos.claimed.clear()
            self.office.release(claimed)
            self.office.orphans.update(self._qos.give_up())
        self.connection.close_channel(self)


def _not_found(what: str, name: str) -> ChannelError:
    return ChannelError(f"NOT_FOUND - no {what} {name!r}", (50, 10), f"Channel.{what}_declare", "404")
