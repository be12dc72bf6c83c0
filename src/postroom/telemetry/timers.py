"""`timer("webhook.latency")`: how long something of the user's own takes, kept like everything else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from postroom.delivery import in_hand
from postroom.engine import Engine
from postroom.errors import PostroomError
from postroom.limits import check_name


class HasEngine(Protocol):
    @property
    def engine(self) -> Engine: ...


@contextmanager
def timer(name: str, room: HasEngine | None = None) -> Iterator[None]:
    """Measure the block, or with `@timer(…)` every call of a function, failed or not.

    Inside a handler the room is known, and inside a task of an app with `postroom.celery.setup`; elsewhere
    pass it. Without either, or with telemetry off, nothing is measured.
    """
    check_name(name, "timer")
    began = time.perf_counter()
    try:
        yield
    finally:
        span = time.perf_counter() - began
        owner = room or in_hand()
        with contextlib.suppress(PostroomError):  # of a task whose store is away: its work goes on
            recorder = getattr(owner.engine, "recorder", None) if owner else None
            if recorder:
                recorder.add(f"timer:{name}", [(span, 1)])
