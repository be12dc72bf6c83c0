"""Pay invoices while workers are killed and the provider goes down; then look into the books.

    python -m examples.payments                       30 kills, a minute
    python -m examples.payments --kills 200           the long version
    python -m examples.payments --database postgresql+psycopg://user@host/db

Exits with 1 if an invoice was paid twice or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import postroom
from examples.payments import shop
from examples.payments.processes import Provider, line, started
from examples.payments.verdict import Verdict, judge
from postroom.room import Room
from postroom.standing import State

#: So many wait at least, so that no kill hits a worker that has nothing to do.
_DEPTH = 40
#: What the end may take: leases that run out, cooldowns, a loaded machine (seconds).
_PATIENCE = 120.0


class Report(NamedTuple):
    verdict: Verdict
    kills: int
    seconds: float
    messages: int
    dead: int
    left: int
    #: The states the breaker came into, in order.
    breaker: list[str]

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.dead and not self.left

    def lines(self) -> Iterator[str]:
        """Every figure, as a line."""
        told = self._asdict() | {"verdict": "ok" if self.ok else "WRONG", **self.verdict._asdict()}
        told["breaker"] = f"opened {self.breaker.count(State.OPEN)} times, ended {self.breaker[-1:]}"
        told["seconds"] = f"{self.seconds:.0f}"
        for name, value in told.items():
            yield f"{name.replace('_', ' '):16} {len(value) if isinstance(value, list) else value}"


class Scene:
    """The provider, the workers and the producer of one run."""

    def __init__(self, folder: Path, database: str, workers: int) -> None:
        self._jobs = f"sqlite:///{folder}/jobs.db"
        self._database = database or f"sqlite:///{folder}/shop.db"
        self._ledger = f"{folder}/ledger.db"
        self._provider = Provider(self._ledger)
        self._crew_size = workers
        self._processes = contextlib.ExitStack()
        self._crew: list[subprocess.Popen[str]] = []
        self.invoices: dict[str, int] = {}
        self.messages = 0

    def run(self, kills: int, down: float = 3.0) -> Report:
        """Kill so many workers, with the provider down for so many seconds in the middle."""
        began = time.monotonic()
        book = shop.open_book(self._database)
        shop.make_book(book)
        with self._processes, postroom.open(self._jobs) as room:
            queue = room.queue(shop.QUEUE, policy=shop.POLICY)
            self._processes.enter_context(self._provider.open())
            self._crew = [self._hire() for _ in range(self._crew_size)]
            self._kill_some(room, kills // 2)
            self._outage(room, down)
            self._kill_some(room, kills - kills // 2)
            self._wait_for_the_end(room)
            stats = queue.stats()
            changes = shop.states(room)
            for worker in self._crew:
                worker.terminate()
            for worker in self._crew:
                worker.wait(_PATIENCE)
        verdict = judge(self.invoices, self._ledger, book)
        book.dispose()
        seconds = time.monotonic() - began
        return Report(verdict, kills, seconds, self.messages, stats.dead, stats.depth, changes)

    # --- what happens ---------------------------------------------------------------------------

    def _kill_some(self, room: Room, kills: int) -> None:
        """Kill a worker at a moment of no meaning, and hire another, again and again."""
        for _ in range(kills):
            self._write_invoices(room)
            number = random.randrange(len(self._crew))
            victim = self._crew[number]
            line(victim)  # it has begun to work
            time.sleep(random.uniform(0, 0.3))
            victim.kill()
            victim.wait()
            self._crew[number] = self._hire()

    def _outage(self, room: Room, seconds: float) -> None:
        """The provider is down for a while; until the breaker has opened and closed again."""
        self._write_invoices(room)
        before = len(shop.states(room))  # a provider that was slow may have opened it already
        self._provider.go_down()
        _until(lambda: State.OPEN in shop.states(room)[before:], "the breaker did not open")
        time.sleep(seconds)
        self._provider.come_up()
        _until(lambda: shop.states(room)[-1:] == [State.CLOSED], "the breaker did not close")

    def _write_invoices(self, room: Room) -> None:
        """Keep the queue filled. Half of the invoices come twice or more: their producer repeats itself."""
        queue = room.queue(shop.QUEUE)
        while queue.stats().depth < _DEPTH:
            invoice, amount = f"INV-{len(self.invoices):05}", random.randrange(1, 10_000)
            self.invoices[invoice] = amount
            for _ in range(random.choice((1, 1, 2, 3))):
                body = {"invoice": invoice, "amount": amount}
                queue.put(body, headers={"idempotency-key": invoice})
                self.messages += 1

    def _wait_for_the_end(self, room: Room) -> None:
        def is_over() -> bool:
            stats = room.queue(shop.QUEUE).stats()
            return not (stats.depth or stats.processing)

        _until(is_over, "not everything was worked on")

    # --- processes ------------------------------------------------------------------------------

    def _hire(self) -> subprocess.Popen[str]:
        arguments = (self._jobs, self._database, str(self._provider.port))
        return self._processes.enter_context(started("worker", *arguments))


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{otherwise} within {_PATIENCE:.0f} s")
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.payments", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--kills", type=int, default=30, help="how many workers to kill")
    parser.add_argument("--workers", type=int, default=3, help="how many work at a time")
    parser.add_argument("--database", default="", help="the shop's database; a SQLite file unless given")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="postroom-payments-") as folder:
        report = Scene(Path(folder), asked.database, asked.workers).run(asked.kills)
    for text in report.lines():
        print(text)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
