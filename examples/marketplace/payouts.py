"""Payouts, so that each invoice is paid once: invoices that come twice, a provider that goes down, kill -9.

The provider and the guards are those of `examples.payments`: the provider is a process with a ledger of its
own and honours a key; the shop's book and its mark are written in one transaction; a breaker, shared by all
workers, has the queue wait while the provider is down, without an attempt.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import postroom
from examples.marketplace.workers import Workers
from examples.payments import shop
from examples.payments.processes import Provider
from examples.payments.verdict import judge
from postroom.breaker import Breaker
from postroom.room import Room
from postroom.standing import State

QUEUE = "heavy_payouts"
#: How a worker finds the provider, and the shop's database.
PORT, BOOK = "MARKETPLACE_PROVIDER", "MARKETPLACE_BOOK"

Until = Callable[[Callable[[], object], str], None]


# ---- In the worker -----------------------------------------------------------------------------------


@functools.cache
def room() -> Room:
    """The room in which this worker works, for what handlers do there themselves."""
    return postroom.open(declare=False)


@functools.cache
def provider() -> Breaker:
    return shop.breaker(room())


@functools.cache
def _payer() -> Callable[[postroom.Delivery], None]:
    return shop.payer(shop.open_book(os.environ[BOOK]), int(os.environ[PORT]), provider())


def pay(delivery: postroom.Delivery) -> None:
    """Pay an invoice. That the provider is down says nothing about it: it comes later, without an attempt."""
    try:
        _payer()(delivery)
    except shop.ProviderDown as error:
        raise postroom.Later("the provider is down", retry_after=0.5) from error


# ---- In the scenario ---------------------------------------------------------------------------------


class Payouts:
    """The provider, what it has to be paid, and the books."""

    def __init__(self, folder: Path) -> None:
        self._ledger, self._book = f"{folder}/ledger.db", f"sqlite:///{folder}/shop.db"
        self._provider = Provider(self._ledger)
        self._invoices: dict[str, int] = {}
        self.messages = 0

    def open(self) -> AbstractContextManager[None]:
        """The provider's desk."""
        book = shop.open_book(self._book)
        shop.make_book(book)
        book.dispose()
        return self._provider.open()

    @property
    def environ(self) -> dict[str, str]:
        """For the workers, while it is open."""
        return {PORT: str(self._provider.port), BOOK: self._book}

    def ask_for(self, room: Room, count: int) -> None:
        """So many new invoices, most of them more than once: whoever writes them repeats itself."""
        for _ in range(count):
            invoice, amount = f"INV-{len(self._invoices):04}", random.randrange(1, 10_000)
            self._invoices[invoice] = amount
            for _ in range(random.randrange(1, 4)):
                body = {"invoice": invoice, "amount": amount}
                room.queue(QUEUE).put(body, headers={"idempotency-key": invoice})
                self.messages += 1

    def go_down(self, room: Room, until: Until) -> None:
        """The provider is down until the breaker is open; the queue waits, and goes on when it is back."""
        self._provider.go_down()
        self.ask_for(room, 10)
        until(lambda: shop.states(room)[-1:] == [State.OPEN], "the breaker opens")
        self.ask_for(room, 10)
        self._provider.come_up()
        until(lambda: shop.states(room)[-1:] == [State.CLOSED], "the breaker closes")

    def kill(self, room: Room, workers: Workers, kills: int, until: Until) -> None:
        """Kill who pays, at moments of no meaning; the next one goes on."""
        for _ in range(kills):
            self._kill_one(room, workers, until)

    def _kill_one(self, room: Room, workers: Workers, until: Until) -> None:
        before = _claimed(room)
        self.ask_for(room, 20)
        until(lambda: _claimed(room) > before, "somebody pays")
        time.sleep(random.uniform(0, 0.1))
        workers.kill("heavy")

    @property
    def count(self) -> int:
        return len(self._invoices)

    def wrong(self) -> Iterator[str]:
        """What the provider's ledger and the shop's book say that must not be."""
        book = shop.open_book(self._book)
        verdict = judge(self._invoices, self._ledger, book)
        book.dispose()
        for name in ("charged_twice", "charged_never", "paid_twice", "paid_never", "wrong"):
            if found := getattr(verdict, name):
                yield f"invoices {name.replace('_', ' ')}: {found[:10]}"


def _claimed(room: Room) -> int:
    return room.engine.stats(QUEUE).counters["claimed"]
