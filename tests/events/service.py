"""A service as users have it, for tests: its name, broker and settings come from the environment.

Its handlers write to a ledger what they got and when, and fail as their arguments say.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from postroom.celery.events import events_app

app = events_app(
    os.environ["SERVICE"],
    broker_url=os.environ["SERVICE_BROKER"],
    **{"worker_prefetch_multiplier": 1, **json.loads(os.environ.get("SERVICE_CONFIG", "{}"))},
)


def write(what: str, **said: Any) -> None:
    line = json.dumps({"service": app.service, "what": what, "at": time.time(), **said}) + "\n"
    with Path(os.environ["SERVICE_LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(line)


@app.handler("shop.order.placed", bind=True)
def on_placed(self: Any, number: int, fail_in: str = "", times: int = 1_000) -> None:
    """Fails in these services, so many times."""
    request = self.request
    write("placed", number=number, retries=request.retries, id=request.event_id, trace=request.traceparent)
    if app.service in fail_in.split() and request.retries < times:
        raise ValueError(f"order {number} fails")


@app.handler("shop.order.late", bind=True)
def on_late(self: Any, countdown: float, *, eta: bool = False) -> None:
    request = self.request
    rungs = sorted(death["queue"].rpartition(".")[2] for death in request.get("x-death") or ())
    write("late", id=request.event_id, retries=request.retries, rungs=rungs)
    if request.retries:
        return
    if eta:
        raise self.retry(eta=datetime.now(UTC) + timedelta(seconds=countdown))
    raise self.retry(countdown=countdown)


@app.handler("shop.order.deadly", bind=True, max_retries=1)
def on_deadly(self: Any, way: str) -> None:
    """Takes its process with it, or is rejected."""
    from celery.exceptions import Reject

    write("deadly", id=self.request.event_id, retries=self.request.retries)
    if way == "exit":
        os._exit(1)
    raise Reject("as asked", requeue=True)


@app.handler("shop.order.slow", bind=True, soft_time_limit=1, time_limit=3)
def on_slow(self: Any, way: str) -> None:
    """Runs into its time limit the first time: into the soft one, or the hard one."""
    from celery.exceptions import SoftTimeLimitExceeded

    write("slow", way=way, retries=self.request.retries)
    if self.request.retries:
        return
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        if way == "soft":
            raise
        time.sleep(60)


@app.handler("shop.order.held", bind=True, max_retries=2)
def on_held(self: Any, number: int) -> None:
    """Takes until somebody makes the file of that name."""
    write("held", number=number, retries=self.request.retries)
    released = Path(os.environ["SERVICE_LEDGER"]).parent / f"released-{number}"
    end = time.monotonic() + 120
    while not released.exists() and time.monotonic() < end:
        time.sleep(0.02)
    write("released", number=number, retries=self.request.retries)


@app.task(name="plain")
def plain(number: int) -> None:
    """No event: a task as any other app has it."""
    write("plain", number=number)


@app.handler("shop.stock.*", group="stock", bind=True)
def count_stock(self: Any, item: str) -> None:
    write("count", item=item, event=self.request.event)


@app.handler("shop.stock.low", group="stock", bind=True, retry_backoff_max=1)
def order_more(self: Any, item: str) -> None:
    write("order_more", item=item, retries=self.request.retries)
    if self.request.retries < 2:
        raise ValueError("the supplier sleeps")


@app.handler("shop.stock.broken", group="stock", max_retries=1)
def mend(item: str) -> None:
    raise ValueError(f"{item} is broken")


@app.handler("shop.stock.cursed", group="stock", autoretry_for=(), max_retries=1)
def lift_curse(item: str) -> None:
    raise ValueError(f"{item} is cursed")


@app.handler("shop.stock.stuck", group="stock", time_limit=1, max_retries=0)
def pull_out(item: str) -> None:
    time.sleep(60)
