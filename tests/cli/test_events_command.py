"""`postroom events …` where no RabbitMQ is needed: on an engine, with an outbox, and with what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from postroom.celery.events import outbox
from tests.celery.workers import WorkerProcess
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(240)
EVENT = "shop.order.placed"
NOWHERE = "amqp://127.0.0.1:1//"


def test_a_relay_publishes_what_waits_once_or_until_it_is_stopped(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/shop.db"
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.exec_driver_sql(outbox.ddl())
    with Stage(f"postroom+sqlite:///{tmp_path}/events.db", tmp_path) as stage:
        stage.worker("billing", "--pool", "solo")
        placed = stage.shop.event(EVENT)(lambda number: None)

        def order(number: int) -> None:
            with Session(engine) as session:
                placed.within(session, number)
                session.commit()

        order(1)
        options = ("--database", database)
        assert json.loads(stage.command("relay", *options, "--once", "--json").stdout) == {"published": 1}
        assert stage.command("relay", *options, "--once").stdout == "published: 0\n"
        command = [sys.executable, "-m", "postroom.cli", "events", "relay", "tests.events.service", *options]
        relay = WorkerProcess(command, stage.environ("billing"), tmp_path / "relay.log", "relay")
        stage.workers.append(relay)
        order(2)
        stage.until(lambda: len(stage.lines("placed")) == 2)
        assert relay.stop() == 0
        assert [line["number"] for line in stage.lines("placed")] == [1, 2]
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///{}/empty.db", "there is no table event_outbox"),
        ("sqlite:////no/such/folder/shop.db", "it cannot be opened: unable to open database file"),
        ("nonsense", "it cannot be opened: Could not parse SQLAlchemy URL"),
    ],
)
def test_a_relay_says_what_is_wrong_with_its_database(tmp_path: Path, url: str, told: str) -> None:
    with Stage(NOWHERE, tmp_path) as stage:
        ran = stage.command("relay", "--database", url.format(tmp_path), "--once")
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"postroom: --database: {told}")


@pytest.mark.parametrize("verb", ["stats", "topology"])
def test_a_broker_that_is_away_is_said(tmp_path: Path, verb: str) -> None:
    with Stage(NOWHERE, tmp_path) as stage:
        ran = stage.command(verb)
    assert ran.returncode == 5
    assert ran.stderr.startswith("postroom: RabbitMQ cannot be reached: ")


def test_a_worker_says_that_it_waits_for_its_broker(tmp_path: Path) -> None:
    with Stage(NOWHERE, tmp_path) as stage:
        command = [sys.executable, "-m", "postroom.cli", "events", "worker", "tests.events.service"]
        worker = WorkerProcess(command, stage.environ("billing"), tmp_path / "waiting.log", "waiting")
        stage.workers.append(worker)
        stage.until(lambda: "RabbitMQ cannot be reached: [Errno 111]" in worker.log())
        assert worker.process.poll() is None


def test_an_engine_has_no_topology_to_declare(tmp_path: Path) -> None:
    with Stage(f"postroom+sqlite:///{tmp_path}/events.db", tmp_path) as stage:
        ran = stage.command("topology")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "not on RabbitMQ" in ran.stderr
        assert "20 queues" in stage.command("topology", "--dry-run").stdout


def test_a_module_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Stage(NOWHERE, tmp_path) as stage:
        ran = stage.postroom("events", "stats", "nowhere")
    assert ran.returncode == 2
    assert ran.stderr.startswith("postroom: MODULE: there is no Celery app in 'nowhere'")
