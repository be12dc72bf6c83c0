"""A Celery app with a queue matrix, for real workers: as `shop`, and with SHOP_MATRIX."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

from celery import Celery
from celery.exceptions import Reject

import postroom.celery
from tests.celery.shop import write

app = Celery("matrix", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND") or None)
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
app.conf.update(json.loads(os.environ.get("SHOP_CONFIG", "{}")))
postroom.celery.setup(app, os.environ["SHOP_MATRIX"])


@app.task(bind=True, name="work.fail")
def fail(self: Any, label: str, times: int = 99) -> str:
    """Fails so many times; nothing is said about retries."""
    write("try", label, retries=self.request.retries)
    if self.request.retries < times:
        raise ValueError(f"order {label} has no customer")
    write("done", label)
    return label


@app.task(bind=True, name="work.stubborn", max_retries=4)
def stubborn(self: Any, label: str) -> None:
    """Wants more retries than its queue allows a message."""
    write("try", label, retries=self.request.retries)
    raise ValueError("never")


@app.task(bind=True, name="work.asks")
def asks(self: Any, label: str) -> None:
    """Asks for its retries itself, and leaves how often and how soon to the matrix."""
    write("try", label, retries=self.request.retries)
    try:
        raise KeyError(label)
    except KeyError as error:
        raise self.retry(exc=error) from error


@app.task(bind=True, name="work.early", acks_late=False)
def early(self: Any, label: str, *, amount: int) -> None:
    write("try", label, retries=self.request.retries)
    raise OSError("the printer is on fire")


@app.task(name="work.refuse")
def refuse(label: str) -> None:
    write("try", label)
    raise Reject("no template", requeue=False)


@app.task(name="work.die")
def die(label: str) -> None:
    write("try", label)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="brief.sleep")
def sleep(label: str, seconds: float) -> None:
    write("try", label)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # Deaf to what a soft limit says: only the hard one stops it.
        with contextlib.suppress(Exception):
            time.sleep(0.05)


@app.task(name="few.hold")
def hold(label: str, path: str) -> None:
    """Work that takes until a file is there."""
    write("begin", label)
    while not os.path.exists(path):  # noqa: PTH110  (a task, kept as plain as those of users)
        time.sleep(0.01)
    write("end", label)


@app.task(name="few.early", acks_late=False)
def hold_early(label: str, path: str) -> None:
    hold(label, path)


@app.task(name="beside.note")
def note(label: str) -> None:
    write("note", label)
