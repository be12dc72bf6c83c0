"""Billing: says that an invoice was paid, and ticks off those whose letter was sent."""

from __future__ import annotations

import os

from postroom.celery.events import events_app

app = events_app("billing", broker_url=os.environ["BROKER"])


@app.event("billing.invoice.paid")
def invoice_paid(number: int, address: str) -> None:
    if "@" not in address:
        raise ValueError(f"{address!r} is no address")


@app.handler("mailing.letter.sent")
def tick_off(number: int) -> None:
    print(f"billing: invoice {number} is ticked off", flush=True)
