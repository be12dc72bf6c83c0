"""What one process holds, at moments that are hard to hit: a thread that ends, a signal that interrupts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import task_prerun

import postroom
from postroom.celery import early
from postroom.celery.bells import Bells
from postroom.celery.office import MOST_WAITING, PATIENCE, Office
from postroom.celery.options import Options
from postroom.celery.transport import _wake_when_called
from postroom.celery.upkeep import _TICK, Upkeep
from postroom.engine import ClaimRequest
from postroom.model import NewMessage, State
from tests.celery.workers import wait_until

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


def test_no_ack_waits_longer_than_the_office_has_patience() -> None:
    """However short before it came in its thread has looked; and in all no longer than we say, 25 ms."""
    assert PATIENCE + _TICK <= 0.025
    office = Quiet()
    upkeep: Any = Upkeep(office)  # type: ignore[arg-type]  # a stand-in: only `waits` is asked
    assert upkeep._nap(0.0) <= PATIENCE, "nothing waits yet"
    office.waits = time.monotonic() + PATIENCE
    assert upkeep._nap(0.0) <= PATIENCE
    office.waits = time.monotonic() - 1
    assert upkeep._nap(0.0) <= 0.001, "it is late already"


def test_as_many_acks_as_may_wait_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much patience there is, and without a claim that they could ride along with."""
    monkeypatch.setattr("postroom.celery.office.PATIENCE", 3_600.0)
    office = Office("memory://", Options())
    try:
        office.put("jobs", [NewMessage(body=b"") for _ in range(40)])
        tagged, _ = office.turn("jobs", ClaimRequest(n=40, lease=60_000, consumer="me"))
        tags = [tag for tag, _ in tagged]
        for tag in tags[:31]:
            office.ack(tag)
        assert office.waits is not None
        assert office.waits > time.monotonic() + 3_000, "fewer than that wait"
        office.ack(tags[31])
        wait_until(lambda: office.waits is None, lambda: "they wait for more")
        office.flush()  # a thread that was about to send them has done so
        assert office.room.engine.stats("jobs").counters["acked"] == MOST_WAITING == 32
    finally:
        office.close()


class Settling(dict[str, Any]):
    """Deliveries that are settled by another thread as soon as somebody has seen them."""

    def __contains__(self, tag: object) -> bool:
        return self.pop(str(tag), None) is not None


def test_a_report_bears_that_a_task_ends_meanwhile_and_reports_all_in_the_end() -> None:
    office = Office("memory://", Options())
    try:
        office.put("jobs", [NewMessage(body=b"") for _ in range(1_001)])
        for n in (1_000, 1):
            office.turn("jobs", ClaimRequest(n=n, start=0, lease=60_000, consumer="me"))
        begun = set(office.unstarted)
        assert len(begun) == 1_001
        office.report(begun)
        assert len(office.unstarted) == 1, "no more in one call, and none is passed over"
        office.held = Settling(office.held)
        office.report(set(office.unstarted))
        assert not office.unstarted
        page = office.room.engine.find("jobs", State.PROCESSING, limit=1_000)
        assert all(entry.started_at for entry in page.entries)
    finally:
        office.close()


SIGNALLED = """
import signal
from postroom.celery.offices import office_of
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


def test_the_signal_before_tasks_waits_for_one_that_is_acked_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task would pay for it, and one that is acked late has nothing to send before it runs."""
    tasks = {"late": SimpleNamespace(acks_late=True), "early": SimpleNamespace(acks_late=False)}
    monkeypatch.setattr("celery.app.trace._localized", [tasks])
    monkeypatch.setattr(early, "_seen", set())
    monkeypatch.setattr(task_prerun, "receivers", [])
    early.expect("late")
    assert not task_prerun.receivers
    early.expect("early")
    early.expect("early")
    assert len(task_prerun.receivers) == 1


def test_a_bell_that_was_heard_rings_again() -> None:
    with postroom.open("memory://") as room:
        bells = Bells(room.engine, [], [], None, lambda names: None)
        try:
            for _ in range(3):
                threads = [threading.Thread(target=bells.ring) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                began = time.monotonic()
                bells.wait(60)
                assert time.monotonic() - began < 30
        finally:
            bells.close()
        bells.ring()  # nobody hears it, and it is nobody else's file that is written to


def test_connections_that_come_and_go_leave_nothing_in_the_event_loop() -> None:
    """Kombu before 5.7: after some hundred reconnects a call went through as many functions."""
    called: list[Any] = []
    loop: Any = SimpleNamespace(call_soon=called.append)
    woken: list[int] = []
    for n in range(3):
        intake: Any = SimpleNamespace(wake=lambda n=n: woken.append(n))
        _wake_when_called(loop, intake)
    loop.call_soon("ack")
    assert (called, woken) == (["ack"], [2])
