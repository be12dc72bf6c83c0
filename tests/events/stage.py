"""Services as processes, for tests: real workers on a real broker, and what their handlers wrote.

    with Stage(rabbit.url, folder) as stage:
        stage.worker("billing")
        stage.publish("shop.order.placed", 1)
        stage.until(lambda: stage.lines("placed"))

Everything that a `Stage` started is stopped when it ends, also after a failure.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from postroom.celery import close_offices
from postroom.celery.events import EventsApp, events_app
from tests.celery.workers import PATIENCE, REPO, WorkerProcess, wait_until

QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat")


class Stage:
    def __init__(self, broker: str, folder: Path, **config: Any) -> None:
        self.broker, self.folder, self.config = broker, folder, config
        self.ledger = folder / "ledger.jsonl"
        self.suffix = secrets.token_hex(3)
        self.workers: list[WorkerProcess] = []
        self.shop: EventsApp = events_app(f"shop{self.suffix}", broker_url=broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self.shop.publisher.close()
        if self.broker.startswith("postroom+"):  # kombu has one pool a URL: others are on this RabbitMQ too
            self.shop.pool.force_close_all()
        close_offices()
        if error is not None:
            for worker in self.workers:
                print(f"--- {worker.name} ---\n{worker.log()[-6_000:]}")

    def name(self, service: str) -> str:
        """Brokers outlive a test: its services have names that no other has."""
        return f"{service}{self.suffix}"

    def worker(self, service: str, *arguments: str, quiet: bool = True) -> WorkerProcess:
        name = f"{service}-{secrets.token_hex(3)}"
        command = [
            sys.executable, "-m", "celery", "-A", "tests.events.service", "worker", "-n", f"{name}@events",
            "-l", "INFO", "-c", "1", *(QUIET if quiet else ()), *arguments,
        ]  # fmt: skip
        worker = WorkerProcess(command, self.environ(service), self.folder / f"{name}.log", name)
        self.workers.append(worker)
        return worker.until_ready()

    def command(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`postroom events …` for the service `billing`."""
        return self.postroom("events", verb, "tests.events.service", *arguments)

    def postroom(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`postroom …`, as who works at the service `billing` runs it."""
        command = [sys.executable, "-m", "postroom.cli", *arguments]
        return subprocess.run(
            command, cwd=REPO, env=self.environ("billing"), capture_output=True, text=True, check=False,
            timeout=PATIENCE * 2,
        )  # fmt: skip

    def environ(self, service: str) -> dict[str, str]:
        return {
            **os.environ,
            "SERVICE": self.name(service),
            "SERVICE_BROKER": self.broker,
            "SERVICE_CONFIG": json.dumps(self.config),
            "SERVICE_LEDGER": str(self.ledger),
            "POSTROOM_URL": f"sqlite:///{self.folder}/notes.db",
            "PYTHONPATH": os.pathsep.join([str(REPO / "src"), str(REPO)]),
        }

    def publish(self, event: str, *args: Any, **kwargs: Any) -> str:
        """Publish as another service would that has declared this event."""
        declared = self.shop.declared.get(event) or self.shop.event(event)(_anything)
        return declared(*args, **kwargs)

    def lines(self, what: str, service: str = "", **said: Any) -> list[dict[str, Any]]:
        """What handlers of this kind wrote, in the order in which they did; only those that say this."""
        if not self.ledger.exists():
            return []
        text = self.ledger.read_text(encoding="utf-8")
        written = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        sought = {"what": what, **said, **({"service": self.name(service)} if service else {})}
        return [line for line in written if sought.items() <= line.items()]

    def release(self, number: int) -> None:
        """Let the handlers of shop.order.held go on."""
        (self.folder / f"released-{number}").touch()

    def until(self, condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
        return wait_until(condition, lambda: f"not within {patience:g} s", patience)


def _anything(*args: Any, **kwargs: Any) -> None:
    """An event that checks nothing."""
