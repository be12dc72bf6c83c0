"""OpenTelemetry: a span for every put and for the work on its message, linked by the header `traceparent`.

The span of the work is linked to that of the put and is not its child: a delayed message may be days old. The
names follow the messaging conventions, which are still in development: they are written down here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from postroom.delivery import Delivery
from postroom.errors import MissingExtra
from postroom.model import NewMessage

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _error:
    raise MissingExtra("tracing needs: pip install 'postroom[traces]'") from _error

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Tracer

HEADER = "traceparent"
Around = Callable[[Delivery], AbstractContextManager[Any]]
_propagator = TraceContextTextMapPropagator()


def _tracer() -> Tracer:
    return trace.get_tracer("postroom")  # asked each time: a program may set its provider later


@contextmanager
def sending(queue: str, messages: Sequence[NewMessage]) -> Iterator[Sequence[NewMessage]]:
    """A span of the put, and the messages with its name in their headers, unless they bring one."""
    attributes = _attributes("send", "put", queue)
    if len(messages) == 1:
        attributes["messaging.message.id"] = messages[0].id
    else:
        attributes["messaging.batch.message_count"] = len(messages)
    kind = trace.SpanKind.PRODUCER
    with _tracer().start_as_current_span(f"put {queue}", kind=kind, attributes=attributes):
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        yield [_carrying(message, carrier) for message in messages] if carrier else messages


def _carrying(message: NewMessage, carrier: dict[str, str]) -> NewMessage:
    if HEADER in message.headers:
        return message
    return message.replace(headers={**message.headers, **carrier})


@contextmanager
def processing(delivery: Delivery) -> Iterator[None]:
    """A span of the work on this delivery, current while it lasts, and linked to the put."""
    attributes = _attributes("process", "process", delivery.queue)
    attributes |= {
        "messaging.message.id": delivery.id,
        "messaging.message.conversation_id": delivery.correlation_id,
        "postroom.attempt": delivery.attempt,
        "postroom.kind": delivery.kind,
    }
    span = _tracer().start_as_current_span(
        f"process {delivery.queue}",
        kind=trace.SpanKind.CONSUMER,
        links=_links(delivery.headers),
        attributes=attributes,
        record_exception=True,
        set_status_on_exception=True,
    )
    with span as current:
        try:
            yield
        except BaseException as error:
            current.set_attribute("error.type", type(error).__name__)
            raise


def around(inner: Around | None) -> Around:
    """The span of a worker's job, around what else is around it."""

    @contextmanager
    def surroundings(delivery: Delivery) -> Iterator[Any]:
        with processing(delivery):
            if inner is None:
                yield None
            else:
                with inner(delivery) as context:
                    yield context

    return surroundings


def _links(headers: dict[str, str]) -> list[Link]:
    context = trace.get_current_span(_propagator.extract(headers)).get_span_context()
    return [trace.Link(context)] if context.is_valid else []


def _attributes(kind: str, verb: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "postroom",
        "messaging.destination.name": queue,
        "messaging.operation.type": kind,
        "messaging.operation.name": verb,
    }
