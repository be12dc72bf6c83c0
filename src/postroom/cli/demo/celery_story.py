"""The part of Celery: tasks of mixed urgency, countdowns, and a Celery worker that is killed at work.

It plays beside the other story, in a thread of its own: a Celery worker takes longer to start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from postroom.cli.demo.celery_app import TASK, make_app
from postroom.cli.demo.ledger import Job, Killed, Ledger
from postroom.cli.demo.processes import Company, Member
from postroom.cli.demo.tempo import ORDERS, Tempo
from postroom.ids import new_id
from postroom.room import Room

#: The numbers behind the words of the ledger; higher is more urgent, as everywhere.
_PRIORITIES = {"low": 0, "normal": 5, "high": 9}
#: Between two looks at how far things are (seconds).
_LOOK = 0.02


class CeleryStory:
    """`over` tells when to give up."""

    def __init__(
        self,
        room: Room,
        company: Company,
        ledger: Ledger,
        url: str,
        tempo: Tempo,
        tell: Callable[[str], None],
    ) -> None:
        self.over: Callable[[], bool] = lambda: False
        self._orders = room.queue(ORDERS)
        self._company = company
        self._ledger = ledger
        self._url = url
        self._tempo = tempo
        self._tell = tell
        self._app: Any = None

    def run(self) -> None:
        self._app = make_app(self._url)
        first = self._company.celery_worker
        for scene in (self._order, self._postpone, self._crash):
            scene(first)
            if self.over():
                return

    def close(self) -> None:
        """Give up what belongs to the app, and take its exchange out of the store; once nobody works."""
        if self._app is None:
            return
        from postroom.celery import close_offices

        with self._app.connection_for_write() as connection:
            connection.default_channel.exchange_delete(ORDERS)
        self._app.close()
        close_offices()

    # --- scenes -----------------------------------------------------------------------------

    def _order(self, worker: Member) -> None:
        self._tell(f"six Celery tasks wait in {ORDERS}, urgent or not, until the Celery worker has started")
        for priority in ("low", "normal", "high") * 2:
            self._ledger.celery.together.append(self._send(priority).number)
        worker.cue()
        self._wait(lambda: self._are_done(self._ledger.celery.together))

    def _postpone(self, worker: Member) -> None:
        delays = [share * self._tempo.beat for share in (1, 1.5, 2)]
        self._tell(f"three Celery tasks have a countdown: the store keeps them, up to {delays[-1]:.1f} s")
        later = [self._send(delay=delay).number for delay in delays]
        self._wait(lambda: self._are_done(later))

    def _crash(self, worker: Member) -> None:
        """Kill the worker when that one task is all it holds: what it did before is settled."""
        job = self._send(gets_stuck=True)
        self._wait(lambda: self._ledger.runs_of(job.number) and self._orders.stats().processing <= 1)
        if self.over():
            return
        self._ledger.celery.killed = Killed(worker.pid, job.number, time.time())
        self._company.kill(worker)
        self._tell(
            f"kill -9 {worker.pid}: the Celery worker, in the middle of {job.name}; another one starts"
        )
        self._company.start_celery_worker().cue()
        self._wait(lambda: self._are_done([job.number]))

    def _send(self, priority: str = "normal", delay: float = 0, *, gets_stuck: bool = False) -> Job:
        """As any Celery app does; the message's id is chosen here, so that the story can name it."""
        from postroom.celery.wrapping import PUBLISH_ID

        number, id, due = self._ledger.number(), new_id(), time.time() + delay
        options = {"priority": _PRIORITIES[priority], "countdown": delay or None, PUBLISH_ID: id}
        self._app.send_task(TASK, args=[number, gets_stuck], **options)
        return self._ledger.accept(Job(number, f"order {number}", ORDERS, id, priority, due, delay > 0))

    def _are_done(self, numbers: list[int]) -> bool:
        handled = self._ledger.handled()
        return all(handled[number] for number in numbers)

    def _wait(self, so: Callable[[], object]) -> None:
        while not so() and not self.over():
            time.sleep(_LOOK)
