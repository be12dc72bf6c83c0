"""Real Celery workers as processes, against a real store, for tests that kill and watch them.

    with Shop(broker, folder) as shop:
        worker = shop.worker("--pool", "solo")
        shop.send("note", "a")
        shop.until(lambda: shop.lines("note"))

Everything that a `Shop` started is stopped when it ends, also after a failure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from celery import Celery

import postroom.celery

REPO = Path(__file__).parents[2]
#: How long to wait for anything (seconds): a loaded machine is slow, a broken worker is slower.
PATIENCE = 100.0
#: A lease short enough for a test. A healthy worker renews it after a third; a machine that stops everything
#: for five seconds must not cost it that (seconds).
LEASE = 8
APP = "tests.celery.shop"


def pool(name: str, concurrency: int = 2) -> list[str]:
    return ["--pool", name, "--concurrency", str(1 if name == "solo" else concurrency)]


def wait_until(condition: Callable[[], Any], complaint: Callable[[], str], patience: float = PATIENCE) -> Any:
    """Wait until it holds and return what it said."""
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, complaint()
        time.sleep(0.02)
    return found


class WorkerProcess:
    """One `celery worker`, with its output in a file."""

    def __init__(self, command: list[str], environ: dict[str, str], log: Path, name: str) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            # A session of its own: a pool's children end with it, whatever becomes of their parent.
            self.process = subprocess.Popen(
                command, cwd=REPO, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def until_ready(self) -> Self:
        wait_until(self._is_ready, lambda: f"{self.name} is not ready:\n{self.log()[-4_000:]}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log()[-4_000:]}"
        return " ready." in self.log()

    def kill(self) -> None:
        """As by kill -9, the whole pool of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask_to_stop(self) -> None:
        self.process.terminate()

    def stop(self) -> int:
        """A warm shutdown; the exit code."""
        self.ask_to_stop()
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not stop:\n{self.log()[-4_000:]}") from None


class Shop:
    """A store, the app on it, its workers, and what their tasks wrote."""

    def __init__(self, broker: str, folder: Path, *, backend: str = "", **config: Any) -> None:
        self.broker = broker
        self.folder = folder
        self.ledger = folder / "ledger.jsonl"
        (folder / "results").mkdir(exist_ok=True)
        self.environ = {
            **os.environ,
            "SHOP_BROKER": broker,
            "SHOP_BACKEND": backend or f"file://{folder}/results",
            "SHOP_CONFIG": json.dumps(config),
            "SHOP_LEDGER": str(self.ledger),
            # Also `src`: the interpreter may be that of another venv, with another Celery.
            "PYTHONPATH": os.pathsep.join([str(REPO / "src"), str(REPO)]),
        }
        self.workers: list[WorkerProcess] = []
        self._app = Celery("sender", broker=broker, set_as_current=False)
        self._app.conf.update(config, task_default_queue="shop", broker_connection_retry=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self.hang_up()
        if error is not None:
            for worker in self.workers:
                print(f"--- {worker.name} ---\n{worker.log()[-6_000:]}")

    # --- workers ----------------------------------------------------------------------------

    def worker(self, *arguments: str, ready: bool = True, **environ: str) -> WorkerProcess:
        name = f"w{len(self.workers)}-{uuid.uuid4().hex[:6]}"
        command = [sys.executable, "-m", "celery", "-A", APP, "worker", "-n", f"{name}@shop", "-l", "INFO"]
        worker = WorkerProcess(
            [*command, *arguments], {**self.environ, **environ}, self.folder / f"{name}.log", name
        )
        self.workers.append(worker)
        return worker.until_ready() if ready else worker

    def background(self, *arguments: str) -> WorkerProcess:
        """Another `celery …` command that goes on until it is stopped."""
        name = f"{arguments[0]}-{uuid.uuid4().hex[:6]}"
        command = [sys.executable, "-m", "celery", "-A", APP, *arguments]
        self.workers.append(WorkerProcess(command, self.environ, self.folder / f"{name}.log", name))
        return self.workers[-1]

    def celery(self, *arguments: str, patience: float = PATIENCE) -> str:
        """What a `celery …` command prints; it must succeed."""
        ran = self.try_celery(*arguments, patience=patience)
        assert ran.returncode == 0, f"celery {' '.join(arguments)}: {ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def try_celery(self, *arguments: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "celery", "-A", APP, *arguments]
        return subprocess.run(
            command, cwd=REPO, env=self.environ, capture_output=True, text=True, timeout=patience, check=False
        )

    def python(self, code: str, patience: float = PATIENCE, **environ: str) -> str:
        """What a program with `app` and the tasks at hand prints, in a process of its own."""
        program = f"from {APP} import *\n{code}"
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=REPO, env={**self.environ, **environ}, capture_output=True,
            text=True, timeout=patience, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout.strip()

    def send(self, task: str, *args: Any, **options: Any) -> None:
        """Have a task of the shop's done; sent by this process, as starting another takes a second."""
        self._app.send_task(f"{APP}.{task}", args, **options)

    def hang_up(self) -> None:
        """Close what `send` has opened."""
        self._app.close()
        postroom.celery.close_offices()

    # --- what the tasks wrote ---------------------------------------------------------------

    def lines(self, what: str | None = None, label: str | None = None) -> list[dict[str, Any]]:
        if not self.ledger.exists():
            return []
        text = self.ledger.read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [
            line
            for line in found
            if (what is None or line["what"] == what) and (label is None or line["label"] == label)
        ]

    def labels(self, what: str) -> list[str]:
        return [line["label"] for line in self.lines(what)]

    def until(self, condition: Callable[[], Any], complaint: str = "", patience: float = PATIENCE) -> Any:
        return wait_until(condition, lambda: f"{complaint or 'it did not happen'}; {self.lines()}", patience)


Opener = Callable[..., Shop]
