"""The Celery side of the marketplace: a task for every queue of the matrix.

    postroom celery worker --role fast --app examples.marketplace.tasks:app

Where a task goes, how often it is tried again, after how long, and how long it may take: the matrix says so.
Only `send_webhook` says it itself, and wins.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.exceptions import Reject

import postroom.celery
from examples.marketplace.outside import TICK, Task, Unreachable, meet_fate

app = Celery("marketplace", set_as_current=False)
app.conf.update(
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # For `celery beat -S postroom.celery.beat:Scheduler`, of which there may be several; the matrix has a
    # schedule beside it, which any worker's keeper runs.
    beat_schedule={
        "settle_escrows": {
            "task": "marketplace.on_tick",
            "schedule": float(os.environ.get(TICK, "300")),
            "args": [{"puts": [["heavy_settlements", "settle_escrow"]]}],
        }
    },
)
postroom.celery.setup(app)


def work(task: Any, queue: str, body: dict[str, Any], seconds: float = 0.002) -> None:
    """The work itself, whatever the outside world makes of it."""
    meet_fate(Task(queue, task.request.id, task.request.retries, body), seconds)


# ---- fast -----------------------------------------------------------------------------------------


@app.task(bind=True, name="marketplace.update_metrics")
def update_metrics(self: Any, body: dict[str, Any]) -> None:
    work(self, "fast_default", body)


@app.task(bind=True, name="marketplace.send_webhook", autoretry_for=(Unreachable,), retry_backoff=5,
          retry_backoff_max=300, retry_jitter=True, max_retries=5)  # fmt: skip
def send_webhook(self: Any, body: dict[str, Any]) -> None:
    work(self, "fast_default", body)


@app.task(bind=True, name="marketplace.send_email")
def send_email(self: Any, body: dict[str, Any]) -> None:
    if "template" not in body:
        raise Reject("an email without a template is never going to work", requeue=False)
    work(self, "notifications_email", body)


@app.task(bind=True, name="marketplace.on_chat_event")
def on_chat_event(self: Any, body: dict[str, Any]) -> None:
    work(self, "chat_events", body)


# ---- heavy ----------------------------------------------------------------------------------------


@app.task(bind=True, name="marketplace.settle_escrow")
def settle_escrow(self: Any, body: dict[str, Any]) -> None:
    work(self, "heavy_settlements", body, seconds=0.05)


@app.task(bind=True, name="marketplace.pay_out")
def pay_out(self: Any, body: dict[str, Any]) -> None:
    work(self, "heavy_payouts", body, seconds=0.05)


# ---- media ----------------------------------------------------------------------------------------


@app.task(bind=True, name="marketplace.make_thumbnail")
def make_thumbnail(self: Any, body: dict[str, Any]) -> None:
    work(self, "media_processing", body, seconds=0.02)


# ---- beat -----------------------------------------------------------------------------------------


@app.task(bind=True, name="marketplace.on_tick")
def on_tick(self: Any, body: dict[str, Any]) -> None:
    """Send what this tick is for to its queue; under the tick's own id, so that both are found together."""
    work(self, "beat", body)
    for _, kind in body["puts"]:
        app.tasks[f"marketplace.{kind}"].apply_async([{"fate": "well"}], task_id=self.request.id)
