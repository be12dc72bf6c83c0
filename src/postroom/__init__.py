"""Postroom: messages that arrive on time, in order of urgency, at least once, never silently lost.

room = postroom.open("sqlite:///jobs.db")
room.queue("emails").put({"to": "ada@example.org"}, priority="high", delay="30s")
postroom.Worker(room, {"emails": handler}, concurrency=4).run()
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from postroom.delivery import Delivery
from postroom.errors import Bury, Later, LeaseLost, PostroomError, QueueFull, RateLimited, Retry
from postroom.policy import Policy
from postroom.room import open

if TYPE_CHECKING:
    from postroom.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Bury",
    "Delivery",
    "Later",
    "LeaseLost",
    "Policy",
    "PostroomError",
    "QueueFull",
    "RateLimited",
    "Retry",
    "Worker",
    "open",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # Loaded when asked for: a program that only puts messages needs no worker.
    if name == "Worker":
        from postroom.worker import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
