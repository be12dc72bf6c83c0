"""Mailing: writes a letter for every paid invoice, and says that it was sent.

Invoice 2 meets a mail server that is away for a moment: it is retried. Invoice 4 fails until somebody repairs
the server, which is a file here: it goes to the archive.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from postroom.celery.events import events_app

app = events_app("mailing", broker_url=os.environ["BROKER"])
REPAIRED = Path(os.environ["REPAIRED"])


@app.event("mailing.letter.sent")
def letter_sent(number: int) -> None:
    """Whoever wants to know may handle it."""


@app.handler("billing.invoice.paid", bind=True, max_retries=1)
def write_letter(self: Any, number: int, address: str) -> None:
    if number == 2 and not self.request.retries:
        raise ConnectionError("the mail server is away for a moment")
    if number == 4 and not REPAIRED.exists():
        raise ConnectionError("the mail server knows no such host")
    print(f"mailing: a letter for invoice {number} to {address}", flush=True)
    letter_sent(number)
