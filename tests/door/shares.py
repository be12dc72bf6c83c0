"""What the tests of shares look through: a handler that notes who runs, and one check for all engines."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

from postroom import Delivery, Policy, Share, Worker
from postroom.room import Room
from tests.door.staging import PATIENCE, eventually

#: Whoever hears no ring looks again after a third of this.
SELDOM = Policy(lease="10m")


class Watch:
    """A handler that notes how many of each queue run at once, and may be held up at a gate."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.most: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._gate = gate
        self._lock = threading.Lock()

    def __call__(self, delivery: Delivery) -> None:
        with self._lock:
            self.running[delivery.queue] += 1
            self.most[delivery.queue] = max(self.most[delivery.queue], self.running[delivery.queue])
        if self._gate:
            self._gate.wait(10 * PATIENCE)
        with self._lock:
            self.running[delivery.queue] -= 1
            self.done[delivery.queue] += 1

    def runs(self, count: int) -> bool:
        return self.running["q"] == count


def check_that_rings_go_to_who_has_room(first: Room, second: Room) -> None:
    """The first worker waits for "other" with its share of "q" used up; only the second can take more.

    Two rooms of one store, as in two processes.
    """
    queue = first.queue("q", policy=SELDOM)
    queue.put("first")
    first.queue("other", policy=SELDOM).put("x")
    gate = threading.Event()
    full, idle = Watch(gate), Watch(gate)
    one = Worker(first, {"q": full, "other": full}, concurrency=8, shares={"q": Share(1)}, keeper=False)
    other = Worker(second, {"q": idle}, concurrency=8, keeper=False)
    try:
        with one:
            eventually(lambda: full.running == {"q": 1, "other": 1}, timeout=60)
            with other:
                for count in range(1, 6):
                    queue.put(count)
                    eventually(partial(idle.runs, count), timeout=60)
                assert full.running["q"] == 1
                gate.set()
    finally:
        gate.set()
