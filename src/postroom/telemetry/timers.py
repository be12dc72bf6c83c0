"""`timer("webhook.latency")`: how long something of the user's own takes, kept like everything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from postroom.delivery import current_delivery
from postroom.engine import Engine
from postroom.limits import check_name


class HasEngine(Protocol):
    @property
    def engine(self) -> Engine: ...


@contextmanager
def timer(name: str, room: HasEngine | None = None) -> Iterator[None]:
    """Measure the block, or with `@timer(…)` every call of a function, failed or not.

    Inside a handler the room is known; elsewhere pass it. Without either, or with telemetry off, nothing
    is measured.
    """
    check_name(name, "timer")
    began = time.perf_counter()
    try:
        yield
    finally:
        owner = room or current_delivery()
        recorder = getattr(owner.engine, "recorder", None) if owner else None
        if recorder:
            recorder.add(f"timer:{name}", [(time.perf_counter() - began, 1)])
