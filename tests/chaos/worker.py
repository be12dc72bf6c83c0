"""A worker in a process of its own: `python -m tests.chaos.worker URL LEDGER CONCURRENCY`, until SIGTERM."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from postroom import Delivery, Retry, Worker
from postroom.engine import ClaimRequest, Engine
from postroom.errors import EngineBusy, EngineUnavailable
from postroom.model import Outcome, Receipt, Settlement, Turned, Verb
from tests.chaos.ledger import Ledger, Note
from tests.chaos.load import LEASE, QUEUES, work_of
from tests.chaos.outside import opened

#: What takes longer than this may cost a lease (seconds): a heartbeat comes a third of a lease after the one
#: before, and three things that are almost as slow as this may hold it up.
_SLOW = LEASE / 6


class Pulse:
    """Notes when this process, or the store, was so slow that its heartbeats may have come too late."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        threading.Thread(target=self._beat, daemon=True).start()

    @contextlib.contextmanager
    def measured(self) -> Iterator[float]:
        began = time.monotonic()
        try:
            yield began
        finally:
            if time.monotonic() - began > _SLOW:
                self._ledger.note("slow", "-", began)

    def _beat(self) -> None:
        while True:
            with self.measured():
                time.sleep(_SLOW / 10)


class Witness:
    """Stands where the engine stands, and writes down what it answers: who got what, whose ack was taken."""

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self._engine = engine
        self._ledger = ledger
        self._pulse = Pulse(ledger)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> Turned:
        try:
            with self._pulse.measured() as asked:
                turned = self._engine.turn(queue, settlements, starts, request)
        except EngineBusy:  # then it has changed nothing
            raise
        except EngineUnavailable:
            self._ledger.note_all(map(_unheard, settlements))
            raise
        notes = [_settled(*each, asked) for each in zip(settlements, turned.settled, strict=True)]
        notes += (
            ("claimed", leased.message.id, leased.token, leased.deliveries, asked)
            for leased in turned.claimed.deliveries
        )
        notes += (
            ("unstarted", receipt.id, receipt.token)
            for receipt, outcome in zip(starts, turned.started, strict=True)
            if outcome is Outcome.LOST
        )
        if notes:
            self._ledger.note_all(notes)
        return turned

    def renew(self, queue: str, receipts: Sequence[Receipt], lease: int) -> list[Outcome]:
        with self._pulse.measured():
            outcomes = self._engine.renew(queue, receipts, lease)
        answers = zip(receipts, outcomes, strict=True)
        self._ledger.note_all(
            ("lost", receipt.id, receipt.token) for receipt, outcome in answers if outcome is Outcome.LOST
        )
        return outcomes


def _settled(settlement: Settlement, outcome: Outcome, asked: float) -> Note:
    _, id, token = settlement.receipt
    if settlement.verb is Verb.ACK:
        return ("acked", id, token, asked) if outcome is Outcome.OK else ("late", id, token, outcome)
    return _word(settlement), id, token, outcome


def _unheard(settlement: Settlement) -> Note:
    word = "acked" if settlement.verb is Verb.ACK else _word(settlement)
    return "unheard", settlement.receipt.id, settlement.receipt.token, word


def _word(settlement: Settlement) -> str:
    return "returned" if settlement.verb is Verb.RELEASE else "retried"


class Handler:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, delivery: Delivery) -> None:
        about = delivery.id, delivery.receipt.token
        self._ledger.note("begin", *about)
        work = work_of(delivery.body, delivery.id)
        if work is None:
            self._ledger.note("wrong", *about)
            return
        if work.poison:
            self._ledger.note("poison", *about)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(work.seconds)
        while work.until and not os.path.exists(work.until):  # noqa: PTH110 - often
            time.sleep(0.01)
        if work.fails and delivery.attempt == 0:
            self._ledger.note("failed", *about)
            raise Retry
        self._ledger.note("end", *about)


def main(url: str, path: str, concurrency: str) -> None:
    output = logging.StreamHandler()
    output.setFormatter(logging.Formatter("%(asctime)s %(message)s %(error)s", defaults={"error": ""}))
    logging.basicConfig(handlers=[output])
    ledger = Ledger(path)
    with opened(url) as room:
        room.engine = cast(Engine, Witness(room.engine, ledger))
        handler = Handler(ledger)
        worker = Worker(room, dict.fromkeys(QUEUES, handler), concurrency=int(concurrency))
        # `run` has a handler of its own; this one is for the moments before.
        signal.signal(signal.SIGTERM, lambda *_: worker.stop(wait=False))
        ledger.note("ready")
        worker.run()
    ledger.note("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
