"""Spans of put and work, linked through the message, as the SDK exports them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from postroom import Delivery, Policy, Worker
from postroom.engines.memory import MemoryEngine
from postroom.room import Room
from postroom.telemetry import Observed
from tests.door.staging import room_on


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)  # once in a process: that is how the API wants it
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


@pytest.fixture
def room() -> Iterator[Room]:
    with room_on(Observed(MemoryEngine(), traced=True), tracing=True) as room:
        room.queue("emails", policy=Policy(max_attempts=1))
        yield room


def drain(room: Room, handler: object = lambda delivery: None, **options: object) -> None:
    Worker(room, {"emails": handler}, **options).run(drain=True)  # type: ignore[dict-item, arg-type]  # any


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def place(context: SpanContext | None) -> tuple[int, int]:
    """Which span is meant; that of a link is a remote one."""
    assert context
    return context.trace_id, context.span_id


def test_the_work_is_linked_to_the_put(room: Room, spans: InMemorySpanExporter) -> None:
    put = room.queue("emails").put({"to": "ada"}, kind="welcome", correlation_id="request-7")
    drain(room)
    (sent,), (work,) = named(spans, "put emails"), named(spans, "process emails")
    assert (sent.kind, work.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    (link,) = work.links
    assert place(link.context) == place(sent.context)
    assert work.parent is None, "a delayed message may be days old"
    assert sent.attributes
    assert work.attributes
    assert dict(sent.attributes) == {
        "messaging.system": "postroom",
        "messaging.destination.name": "emails",
        "messaging.operation.type": "send",
        "messaging.operation.name": "put",
        "messaging.message.id": put.id,
    }
    assert work.attributes["messaging.message.id"] == put.id
    assert work.attributes["messaging.operation.type"] == "process"
    assert work.attributes["messaging.message.conversation_id"] == "request-7"
    assert (work.attributes["postroom.kind"], work.attributes["postroom.attempt"]) == ("welcome", 0)


def test_the_put_belongs_to_the_span_around_it(room: Room, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        room.queue("emails").put(1)
    (sent,) = named(spans, "put emails")
    assert sent.parent
    assert sent.parent.span_id == request.get_span_context().span_id


def test_what_a_handler_does_belongs_to_its_work(room: Room, spans: InMemorySpanExporter) -> None:
    def handler(delivery: Delivery) -> None:
        assert delivery.context == "session", "what the user wants around it is inside"
        with trace.get_tracer("test").start_as_current_span("send mail"):
            room.queue("audit").put(2)

    @contextmanager
    def session(delivery: Delivery) -> Iterator[str]:
        with trace.get_tracer("test").start_as_current_span("session"):
            yield "session"

    room.queue("emails").put(1)
    drain(room, handler, around=session)
    (work,), (inner,), (mail,), (audit,) = (
        named(spans, name) for name in ("process emails", "session", "send mail", "put audit")
    )
    for child, parent in ((inner, work), (mail, inner), (audit, mail)):
        assert child.parent
        assert parent.context
        assert child.parent.span_id == parent.context.span_id


def test_a_batch_is_one_span_and_every_message_is_linked(room: Room, spans: InMemorySpanExporter) -> None:
    room.queue("emails").put_many(range(3))
    drain(room)
    (sent,) = named(spans, "put emails")
    assert sent.attributes
    assert sent.attributes["messaging.batch.message_count"] == 3
    links = [link for work in named(spans, "process emails") for link in work.links]
    assert [place(link.context) for link in links] == [place(sent.context)] * 3


def test_a_failure_is_told(room: Room, spans: InMemorySpanExporter) -> None:
    def handler(delivery: Delivery) -> None:
        raise ValueError("boom")

    room.queue("emails").put(1)
    drain(room, handler)
    (work,) = named(spans, "process emails")
    assert work.status.status_code is StatusCode.ERROR
    assert work.attributes
    assert work.attributes["error.type"] == "ValueError"
    assert [event.name for event in work.events] == ["exception"]
    assert room.queue("emails").stats().dead == 1


def test_a_traceparent_that_the_caller_brings_is_kept(room: Room, spans: InMemorySpanExporter) -> None:
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    room.queue("emails").put(1, headers={"traceparent": theirs})
    drain(room)
    (work,) = named(spans, "process emails")
    assert f"{work.links[0].context.trace_id:032x}" in theirs


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_traceparent_that_makes_no_sense_is_no_link(
    room: Room, spans: InMemorySpanExporter, header: str
) -> None:
    room.queue("emails").put(1, headers={"traceparent": header})
    drain(room)
    (work,) = named(spans, "process emails")
    assert list(work.links) == []


def test_without_a_provider_nothing_is_added_to_a_message() -> None:
    code = """
import postroom
with postroom.open("memory://", tracing=True) as room:
    put = room.queue("emails").put(1)
    print(room.queue("emails").get(put.id).message.headers)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "{}\n"
