"""`python -m bench.scaling.crowd URL QUEUE COUNT LEDGER`: so many consumers, each with a room and a thread.

Prints "ready" when all wait; then notes in the ledger what they claim, until it is killed.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import postroom
from bench.race.ledger import Ledger
from postroom.engine import ClaimRequest
from postroom.model import Settlement


def main(url: str, queue: str, count: str, ledger: str) -> None:
    book = Ledger(Path(ledger))
    ready = threading.Barrier(int(count) + 1)
    for _ in range(int(count)):
        threading.Thread(target=_consume, args=(url, queue, book, ready), daemon=True).start()
    ready.wait()
    print("ready", flush=True)
    threading.Event().wait()


def _consume(url: str, queue: str, book: Ledger, ready: threading.Barrier) -> None:
    with postroom.open(url) as room, room.waiter([queue]) as waiter:
        waiter.arm()
        ready.wait()
        request = ClaimRequest(waiter=waiter)
        while True:
            claimed = room.engine.claim(queue, request)
            for one in claimed.deliveries:
                book.note(json.loads(one.message.body).get("key", 0))
            if claimed.deliveries:
                room.engine.settle(queue, [Settlement(one.receipt) for one in claimed.deliveries])
            else:
                waiter.wait(claimed.next_wake / 1_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
