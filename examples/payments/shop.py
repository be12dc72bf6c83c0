"""The shop: how an invoice is paid, so that it is paid once.

Three guards, each against something else. The breaker spares a provider that is down, and the attempts of
the messages. The provider's key makes a repeated charge the same charge. The SQL guard keeps the shop's
own book right: the payment and its mark are written in one transaction.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, create_engine, insert

from postroom import Delivery, Policy, sqlguard
from postroom.breaker import TOPIC, Breaker
from postroom.room import Room

QUEUE = "payments"
#: Kills are many here, and each may cost a message an attempt; leases are short to have it back soon.
POLICY = Policy(lease="2s", ack_timeout="20s", max_attempts=50, backoff="100ms")

book = MetaData()
#: Nothing in this table stops a second row for an invoice: that is the guard's work.
payments = Table(
    "payments", book, Column("invoice", Text), Column("amount", Integer), Column("charge", Integer)
)


class ProviderDown(Exception):
    """The provider cannot charge at present."""


def open_book(url: str) -> Engine:
    """The shop's database. Who waits for a row or a file waits for a bounded time."""
    limit = {"timeout": 15} if url.startswith("sqlite") else {"options": "-c lock_timeout=15s"}
    return create_engine(url, connect_args=limit)


def make_book(engine: Engine) -> None:
    with engine.begin() as connection:
        sqlguard.processing_log.metadata.create_all(connection)
        book.create_all(connection)


def breaker(room: Room) -> Breaker:
    """One for all workers: the first to notice spares the others."""
    return Breaker("provider", threshold=3, window="10s", cooldown="500ms", room=room)


def states(room: Room) -> list[str]:
    """The states that the breaker came into, in order."""
    told = room.engine.read(TOPIC, after="", limit=1_000).entries
    return [json.loads(entry.data)["after"] for entry in told]


def payer(engine: Engine, port: int, guard: Breaker) -> Callable[[Delivery], None]:
    """The handler."""

    def pay(delivery: Delivery) -> None:
        invoice, amount = delivery.body["invoice"], delivery.body["amount"]
        with engine.begin() as connection:
            entry = sqlguard.enter(connection, "pay", invoice)
            if entry.done:
                return
            with guard:
                number = charge(port, delivery.idempotency_key, invoice, amount)
            connection.execute(insert(payments).values(invoice=invoice, amount=amount, charge=number))
            entry.finish({"charge": number})

    return pay


def charge(port: int, key: str, invoice: str, amount: int) -> int:
    """Have the provider take the money; once for a key, however often it is asked."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        client.request(
            "POST", "/charge", json.dumps({"invoice": invoice, "amount": amount}), {"Idempotency-Key": key}
        )
        answer = client.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderDown(str(error)) from error
    finally:
        client.close()
    if answer.status != 200:
        raise ProviderDown(body.get("error", f"answered {answer.status}"))
    return int(body["charge"])
