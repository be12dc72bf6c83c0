"""What one process holds, at moments that are hard to hit: a thread that ends, a signal that interrupts."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from postroom.celery.upkeep import Upkeep

pytestmark = pytest.mark.timeout(200)


class Quiet:
    """An office without anything to do, into which something comes just when its thread has looked."""

    url, lease = "memory://", 60_000
    waits: float | None = None

    def __init__(self) -> None:
        self.upkeep: Any = None
        self.comer: threading.Thread | None = None

    @property
    def held(self) -> dict[str, Any]:
        if self.upkeep is not None and self.comer is None:
            self.comer = threading.Thread(target=self.upkeep.stir)
            self.comer.start()
            self.comer.join(0.2)  # it may have to wait until the thread has ended
        return {}


def test_what_comes_in_while_the_thread_ends_starts_another() -> None:
    office = Quiet()
    upkeep: Any = Upkeep(office)  # type: ignore[arg-type]  # a stand-in: the moment cannot be hit otherwise
    begun: list[bool] = []
    upkeep._run = lambda: begun.append(True)
    upkeep._thread = threading.current_thread()  # the one that ends
    upkeep._dozing = True
    office.upkeep = upkeep
    assert upkeep._end()
    assert office.comer is not None
    office.comer.join()
    upkeep._thread.join()
    assert begun == [True]


SIGNALLED = """
import signal
from postroom.celery.office import office_of
from postroom.celery.options import Options
from postroom.engine import ClaimRequest
from postroom.model import NewMessage, Verb

office = office_of("memory://", Options())
office.put("jobs", [NewMessage(body=b"") for _ in range(400)])
tagged, _ = office.turn("jobs", ClaimRequest(n=400, lease=60_000, consumer="me"))
tags = [tag for tag, _ in tagged]
signal.signal(signal.SIGALRM, lambda *_: tags and office.settle(tags.pop(), Verb.RELEASE, soon=True))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while tags:  # what the main thread does between two calls to the store
    number, pending = office._take("jobs")
    office._put_back("jobs", pending, unanswered=False)
    office._through(number)
signal.setitimer(signal.ITIMER_REAL, 0)
office.flush()
print(office.room.engine.stats("jobs").ready)
"""


def test_a_signal_handler_may_settle_whatever_it_has_interrupted() -> None:
    """As Celery's does when it cancels its tasks in a cold shutdown."""
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "400\n", "")
