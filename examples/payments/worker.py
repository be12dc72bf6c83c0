"""A worker of the shop. Killing it at any moment must not pay an invoice twice, nor lose it."""

from __future__ import annotations

import sys

import postroom
from examples.payments import shop
from examples.payments.lifeline import end_with_parent


def main(jobs: str, database: str, port: str) -> None:
    end_with_parent()
    with postroom.open(jobs) as room:
        guard = shop.breaker(room)
        pay = shop.payer(shop.open_book(database), int(port), guard)
        worker = postroom.Worker(room, {shop.QUEUE: pay}, concurrency=2, breakers={shop.QUEUE: guard})
        print("ready", flush=True)
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
