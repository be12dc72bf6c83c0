"""A quorum queue without a leader tells 0 and answers nothing: whoever meets it says so, and what helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.celery.events import archive, events_app
from postroom.celery.events.declaring import declare
from postroom.errors import EngineUnavailable, QueueFull
from tests.events.rabbit import Rabbit
from tests.events.stage import Stage

pytestmark = pytest.mark.timeout(300)


def behead(rabbit: Rabbit, queue: str) -> None:
    """As RabbitMQ 3.10 leaves a queue behind when it is killed right after that was declared."""
    stopped = rabbit.ctl("eval", f"ra:stop_server(quorum_queues, {{'%2F_{queue}', node()}}).")
    assert stopped.strip() == "ok", stopped


def test_readers_publishers_and_workers_say_it(rabbit: Rabbit, tmp_path: Path) -> None:
    with Stage(rabbit.url, tmp_path) as stage:
        app = events_app(stage.name("billing"), broker_url=rabbit.url)
        app.handler("shop.order.placed", name="handler")(print)
        with app.connection_for_write() as connection:
            declare(connection, app.topology)
        worker = stage.worker("billing", "--pool", "solo")
        assert app.standing().archived == 0
        behead(rabbit, app.names.archive)
        behead(rabbit, app.queue_of("shop.order.placed"))

        with pytest.raises(EngineUnavailable, match="has no leader"):
            app.standing()
        with (
            pytest.raises(EngineUnavailable, match="has no leader"),
            archive.opened(app, f"sqlite:///{tmp_path}/notes.db"),
        ):
            pass
        with pytest.raises(QueueFull, match="has no leader"):
            stage.publish("shop.order.placed", 1)

        rabbit.close_connections("maintenance")
        stage.until(lambda: re.search("cannot be served: .* has no leader", worker.log()))
        app.publisher.close()
