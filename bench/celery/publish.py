"""What a publisher is held up by an `apply_async`, and what a waiting task takes in the memory of Redis."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.celery.app import OURS, STOCK, opened
from bench.measure import Case, rate
from bench.server import Books
from bench.stage import BODY, Stage
from postroom.celery import publish_group

#: How often they take turns at publishing in a trial.
_SLICES = 6


def cases(stage: Stage) -> list[Case]:
    return [_publishes(stage), _memory(stage)]


def _publishes(stage: Stage) -> Case:
    name = "Celery apply_async, one by one"
    figures = (
        stage.figure(f"{name}: {OURS}", "/s"),
        stage.figure(f"{name}: {STOCK}", "/s"),
        stage.figure(f"{name}: {OURS} ÷ {STOCK}", "×"),
    )

    def trial() -> list[float]:
        with stage.url() as url, ExitStack() as stack:
            apps = {whose: stack.enter_context(opened(whose, url)) for whose in (OURS, STOCK)}
            rates = _rates(apps, stage.size(300, 50))
        ours, stock = rates[OURS], rates[STOCK]
        return [ours, stock, ours / stock]

    return Case(name, figures, trial)


def _rates(apps: dict[str, Any], count: int) -> dict[str, float]:
    """Who begins changes with every slice; the first warms up and is not counted."""
    order = list(apps.items())
    rates: dict[str, list[float]] = {whose: [] for whose in apps}
    for _ in range(1 + _SLICES):
        order.append(order.pop(0))
        for whose, app in order:
            rates[whose].append(rate(count, partial(_publish, app, count)))
    return {whose: statistics.median(speeds[1:]) for whose, speeds in rates.items()}


def _publish(app: Any, count: int) -> None:
    task = app.tasks["bench.noop"]
    for _ in range(count):
        task.delay(BODY)


def _memory(stage: Stage) -> Case:
    name = "Celery: Redis memory for a waiting task"
    figures = (
        stage.figure(f"{name}: {OURS}", "bytes"),
        stage.figure(f"{name}: {STOCK}", "bytes"),
        stage.figure(f"{name}: {OURS} ÷ {STOCK}", "×"),
    )

    def trial() -> list[float]:
        # Just above a power of two, where the tables of the server have doubled: our worst.
        ours, stock = (_bytes(stage, whose, stage.size(4_200, 520)) for whose in (OURS, STOCK))
        return [ours, stock, ours / stock]

    return Case(name, figures, trial)


def _bytes(stage: Stage, whose: str, count: int) -> float:
    with stage.url() as url, Books(url) as books:
        fill(whose, url, 1)  # the scripts and the books of a queue are there once, however many wait
        before = books.memory()
        fill(whose, url, count)
        return (books.memory() - before) / count


def fill(whose: str, url: str, count: int) -> None:
    """Put so many tasks that do nothing, however they get there."""
    with opened(whose, url) as app:
        if whose == STOCK:
            _publish(app, count)
            return
        task = app.tasks["bench.noop"]
        for done in range(0, count, 1_000):
            publish_group([task.s(BODY) for _ in range(min(1_000, count - done))], app=app)
