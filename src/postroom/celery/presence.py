"""Whether this process is a Celery worker, and what that worker is doing.

Celery tells nobody when a task begins, but keeps books: `celery.worker.state`. They are read here and nowhere
else. Having the module loaded makes no worker: a web process may have it, too.

When a connection is lost, Celery strikes from its books what has not begun. A prefork worker has then
forgotten it; but the queue of a thread pool, or of greenlets, still has it, and it will run. So such messages
are kept in sight (`keep_in_sight`): whoever still means to work on one has it in its hands.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

_joined: list[bool] = []
#: Messages of lost connections, by delivery tag, as long as anybody has them.
_in_sight: dict[str, weakref.ref[Any]] = {}


def note_worker() -> None:
    """An event loop was joined: only a worker has one."""
    _joined[:] = [True]


def worker_state() -> Any:
    """The books of the Celery worker in this process; None without one."""
    # A worker without an event loop (gevent) is told by what it prepares for its tasks.
    if _joined or _prepared():
        return sys.modules.get("celery.worker.state")
    return None


def registered(task: str) -> Any:
    """The task that the worker of this process has under this name; None without one."""
    prepared = _prepared()
    return prepared[0].get(task) if prepared else None


def _prepared() -> Any:
    """What a worker prepares for its tasks, its registry first; nothing where there is no worker."""
    return getattr(sys.modules.get("celery.app.trace"), "_localized", None)


def begun_tags() -> set[str]:
    """The deliveries whose tasks this worker has begun."""
    state = worker_state()
    return set() if state is None else _tags(state.active_requests)


def busy() -> int:
    """How many tasks this worker works on."""
    state = worker_state()
    return 0 if state is None else len(state.active_requests)


def is_stopping() -> bool:
    """Whether this worker was told to stop."""
    state = worker_state()
    return state is not None and (state.should_stop is not None or state.should_terminate is not None)


def stop_softly() -> None:
    """Have this worker stop as soon as its loop looks: it ends what it works on."""
    state = worker_state()
    if state is not None:
        state.should_stop = 0


def keep_in_sight(messages: Mapping[str, Any]) -> None:
    """The connection of these is lost: from now on `known_tags` has each of them while somebody holds it."""
    for tag, message in messages.items():
        _in_sight[tag] = weakref.ref(message, partial(_out_of_sight, tag))


def _out_of_sight(tag: str, _: weakref.ref[Any]) -> None:
    _in_sight.pop(tag, None)


def known_tags() -> set[str]:
    """The deliveries that this worker knows of at all: whatever it began, reserved, put off or will begin."""
    state = worker_state()
    if state is None:
        return set()
    tags = _tags(state.active_requests) | _tags(state.reserved_requests) | _tags(state.requests.values())
    return tags | _tags(getattr(state, "scheduled_requests", ())) | set(_in_sight)


def _tags(requests: Any) -> set[str]:
    for _ in range(10):
        try:
            return {request.message.delivery_tag for request in requests}
        except RuntimeError:  # changed by another thread meanwhile
            continue
    return set()
