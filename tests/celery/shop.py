"""The Celery app of these tests, made from its environment; what its tasks do they write into a file.

SHOP_BROKER, SHOP_BACKEND   URLs
SHOP_CONFIG                 further settings, as JSON
SHOP_LEDGER                 where the tasks write: one line of JSON each time
SHOP_BEATS                  if set, also each heartbeat of a worker, before it is sent
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from celery import Celery
from celery.signals import heartbeat_sent
from kombu import Exchange, Queue
from kombu.common import Broadcast

import postroom.celery  # noqa: F401  (registers postroom+…:// with kombu)

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND") or None)
app.conf.update(
    task_acks_late=True,
    task_default_queue="shop",
    task_queues=[
        Queue("shop", Exchange("shop"), routing_key="shop"),
        Queue("second", Exchange("second"), routing_key="second"),
        Broadcast("news"),
    ],
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    result_expires=600,
    result_chord_retry_interval=0.2,
)
app.conf.update(json.loads(os.environ.get("SHOP_CONFIG", "{}")))


def write(what: str, label: Any, **more: Any) -> None:
    """One line, in one piece: O_APPEND keeps the lines of several processes apart."""
    who = {"pid": os.getpid(), "group": os.getpgrp()}  # the group is its worker, whatever the pool
    line = json.dumps({"what": what, "label": label, "at": time.time(), **who, **more})
    file = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


if os.environ.get("SHOP_BEATS"):
    heartbeat_sent.connect(lambda **_: write("beat", ""), weak=False)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(bind=True)
def note(self: Any, label: str) -> str:
    info = self.request.delivery_info
    write("note", label, redelivered=info.get("redelivered"), count=self.request.get("x-delivery-count"))
    return label


@app.task
def bomb() -> None:
    """A task that takes its worker with it, when that has had the time to say that it began."""
    write("bomb", "")
    time.sleep(2)
    os.killpg(os.getpgrp(), signal.SIGKILL)


@app.task
def grenade() -> None:
    """A task that takes the process with it that it runs in: of a prefork worker, one child."""
    write("grenade", "")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def nap(seconds: float, label: str) -> str:
    write("begin", label)
    time.sleep(seconds)
    write("end", label)
    return label


@app.task
def until(path: str, label: str) -> str:
    """Work that takes until a file is there."""
    write("begin", label)
    while not os.path.exists(path):  # noqa: PTH110  (a task, kept as plain as those of users)
        time.sleep(0.01)
    write("end", label)
    return label


@app.task
def spin(seconds: float, label: str) -> str:
    """Work that never lets go of the interpreter by itself."""
    write("begin", label)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    write("end", label)
    return label


@app.task(bind=True, max_retries=3)
def flaky(self: Any, label: str, failures: int, countdown: float = 0.1) -> int:
    write("try", label, retries=self.request.retries)
    if self.request.retries < failures:
        raise self.retry(countdown=countdown)
    return int(self.request.retries)


@app.task(bind=True)
def again(self: Any, path: str, label: str) -> None:
    """Work that sends its retry, and then takes until a file is there."""
    write("try", label, retries=self.request.retries)
    if self.request.retries:
        return
    self.retry(throw=False, countdown=0)
    write("sent", label)
    while not os.path.exists(path):  # noqa: PTH110  (as above)
        time.sleep(0.01)


@app.task(acks_late=False)
def early(label: str, seconds: float = 0.0) -> None:
    write("begin", label)
    time.sleep(seconds)
    write("end", label)


@app.task(bind=True)
def refuse(self: Any, label: str, requeue: bool) -> None:
    from celery.exceptions import Reject

    write("refuse", label)
    raise Reject("not this one", requeue=requeue)


@app.task(bind=True)
def tick(self: Any, label: str) -> None:
    """What a beat sends: says for which slot."""
    write("tick", label, slot=self.request.get("slot"), id=self.request.id)
