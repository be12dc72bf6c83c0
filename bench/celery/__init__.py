"""Celery on Postroom beside Celery on kombu's own Redis transport, with late acks and the same settings."""

from __future__ import annotations

from bench.measure import Case
from bench.stage import Stage


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":
        return []
    from bench.celery import delay, drain, first, publish  # here and not above: Celery takes its time

    return [*drain.cases(stage), *publish.cases(stage), *delay.cases(stage), *first.cases(stage)]
