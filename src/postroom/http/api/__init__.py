"""The routes under `/api/v1`, one module a noun; `ROUTES` is all of them.

Every route says with `opt={"action": "queue.purge"}` what it does, as noun.verb: who may do what hangs on it.
"""

from __future__ import annotations

from postroom.http.api import (
    breakers,
    dead,
    deliveries,
    jobs,
    marks,
    messages,
    queues,
    room,
    schedules,
    services,
    topics,
    transfer,
    workers,
)

NOUNS = (
    queues, messages, deliveries, dead, transfer, jobs, breakers, schedules, topics, services, workers,
    marks, room,
)  # fmt: skip
ROUTES = [route for noun in NOUNS for route in noun.ROUTES]
