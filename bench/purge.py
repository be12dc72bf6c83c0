"""Whether a purge of very many messages holds the server up: its longest command, and a bystander's wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Case, wait_until
from bench.server import Books
from bench.stage import Stage, fill, queue_at
from postroom.engine import ClaimRequest


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "redis":
        return []
    return [_case(stage, "nothing in flight", 0), _case(stage, "some in flight", 100)]


def _case(stage: Stage, how: str, in_flight: int) -> Case:
    """What is in flight stays, and then the bodies of the others are removed in portions."""
    count = stage.size(1_000_000, 50_000)
    name = f"purge of {count:,}, {how}"
    figures = (
        stage.figure(f"{name}: longest command", "ms"),
        stage.figure(f"{name}: longest wait of a PING", "ms"),
        stage.figure(f"{name}: the whole", "ms"),
    )

    def trial() -> list[float]:
        with stage.url() as url, queue_at(url) as queue, Books(url) as books:
            fill(queue, count, stage.say)
            queue.room.engine.claim(queue.name, ClaimRequest(n=in_flight))
            books.forget_slow()
            with _bystander(url) as child:
                began = time.perf_counter()
                purged = queue.purge()
                spent = time.perf_counter() - began
                wait_until(books.has_freed, 60)
                longest = json.loads(child.communicate(timeout=30)[0])
            assert purged == count - in_flight, f"{purged} were purged"
            return [books.slowest(), longest, spent * 1_000]

    return Case(name, figures, trial)


@contextmanager
def _bystander(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that pings until its standard input ends, as it also does when this one dies."""
    command = [sys.executable, "-m", "bench.bystander", url]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("the bystander did not start")
            yield child
        finally:
            child.kill()
