"""`python -m bench.scaling.crowd URL QUEUE COUNT LEDGER`: so many consumers of one room, each a thread.

Prints "ready" when all wait; then notes in the ledger what they claim, until it is killed. A call that the
store was too busy for is made again, and noted in a ledger of its own.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import postroom
from bench.race.ledger import Ledger
from postroom.engine import ClaimRequest
from postroom.errors import EngineBusy
from postroom.model import Settlement
from postroom.room import Room

T = TypeVar("T")


def main(url: str, queue: str, count: str, ledger: str) -> None:
    book, refusals = Ledger(Path(ledger)), Ledger(Path(ledger).with_suffix(".busy"))
    ready = threading.Barrier(int(count) + 1)
    with postroom.open(url) as room:
        for _ in range(int(count)):
            threading.Thread(target=_consume, args=(room, queue, book, refusals, ready), daemon=True).start()
        ready.wait()
        print("ready", flush=True)
        threading.Event().wait()


def _consume(room: Room, queue: str, book: Ledger, refusals: Ledger, ready: threading.Barrier) -> None:
    with room.waiter([queue]) as waiter:
        waiter.arm()
        ready.wait()
        request = ClaimRequest(waiter=waiter)
        while True:
            claimed = _patiently(lambda: room.engine.claim(queue, request), refusals)
            for one in claimed.deliveries:
                book.note(json.loads(one.message.body).get("key", 0))
            if acks := [Settlement(one.receipt) for one in claimed.deliveries]:
                _patiently(partial(room.engine.settle, queue, acks), refusals)
            else:
                waiter.wait(claimed.next_wake / 1_000)


def _patiently(call: Callable[[], T], refusals: Ledger) -> T:
    while True:
        try:
            return call()
        except EngineBusy:
            refusals.note(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
