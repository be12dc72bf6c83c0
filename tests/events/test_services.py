"""Two services and their events, the same on RabbitMQ and on an engine: real workers, real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace

from tests.events.stage import Stage

#: The span inside which an event is published.
SPAN = trace.SpanContext(0x5EED, 0xC0FFEE, is_remote=False, trace_flags=trace.TraceFlags(1))


@pytest.fixture(params=["rabbitmq", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "rabbitmq":
        broker = request.getfixturevalue("rabbit").url
    else:
        broker = f"postroom+sqlite:///{tmp_path}/events.db"
    with Stage(broker, tmp_path) as stage:
        yield stage


@pytest.mark.timeout(240)
def test_each_service_gets_every_event_once_and_a_failing_one_bothers_no_other(stage: Stage) -> None:
    stage.worker("billing")
    stage.worker("mailing")
    with trace.use_span(trace.NonRecordingSpan(SPAN)):
        failing = stage.publish("shop.order.placed", 0, fail_in=stage.name("billing"), times=4)
    for number in range(1, 21):
        stage.publish("shop.order.placed", number)
    stage.until(lambda: len(stage.lines("placed", "billing")) == 25)
    stage.until(lambda: len(stage.lines("placed", "mailing")) == 21)
    tries = [line for line in stage.lines("placed", "billing") if line["number"] == 0]
    assert [line["retries"] for line in tries] == [0, 1, 2, 3, 4]
    assert {line["id"] for line in tries} == {failing}
    assert {line["trace"] for line in tries} == {f"00-{SPAN.trace_id:032x}-{SPAN.span_id:016x}-01"}
    pauses = [after["at"] - before["at"] for before, after in pairwise(tries)]
    assert all(pause >= wait - 0.05 for pause, wait in zip(pauses, (1, 2, 4, 8), strict=True)), pauses
    for service in ("billing", "mailing"):
        numbers = [line["number"] for line in stage.lines("placed", service) if not line["retries"]]
        assert sorted(numbers) == list(range(21))


@pytest.mark.timeout(240)
def test_two_services_that_fail_do_not_multiply_an_event(stage: Stage) -> None:
    services = ("billing", "mailing")
    for service in services:
        stage.worker(service)
    stage.publish("shop.order.placed", 0, fail_in=" ".join(map(stage.name, services)), times=3)
    stage.until(lambda: all(len(stage.lines("placed", service)) >= 4 for service in services))
    for service in services:
        assert [line["retries"] for line in stage.lines("placed", service)] == [0, 1, 2, 3]


@pytest.mark.timeout(240)
def test_of_several_handlers_only_the_failing_one_is_retried(stage: Stage) -> None:
    stage.worker("billing")
    stage.publish("shop.stock.low", "tea")
    stage.publish("shop.stock.new", "cake")
    stage.until(lambda: len(stage.lines("order_more")) == 3 and len(stage.lines("count")) == 2)
    assert [line["retries"] for line in stage.lines("order_more")] == [0, 1, 2]
    assert {(line["item"], line["event"]) for line in stage.lines("count")} == {
        ("tea", "shop.stock.low"), ("cake", "shop.stock.new"),
    }  # fmt: skip


@pytest.mark.timeout(240)
def test_a_plain_celery_worker_works_and_warns(stage: Stage) -> None:
    worker = stage.worker("billing", quiet=False)
    stage.publish("shop.order.placed", 1)
    stage.until(lambda: stage.lines("placed"))
    stage.until(lambda: "postroom events worker" in worker.log())
