"""Those who work in the demo, each a process: `python -m postroom.cli.demo.staff`, with a part on stdin.

What a handler does follows from the message alone, so it does not matter who runs it, or where.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from postroom.cli.demo import wire
from postroom.cli.demo.store import open_room
from postroom.cli.demo.tempo import ATTEMPTS, Tempo
from postroom.delivery import Delivery
from postroom.queue import Queue
from postroom.room import Room
from postroom.worker import Worker

_runs = itertools.count()


def main() -> None:
    part = wire.part()
    if part is None:
        return
    with open_room(part.url) as room:
        wire.send(wire.Ready())
        if not part.take:
            _work(room, part.name, Tempo(part.seconds))
        elif wire.cue():
            _take_and_wait(room.queue("payments"), part.take)


def _without_the_demo(end: Callable[[], None]) -> None:
    """Call `end` once the demo is gone, however it went: nobody works on without it."""

    def listen() -> None:
        # Not through sys.stdin: a thread that holds its lock would keep Python from ending.
        while os.read(0, 1):
            pass
        end()

    threading.Thread(target=listen, daemon=True).start()


# ---- The workers --------------------------------------------------------------------------------------


def _work(room: Room, name: str, tempo: Tempo) -> None:
    """Work until SIGTERM, or until the demo itself is gone."""
    work = {"emails": _send, "payments": _charge, "reports": _print_report}
    handlers = {queue: _reported(handler, tempo) for queue, handler in work.items()}
    worker = Worker(room, handlers, concurrency=2, name=name, stop_timeout="3s")
    _without_the_demo(lambda: worker.stop(wait=False))
    worker.run()


def _reported(handler: Callable[[Any, int, Tempo], None], tempo: Tempo) -> Callable[[Delivery], None]:
    """The handler, with a report before it begins and one before anybody else learns how it ended."""

    def handle(delivery: Delivery) -> None:
        run = next(_runs)
        wire.send(wire.Began(run, delivery.body["job"], delivery.attempt, time.time()))
        try:
            handler(delivery.body, delivery.attempt, tempo)
        except Exception as error:
            retry_in = _retry_in(delivery.attempt, tempo)
            wire.send(wire.Ended(run, time.time(), f"{type(error).__name__}: {error}", retry_in))
            raise
        wire.send(wire.Ended(run, time.time()))

    return handle


def _retry_in(attempt: int, tempo: Tempo) -> float | None:
    return None if attempt + 1 >= ATTEMPTS else tempo.backoff * 2**attempt


def _send(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.01)
    if "@" not in body["to"]:
        raise ValueError(f"{body['to']!r} is not an address")
    if attempt < body["fails"]:
        raise ConnectionError("the mail server is busy")


def _charge(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.02)


def _print_report(body: Any, attempt: int, tempo: Tempo) -> None:
    time.sleep(0.05 * tempo.beat)


# ---- The consumer that is killed ----------------------------------------------------------------------


def _take_and_wait(queue: Queue, count: int) -> None:
    """Claim so many, do one of them, and wait for the end with all of them in hand."""
    _without_the_demo(lambda: os._exit(1))
    asked, held = _claim(queue, count)
    wire.send(wire.Took([delivery.body["job"] for delivery in held], asked))
    first, run = held[0], next(_runs)
    wire.send(wire.Began(run, first.body["job"], first.attempt, time.time()))
    # Charged, but the word that it is done reaches the ledger only, never the engine.
    wire.send(wire.Ended(run, time.time()))
    signal.pause()


def _claim(queue: Queue, count: int) -> tuple[float, list[Delivery]]:
    """As many as wanted from one claim, so that one lease counts for all; fewer are handed back."""
    while True:
        asked = time.time()
        held = queue.claim_many(count, timeout=0.05)
        if len(held) == count:
            return asked, held
        for delivery in held:
            delivery.release()
        time.sleep(0.02)  # for the workers to have them


if __name__ == "__main__":
    main()
