"""`python -m bench.consumer URL QUEUE`: consume until the standard input ends, then say when.

Prints "ready", and at the end a JSON object: for each id when the waiter last rang and when the
claim had returned, both by the monotonic clock (nanoseconds).
"""

from __future__ import annotations

import json
import sys
import threading
import time

import postroom
from postroom.engine import ClaimRequest
from postroom.model import Settlement
from postroom.room import Room
from postroom.waiter import Waiter


def main(url: str, queue: str) -> None:
    with postroom.open(url) as room, room.waiter([queue]) as waiter:
        threading.Thread(target=_shut_down_at_the_end, args=(room,), daemon=True).start()
        waiter.arm()
        print("ready", flush=True)
        seen = _consume(room, queue, waiter)
    print(json.dumps(seen))


def _shut_down_at_the_end(room: Room) -> None:
    sys.stdin.read()
    room.shutdown()  # rings the waiter


def _consume(room: Room, queue: str, waiter: Waiter) -> dict[str, tuple[int, int]]:
    seen: dict[str, tuple[int, int]] = {}
    request = ClaimRequest(waiter=waiter)
    rang = 0
    while not room.is_shutdown:
        claimed = room.engine.claim(queue, request)
        now = time.perf_counter_ns()
        if claimed.deliveries:
            seen |= {one.message.id: (rang, now) for one in claimed.deliveries}
            room.engine.settle(queue, [Settlement(one.receipt) for one in claimed.deliveries])
        else:
            waiter.wait(claimed.next_wake / 1_000)
            rang = time.perf_counter_ns()
    return seen


if __name__ == "__main__":
    main(*sys.argv[1:])
