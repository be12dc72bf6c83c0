"""The Celery app of the demo: plain Celery, with the store as its broker."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from postroom.cli.demo.tempo import LEASE, ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the task is called, for those who send it without having it.
TASK = "demo.order"


def is_installed() -> bool:
    return find_spec("celery") is not None


def make_app(url: str) -> Any:
    """The app, on the store behind this URL."""
    from celery import Celery

    import postroom.celery  # noqa: F401  (makes postroom+…:// known to kombu)

    app = Celery("postroom-demo", broker=f"postroom+{url}")
    app.conf.update(
        task_default_queue=ORDERS,
        task_acks_late=True,
        task_ignore_result=True,
        # One at a time, and none held in reserve: only so is the order of urgency exact.
        worker_prefetch_multiplier=1,
        broker_transport_options={"visibility_timeout": LEASE},
        broker_connection_retry_on_startup=True,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def with_task(app: Any, work: Callable[[Any, int, bool], None]) -> Any:
    """The app of a worker, which has the task too."""
    app.task(bind=True, name=TASK)(work)
    return app
