"""A small Celery app on Postroom. What is special about it are the two lines that are marked."""

from __future__ import annotations

import os
import signal
import time

from celery import Celery

import postroom.celery  # noqa: F401  (1: it makes postroom+…:// known to kombu)

# 2: a file, so no server is needed; SHOP_BROKER=postroom+redis://localhost:6379/0 for a Redis.
app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "postroom+sqlite:///shop.db"))

app.conf.update(
    task_acks_late=True,  # a task whose worker died runs again
    worker_prefetch_multiplier=1,  # a worker takes one task at a time: so the order is exact
    broker_transport_options={"visibility_timeout": 5},  # so long a worker may be silent (seconds)
    broker_connection_retry_on_startup=True,
    worker_redirect_stdouts=False,
    task_ignore_result=True,
)


@app.task
def pack(parcel: str) -> None:
    print(f"packed: {parcel}", flush=True)


@app.task
def remind(customer: str, ordered_at: float) -> None:
    print(f"reminded: {customer}, {time.time() - ordered_at:.1f} s after the order", flush=True)


@app.task(bind=True)
def export(self: object, what: str) -> None:
    """The first worker that works on it dies as by kill -9, or by the kernel when memory is short."""
    info = self.request.delivery_info  # type: ignore[attr-defined]  # Celery's, and untyped
    if not info["redelivered"]:
        print(f"exporting: {what}, and out of memory", flush=True)
        time.sleep(1)  # memory fills up slowly: what was done before is told by then
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"exported: {what}, after a worker died of it", flush=True)
