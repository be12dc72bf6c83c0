"""The Celery app of the battle, made from its environment: on Postroom, or on kombu's own Redis transport.

BATTLE_BROKER   its URL
BATTLE_LEASE    the lease of its tasks (seconds); the other names are those of `Bench.here`
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready
from kombu import Queue

import postroom.celery  # noqa: F401  (registers postroom+…:// with kombu)
from tests.battle.work import LEASE, QUEUES, Bench

app = Celery("battle", broker=os.environ["BATTLE_BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_queues=[Queue(name) for name in QUEUES],
    task_default_queue=QUEUES[0],
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("BATTLE_LEASE", LEASE)),
        "delivery_limit": 1_000,
    },
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_hijack_root_logger=False,
)
bench = Bench.here()


@worker_ready.connect
def say_ready(**_: Any) -> None:
    bench.note("ready")
    bench.watch()


@app.task(name="work", autoretry_for=(Exception,), max_retries=None, default_retry_delay=1)
def work(label: str, seconds: float) -> None:
    bench.work(label, seconds)
