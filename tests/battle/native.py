"""A native worker in a process of its own: `python -m tests.battle.native URL HANDS`, until SIGTERM."""

from __future__ import annotations

import signal
import sys
import time

import postroom
from postroom import Delivery, Worker
from postroom.errors import EngineUnavailable
from postroom.room import Room
from tests.battle.work import QUEUES, Bench


def opened(url: str) -> Room:
    """As whoever looks after a worker does it: start it again until the store is there."""
    while True:
        try:
            return postroom.open(url)
        except EngineUnavailable:
            time.sleep(0.2)


def main(url: str, hands: str) -> None:
    bench = Bench.here()

    def handle(delivery: Delivery) -> None:
        bench.work(*delivery.body)

    with opened(url) as room:
        worker = Worker(room, dict.fromkeys(QUEUES, handle), concurrency=int(hands))
        # `run` has a handler of its own; this one is for the moments before.
        signal.signal(signal.SIGTERM, lambda *_: worker.stop(wait=False))
        bench.note("ready")
        bench.watch()
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
