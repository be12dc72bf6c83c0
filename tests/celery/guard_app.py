"""A Celery app whose tasks are guarded, for real workers: as `shop`, and with SHOP_MATRIX."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

import postroom
import postroom.celery
from postroom import telemetry
from postroom.breaker import Breaker
from postroom.delivery import in_hand
from postroom.errors import Bury, Later, Retry
from postroom.idempotency import idempotent
from tests.celery.shop import write

app = Celery("guards", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND") or None)
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)

#: Shared with the worker by the store, as a pool of processes needs it, or the worker's own.
shared = os.environ.get("SHOP_SHARED") == "yes"
room = postroom.open(os.environ["SHOP_BROKER"].removeprefix("postroom+"), declare=False) if shared else None
psp = Breaker("psp", threshold=3, cooldown="1s", room=room)
postroom.celery.setup(app, os.environ["SHOP_MATRIX"], breakers={"charge": psp})


def wait_for(path: str) -> None:
    """Until somebody makes this file; a test that never does must not leave a task behind."""
    end = time.monotonic() + 200  # longer than any test waits
    while path and not Path(path).exists():
        assert time.monotonic() < end, f"nobody made {path}"
        time.sleep(0.01)


@app.task(name="pay.invoice", shared=False)
@idempotent(key=lambda invoice, gate="": invoice)
def pay(invoice: str, gate: str = "") -> dict[str, Any]:
    """Pays when the gate is there; says who has paid."""
    work = in_hand()
    assert work is not None
    write("pay", invoice, key=work.idempotency_key, deliveries=work.deliveries)
    wait_for(gate)
    write("paid", invoice)
    return {"paid": invoice, "by": work.idempotency_key}


@app.task(name="pay.early", shared=False, acks_late=False)
@idempotent(key=lambda invoice, gate="": invoice)
def early(invoice: str, gate: str = "") -> str:
    write("pay", invoice)
    wait_for(gate)
    write("paid", invoice)
    return invoice


@app.task(name="every.one", shared=False)
def plain(label: str) -> str:
    """Nothing is said about idempotency."""
    write("plain", label)
    return label


@app.task(name="every.timed", shared=False)
@telemetry.timer("webhook.latency")
def timed(label: str) -> None:
    write("timed", label)


@app.task(bind=True, name="pay.verdict", shared=False)
def verdict(self: Any, what: str) -> None:
    """Raises what a handler of the Python door may raise, each time it runs but the third."""
    write(what, self.request.get("x-delivery-count"), retries=self.request.retries)
    if self.request.get("x-delivery-count") == 2:
        return
    match what:
        case "later":
            raise Later("not now", retry_after=0.01)
        case "retry":
            raise Retry(after="10ms") from ValueError("half of it is missing")
        case _:
            raise Bury("no such customer")


@app.task(name="charge.card", shared=False)
def charge(invoice: str, up: str) -> None:
    """Works while the provider is up, which a file says."""
    with psp:
        write("call", invoice)
        if not Path(up).exists():
            raise ConnectionError("no route to the provider")
    write("charged", invoice)
