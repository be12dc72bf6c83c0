"""A worker process that begins a payment and never ends it: for a test to kill.

python idempotent_worker.py URL      says "began" once it is in the middle of the work
"""

from __future__ import annotations

import sys
import threading

import postroom
from postroom import Delivery
from postroom.idempotency import idempotent


@idempotent(lambda delivery: delivery.body, name="pay")
def pay(delivery: Delivery) -> None:
    print("began", flush=True)
    threading.Event().wait(600)


if __name__ == "__main__":
    with postroom.open(sys.argv[1]) as room:
        postroom.Worker(room, {"payouts": pay}).run()
