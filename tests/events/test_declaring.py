"""What can be declared without any broker, and what is refused at import."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.celery.events import events_app, settings
from postroom.celery.events.envelope import Envelope
from postroom.celery.events.topology import Archive, Names, build
from postroom.errors import ConfigError, InvalidInput

#: Nothing listens there: whatever needs a broker fails.
NOWHERE = "amqp://127.0.0.1:1//"


def test_declaring_needs_no_broker() -> None:
    app = events_app("billing", broker_url=NOWHERE)

    @app.event("billing.invoice.paid", version=2)
    def paid(number: int, *, amount: float = 0.0) -> None:
        """An invoice was paid."""

    @app.handler("billing.invoice.*")
    def on_paid(number: int, amount: float) -> None: ...

    assert paid.name == "billing.invoice.paid"
    assert str(inspect.signature(paid)) == "(number: 'int', *, amount: 'float' = 0.0) -> 'None'"
    assert app.handlers.of("billing.invoice.paid") == [on_paid.name]


def test_handlers_are_where_imports_says(tmp_path: Path) -> None:
    """Spec 2, "Configuration": `imports`, by the command that says what a service needs."""
    (tmp_path / "service.py").write_text(
        "from postroom.celery.events import events_app\n"
        f"app = events_app('billing', broker_url={NOWHERE!r}, imports=['handlers'])\n"
    )
    (tmp_path / "handlers.py").write_text(
        "from service import app\n@app.handler('shop.order.placed')\ndef on_placed(number): ...\n"
    )
    command = [sys.executable, "-m", "postroom.cli", "events", "topology", "service", "--dry-run"]
    ran = subprocess.run(
        command, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert "queue     billing.v1.event.shop.order.placed" in ran.stdout, ran.stderr


def test_what_the_body_raises_is_raised_and_nothing_is_published() -> None:
    app = events_app("billing", broker_url=NOWHERE)

    @app.event("billing.number.even")
    def even(number: int) -> None:
        if number % 2:
            raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        even(1)
    with pytest.raises(TypeError):
        even(2, 4)  # type: ignore[call-arg]  # the type is kept, so mypy sees it too
    with pytest.raises(InvalidInput):
        app.event("x.y")(lambda thing: None)(object())


@pytest.mark.parametrize(
    "config",
    [{"result_backend": "rpc://"}, {"backend": "rpc://"}, {"brokr_url": "x"}, {"queues": "many"},
     {"unrouted": "drop"}, {"rungs": 0}, {"topology_version": 0}, {"max_retries": -1}, {"queue_type": "x"},
     {"archive_most": 0}],
)  # fmt: skip
def test_a_wrong_setting_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        events_app("billing", **config)


def test_duplicates_and_nonsense_are_refused() -> None:
    app = events_app("billing")
    app.event("a.b")(lambda: None)
    with pytest.raises(InvalidInput):
        app.event("a.b")
    with pytest.raises(InvalidInput):
        app.event("a.c")(print)
    with pytest.raises(InvalidInput):
        app.handler()
    with pytest.raises(InvalidInput):
        app.handler(lambda: None)  # type: ignore[arg-type]  # as @app.handler without an event
    app.handler("a.b", name="one")(lambda: None)
    with pytest.raises(InvalidInput, match="already"):
        app.handler("a.c", name="one")(lambda: None)


def test_an_event_has_one_queue_in_a_service() -> None:
    app = events_app("billing")
    app.handler("a.b", name="one")(lambda: None)
    with pytest.raises(InvalidInput, match="group"):
        app.handler("a.*", name="two")(lambda: None)
    app.handler("a.b", name="three")(lambda: None)
    app.handler("c.*", "c.d", name="four", group="c")(lambda: None)
    assert app.handlers.queues == {
        "billing.v1.event.a.b": ["a.b"], "billing.v1.group.c": ["c.*", "c.d"],
    }  # fmt: skip
    one = events_app("billing", queues="one")
    one.handler("a.b", "a.*", "#", name="all")(lambda: None)
    assert list(one.handlers.queues) == ["billing.v1.all"]


def test_the_environment_says_how_many_retries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings._warn_once.cache_clear()
    assert settings.read().max_retries == 10
    monkeypatch.setenv("AMQP_EVENTS_MAX_RETRIES", "4")
    assert [settings.read().max_retries for _ in range(2)] == [4, 4]
    assert caplog.text.count("please rename it") == 1
    monkeypatch.setenv("POSTROOM_EVENTS_MAX_RETRIES", "5")
    assert settings.read().max_retries == 5
    monkeypatch.setenv("POSTROOM_EVENTS_MAX_RETRIES", "many")
    with pytest.raises(ConfigError):
        settings.read()


def test_the_defaults_are_robust() -> None:
    """Spec 2, "Robustness"."""
    app = events_app("billing", broker_url=NOWHERE)

    @app.handler("a.b")
    def task() -> None: ...

    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert not app.conf.task_acks_on_failure_or_timeout
    assert app.conf.broker_transport_options["confirm_publish"]
    assert (task.acks_late, task.reject_on_worker_lost, task.ignore_result) == (True, True, True)
    assert (task.autoretry_for, task.max_retries, task.retry_backoff) == ((Exception,), 10, 1)
    assert app.given.archive == Archive(retention=7 * 24 * 3_600_000, most=10_000)
    own = events_app("billing", broker_url=NOWHERE, task_acks_late=False, control_queue_exclusive=True)
    assert not own.conf.task_acks_late
    assert own.conf.control_queue_exclusive
    assert not own.conf.control_queue_durable


def test_a_topology_has_a_queue_for_each_rung_and_event_and_the_archive() -> None:
    given = settings.read(rungs=3)
    topology = build(Names("s"), {"s.v1.event.a.b": ["a.b"]}, given.ladder, given.archive)
    assert [queue.name for queue in topology.queues] == [
        "s.v1.retry.1s", "s.v1.retry.2s", "s.v1.retry.4s", "s.v1.event.a.b", "s.v1.archive",
        "s.v1.lost",
    ]  # fmt: skip
    exchanges = [exchange.name for exchange in topology.exchanges]
    assert [name for name in exchanges if not name.startswith("s.v1.")] == ["events"]
    (archive,) = [queue for queue in topology.queues if queue.name == "s.v1.archive"]
    assert archive.arguments["x-message-ttl"] == 7 * 24 * 3_600_000
    assert archive.arguments["x-max-length"] == 10_000
    declared = {*exchanges} | {queue.name for queue in topology.queues}
    assert all({binding.source, binding.target} <= declared for binding in topology.bindings)
    assert all(
        queue.arguments.get("x-dead-letter-exchange", "events") in declared for queue in topology.queues
    )
    assert len(build(Names("s"), {}, given.ladder, None).queues) == 3


def test_what_an_event_causes_tells_of_it() -> None:
    first = Envelope.new("a.b", "billing", 1, None)
    second = Envelope.new("c.d", "mailing", 1, first)
    third = Envelope.new("e.f", "mailing", 1, second)
    assert (second.causation, second.correlation) == (first.event_id, first.event_id)
    assert (third.causation, third.correlation) == (second.event_id, first.event_id)
    assert Envelope.read(third.headers(task="handler", retries=2)) == third
