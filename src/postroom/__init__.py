"""Postroom: messages that arrive on time, in order of urgency, at least once, never silently lost.

room = postroom.open("memory://")
room.queue("emails").put({"to": "ada@example.org"}, priority="high", delay="30s")
postroom.Worker(room, {"emails": handler}, concurrency=4).run()
"""

import logging

from postroom.delivery import Delivery
from postroom.errors import Bury, LeaseLost, PostroomError, QueueFull, Retry
from postroom.policy import Policy
from postroom.room import open
from postroom.worker import Worker

__version__ = "0.1.0"

__all__ = ["Bury", "Delivery", "LeaseLost", "Policy", "PostroomError", "QueueFull", "Retry", "Worker", "open"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
