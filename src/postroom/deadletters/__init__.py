"""Dead letters: look at them, group them, note what is known about them, replay, discard, keep them in files.

    dead = DeadLetters(room, "dlq_fast")            a name for the dead letters of several queues
    dead.groups()                                   what failed alike, how often, since when
    dead.find(Filter(error="timed out", older="2h"))
    dead.note(group, status="acknowledged", bucket="transient", cause="the mail server was down")
    dead.replay(Filter(group=group), canary=True, rate="50/s")

`letter` says what a dead letter is, `filter` and `finding` which ones are meant, `groups` and `incidents`
what they have in common and what is known of it, `bulk`, `replay` and `canary` what is done with them,
`origin` which letter a replay comes from, `transfer` how they are kept in files, `arrival` how a message that
is gone becomes one; `view` is the door to all of it.
"""

from __future__ import annotations

from postroom.call import Call, call_of, celery_headers
from postroom.deadletters.arrival import keep
from postroom.deadletters.bulk import Cancelled, Place, Progress, Refusal, Result
from postroom.deadletters.filter import Filter
from postroom.deadletters.finding import Found
from postroom.deadletters.groups import Groups, GroupView
from postroom.deadletters.incidents import Bucket, Incident, Status
from postroom.deadletters.letter import Classification, DeadLetter, classify
from postroom.deadletters.origin import origin
from postroom.deadletters.transfer import Imported
from postroom.deadletters.view import DeadLetters

__all__ = [
    "Bucket", "Call", "Cancelled", "Classification", "DeadLetter", "DeadLetters", "Filter", "Found",
    "GroupView", "Groups", "Imported", "Incident", "Place", "Progress", "Refusal", "Result", "Status",
    "call_of", "celery_headers", "classify", "keep", "origin",
]  # fmt: skip
