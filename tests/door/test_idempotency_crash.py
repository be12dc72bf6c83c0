"""kill -9 in the middle of guarded work, on stores that outlive a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom import Delivery, Policy
from postroom.idempotency import KIND, idempotent
from tests.door.staging import Hire, eventually
from tests.redis import servers

PATIENCE = 60.0


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        with servers.single() as server:
            yield server.url()


@pytest.fixture
def victim(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("idempotent_worker.py")), url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait(PATIENCE)
    assert process.stdout is not None
    process.stdout.close()


def test_work_whose_process_was_killed_is_done_by_another_once(
    url: str, victim: subprocess.Popen[str], hire: Hire
) -> None:
    with postroom.open(url) as room:
        payouts = room.queue("payouts", Policy(lease="2s", ack_timeout="10m", backoff="1ms"))
        payouts.put("INV-1")
        assert victim.stdout is not None
        assert victim.stdout.readline() == "began\n"
        payouts.put("INV-1")  # a duplicate comes while the first is in work
        paid: list[str] = []

        @idempotent(lambda delivery: delivery.body, name="pay")
        def pay(delivery: Delivery) -> None:
            paid.append(delivery.id)

        worker = hire(room, {"payouts": pay})
        # Told, and handed back for a moment; or, on a machine so busy that the victim seems dead, its heir.
        eventually(lambda: payouts.stats().scheduled == 1 or paid, PATIENCE)
        victim.kill()
        eventually(lambda: payouts.stats().counters.get("acked") == 2, PATIENCE)
        assert len(paid) == 1
        assert len(room.engine.records.list(KIND)) == 1
        worker.stop()
