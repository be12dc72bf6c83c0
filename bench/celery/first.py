"""How soon the first task begins: of a worker that has become ready, and of one whose Redis came back."""

from __future__ import annotations

import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from bench.celery.app import OURS, STOCK, opened
from bench.celery.drain import POOLS
from bench.celery.publish import fill
from bench.celery.workers import celery_worker
from bench.measure import Case
from bench.server import redis_server
from bench.stage import BODY, Stage

#: How long Redis is away (seconds).
_AWAY = 2.0


def cases(stage: Stage) -> list[Case]:
    return [_after_start(stage), _after_restart(stage)]


def _after_start(stage: Stage) -> Case:
    name = "Celery: first task after the worker is ready"
    figures = tuple(stage.figure(f"{name}: {whose}", "ms") for whose in (OURS, STOCK))

    def trial() -> list[float]:
        waits = []
        for whose in (OURS, STOCK):
            with stage.url() as url:
                fill(whose, url, 10)
                with celery_worker(whose, url, *POOLS["solo"]) as worker:
                    ready = worker.next()["ready"]
                    waits.append((worker.next()["first"] - ready) * 1_000)
        return waits

    return Case(name, figures, trial)


def _after_restart(stage: Stage) -> Case:
    """The server comes back empty; a task is published as soon as it answers."""
    name = "Celery: first task after Redis is back"
    figures = tuple(stage.figure(f"{name}: {whose}", "ms") for whose in (OURS, STOCK))
    return Case(name, figures, lambda: [_restarted(stage, whose) for whose in (OURS, STOCK)])


def _restarted(stage: Stage, whose: str) -> float:
    with ExitStack() as stack, stage.new_folder() as folder:
        with redis_server(folder) as port:
            url = stage.kind.url.format(port=port)
            worker = stack.enter_context(celery_worker(whose, url, *POOLS["solo"]))
            worker.next()
        time.sleep(_AWAY)
        with redis_server(folder, urlsplit(url).port or 0):
            back = time.time()
            with opened(whose, url) as app:
                app.tasks["bench.noop"].delay(BODY)
            began: float = worker.next()["first"]
            return (began - back) * 1_000
