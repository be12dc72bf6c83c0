"""Postroom: messages that arrive on time, in order of urgency, at least once, never silently lost.

room = postroom.open("sqlite:///jobs.db")
room.queue("emails").put({"to": "ada@example.org"}, priority="high", delay="30s")
postroom.Worker(room, {"emails": handler}, concurrency=4).run()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.delivery import Delivery
from postroom.errors import Bury, InvalidInput, Later, LeaseLost, PostroomError, QueueFull, RateLimited, Retry
from postroom.policy import Policy
from postroom.room import open
from postroom.version import __version__ as __version__

if TYPE_CHECKING:
    from postroom.role import Share
    from postroom.worker import Handlers, Worker

__all__ = [
    "Bury",
    "Delivery",
    "Handlers",
    "InvalidInput",
    "Later",
    "LeaseLost",
    "Policy",
    "PostroomError",
    "QueueFull",
    "RateLimited",
    "Retry",
    "Share",
    "Worker",
    "open",
]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: a program that only puts messages needs no worker.
    if name in ("Handlers", "Worker"):
        from postroom import worker

        return getattr(worker, name)
    if name == "Share":
        from postroom.role import Share

        return Share
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
