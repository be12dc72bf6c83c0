"""Who works in a leg: native workers, or Celery's with one of its pools; as processes that can be hurt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.battle.verdict import Fault
from tests.battle.work import SLOW
from tests.chaos.ledger import Ledger
from tests.events.stage import QUIET
from tests.redis.servers import DIES_WITH_US

REPO = Path(__file__).parents[2]
#: How long to wait for anything on a machine that is busy with something else (seconds).
PATIENCE = 120.0
#: How long a worker may take to stop before it is killed, where that is what is tried (seconds).
_GRACE = 1.0


class Member:
    """One process with its pool. It is a session of its own: a pool's children end with it."""

    def __init__(
        self, name: str, command: list[str], folder: Path, environ: Mapping[str, str], service: str = ""
    ) -> None:
        self.name = name
        self.service = service
        self._command = command
        self._folder = folder
        self._log = folder / f"{name}.log"
        told = {"BATTLE_FOLDER": str(folder), "BATTLE_NAME": name, "PYTHONWARNINGS": "ignore"}
        # Also `src`: the interpreter may be that of another venv, with another Celery.
        path = os.pathsep.join([str(REPO / "src"), str(REPO)])
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*DIES_WITH_US, *command], cwd=REPO,
                env={**os.environ, **environ, **told, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def is_ready(self) -> bool:
        """Whether it has opened the store: who is killed before proves nothing."""
        assert self.process.poll() is None, f"{self.name} ended by itself:\n{self.log()[-4_000:]}"
        ledgers = self._folder.glob(f"{self.name}-*.ledger")
        return any(b" ready\n" in ledger.read_bytes()[:4_000] for ledger in ledgers)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def await_ready(self) -> None:
        wait_until(lambda: self.is_ready, f"{self.name} is not ready")

    # --- how it can end ---------------------------------------------------------------------

    def hard(self) -> Fault:
        """As by kill -9, with the whole pool."""
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if (since := self._silent_since()) is not None:
            Ledger(self._folder / f"{self.name}-end.ledger").note("slow", "-", since)
        self.end()
        return Fault("hard", began, time.monotonic(), self.name)

    def cold(self) -> Fault:
        """It is told to stop at once, and leaves by itself: SIGQUIT for Celery, twice SIGTERM for ours."""
        began = time.monotonic()
        if self.is_native:
            self.process.terminate()
            time.sleep(0.05)
            self.process.terminate()
        else:
            self.process.send_signal(signal.SIGQUIT)
        self._await_end()
        return Fault("cold", began, time.monotonic(), self.name)

    def warm(self) -> Fault:
        """It is asked to stop, and given the time that it needs."""
        began = time.monotonic()
        self.process.terminate()
        self.see_off()
        return Fault("warm", began, time.monotonic(), self.name, self._pool)

    def see_off(self) -> None:
        """Wait for one that was asked to stop; it must end well."""
        code = self._await_end()
        assert code == 0, f"{self.name} ended with {code}:\n{self.log()[-4_000:]}"

    def grace(self) -> Fault:
        """It is asked to stop, and killed when it takes too long.

        All that time is the fault: a prefork parent that stops looks at a child's results every half second,
        so what ended meanwhile may be unsaid when it is killed (`_flush_outqueue` of its asynpool).
        """
        began = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return self.hard()._replace(kind="grace", began=began)
        self.end()
        return Fault("warm", began, time.monotonic(), self.name, self._pool)

    def end(self) -> None:
        """Whatever it is doing: it is no more when this returns, and nobody of its pool."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _silent_since(self) -> float | None:
        """When it had time for the last time, if that is too long ago: asked when it is ended."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            last = float((self._folder / f"{self.name}.beat").read_text())
            return last if time.monotonic() - last > SLOW else None
        return None

    @property
    def is_native(self) -> bool:
        return "tests.battle.native" in self._command

    @property
    def _pool(self) -> str:
        return next((pool for pool in ("prefork", "threads") if pool in self._command), "")

    def _await_end(self) -> int:
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not stop: {self.log()[-2_000:]}") from None
        self.end()
        return code


Blow = Callable[[Member], Fault]
BLOWS: dict[str, Blow] = {
    "hard": Member.hard,
    "cold": Member.cold,
    "warm": Member.warm,
    "grace": Member.grace,
}


def worker_command(crew: str, url: str, name: str) -> list[str]:
    if crew == "native":
        return [sys.executable, "-m", "tests.battle.native", url, "8"]
    app, *options = ("tests.battle.service", *QUIET) if _is_amqp(url) else ("tests.battle.app",)
    celery = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", "WARNING", *options]
    return [*celery, "-n", f"{name}@battle", "--pool", crew, "--concurrency", "4"]


def producer_command(crew: str, url: str, seed: int, rate: float, longest: float, most: int = 0) -> list[str]:
    door = "native" if crew == "native" else "events" if _is_amqp(url) else "celery"
    told = (door, url, str(seed), f"{rate:g}", f"{longest:g}", str(most))
    return [sys.executable, "-m", "tests.battle.producer", *told]


def _is_amqp(url: str) -> bool:
    return url.startswith("amqp:")


def wait_until(condition: Callable[[], object], complaint: str, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, complaint
        time.sleep(0.02)
