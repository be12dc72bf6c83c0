"""Early acks leave before their tasks run, wherever a task runs in the worker's own process.

Celery notes an early ack when a pool accepts the task and leaves it to the event loop, which a solo worker
comes back to when the task is over. A worker that is killed meanwhile would have it run again. So the ack is
sent from the signal that precedes the task. (A child of prefork has begun by the time its parent knows.)
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from postroom.celery.presence import registered, worker_state
from postroom.errors import PostroomError

_UID = "postroom.celery.early"


#: Tasks of the worker that were looked at. The signal costs every task, so it waits for one that needs it.
_seen: set[str] = set()


def expect(task: str) -> None:
    """A task of this name is about to be handed on: if it is acked early, see to it that it is in time."""
    if task in _seen or (found := registered(task)) is None:
        return
    if not found.acks_late:
        _send_early_acks()
    _seen.add(task)


def _send_early_acks() -> None:
    """From now on, in this process."""
    from celery.signals import task_prerun

    task_prerun.connect(_before_task, weak=False, dispatch_uid=_UID)


def _before_task(task_id: str = "", **kwargs: Any) -> None:
    state = worker_state()
    request = state.requests.get(task_id) if state is not None else None
    if request is None or not request.acknowledged:
        return
    office = getattr(request.message.channel, "office", None)
    if office is not None:
        office.ack_early(request.message.delivery_tag)
        if not office.away:
            with contextlib.suppress(PostroomError):  # kept, and sent when the store is back
                office.flush()


def _forget() -> None:
    """A forked child acks nothing; each of its tasks would pay for the signal."""
    _seen.clear()
    if signals := sys.modules.get("celery.signals"):
        signals.task_prerun.disconnect(dispatch_uid=_UID)


os.register_at_fork(after_in_child=_forget)
