"""The keeper: sweeps the queues that nobody consumes, runs the schedules, samples for charts. One leads.

The lead is a record with a time to live and a version: it is taken, renewed and given back by
compare-and-set, so a keeper that was away too long finds out and steps down. The lock only saves
work: every sweep is atomic in the engine, a slot is one message, and two keepers at once do no harm.
The record also says who leads and when it sweeps next (`leader`), for people who wait for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from postroom.charts import Sampler
from postroom.engine import Engine, QueueInfo
from postroom.errors import Closed, PostroomError
from postroom.ids import new_token
from postroom.limits import MAX_BATCH
from postroom.model import Swept
from postroom.room import Room
from postroom.schedule import Schedules

log: logging.Logger = logging.getLogger(__name__)

LOCK_KIND, LOCK_KEY = "lock", "keeper"
#: Something else to look after from time to time; returns when to call it again (ms).
Chore = Callable[[], int]

#: No queue is swept more often than this (ms), unless its lease is shorter than three of it.
_LEAST_WAIT = 1_000
#: A queue's full sweep is repeated at most so often before the others have their turn.
_REPEATS = 100
#: A sweep that comes so much sooner than was told is worth telling again (ms).
_SOONER = 500


class Leader(msgspec.Struct, frozen=True):
    """Who leads, and when it sweeps next (epoch ms by the engine's clock). `name` "": an older release."""

    name: str = ""
    next_sweep: int | None = None


class _Plan(msgspec.Struct, frozen=True):
    """What a leader tells with its lock: the next sweep is `sweeps_in` ms after the record was written,
    and that was `ttl` before it ends. So nobody's own clock is asked."""

    name: str
    sweeps_in: int
    ttl: int


def leader(engine: Engine) -> Leader | None:
    """The keeper that leads; None: none does."""
    record = engine.records.get(LOCK_KIND, LOCK_KEY)
    if record is None:
        return None
    try:
        plan = msgspec.json.decode(record.value[_TOKEN:], type=_Plan)
    except msgspec.DecodeError:  # a release before this told only that it leads; a later one may tell more
        return Leader()
    return Leader(plan.name, (record.expires or 0) - plan.ttl + plan.sweeps_in)


#: A lock is the token of who has it, and behind it whatever that one wants to tell.
_TOKEN = 16


class Lead:
    """The leader lock: held by one token at a time, for at most `ttl` without a renewal."""

    def __init__(self, engine: Engine, ttl: int, key: str = LOCK_KEY) -> None:
        self._records = engine.records
        self._key = key
        self._ttl = ttl
        self._token = new_token().encode()
        self._version: int | None = None

    def hold(self, telling: bytes = b"") -> bool:
        """Take the lead or renew it, telling something with it; False while another has it."""
        value = self._token + telling
        self._version = self._take(value, self._version or 0) or self._take(value, self._ours())
        return self._version is not None

    def _take(self, value: bytes, expect: int) -> int | None:
        return self._records.put(LOCK_KIND, self._key, value, ttl=self._ttl, expect=expect)

    def _ours(self) -> int:
        """The version of a lead that is ours without our knowing, because the reply was lost."""
        record = self._records.get(LOCK_KIND, self._key)
        return record.version if record and record.value.startswith(self._token) else 0

    def give_up(self) -> None:
        """Let somebody else lead at once — but only if it is still ours to give."""
        if self._version is not None:
            self._records.delete(LOCK_KIND, self._key, expect=self._version)
            self._version = None


class Keeper:
    """A candidate: leads when nobody else does, and then sweeps in time, every `sweep_interval` at most.

    `name` is what people know it by: the worker's that it is a part of, else the process. `chores` are what a
    door has to look after: done whoever leads, because that may be a process which does not know this door.
    """

    def __init__(self, room: Room, name: str = "", chores: Sequence[Chore] = ()) -> None:
        self.name: str = name or room.consumer
        self._engine = room.engine
        self._interval = room.config.sweep_interval
        self._batch = room.config.sweep_batch
        self._ttl = room.config.keeper_ttl
        self._lead = Lead(room.engine, self._ttl)
        self._schedules = Schedules(room)
        self._sampler = Sampler(room.engine)
        self._chores = chores
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.leading: bool = False
        #: When to sweep each queue next (monotonic seconds).
        self._due: dict[str, float] = {}

    def tick(self, triggered_by: str = "scheduler", *, only_due: bool = False) -> int:
        """One look, if this keeper leads: sweep every queue, or only those due for it; schedules; samples.

        Returns when to look again (ms).
        """
        now = time.monotonic()
        told = self._sweeps_in(now)
        self.leading = self._lead.hold(self._plan(told))
        look = min(self._interval, self._ttl // 3)
        if not self.leading:
            return look
        infos = self._engine.queues()
        due = {info.name: self._due.get(info.name, now) for info in infos}
        for info in infos:
            if not only_due or due[info.name] <= now:
                due[info.name] = now + self._wait(info, self.sweep(info.name, triggered_by)) / 1_000
        self._due = due
        if (soon := self._sweeps_in(now)) < told - _SOONER:
            self._lead.hold(self._plan(soon))
        look = min(look, self._schedules.tick(), self._sampler.tick(list(due)))
        return min([look, *(max(0, round((at - now) * 1_000)) for at in due.values())])

    def _sweeps_in(self, now: float) -> int:
        """How long until the next sweep (ms); what is due now is swept now, and then within the interval."""
        waits = (self._interval if at <= now else round((at - now) * 1_000) for at in self._due.values())
        return min(waits, default=self._interval)

    def _plan(self, sweeps_in: int) -> bytes:
        return msgspec.json.encode(_Plan(self.name, sweeps_in, self._ttl))

    def _wait(self, info: QueueInfo, swept: Swept) -> int:
        """How long to leave a queue alone: whoever consumes it looks after it more closely.

        A short lease needs a closer look, or every look would come after a silence (promise 11).
        """
        return min(self._interval, max(swept.next_wake, min(_LEAST_WAIT, info.policy.lease // 3)))

    def sweep(self, queue: str, triggered_by: str = "scheduler") -> Swept:
        """Sweep one queue until a call was not full; what it did in all."""
        total = Swept()
        for _ in range(_REPEATS):
            swept = self._engine.sweep(queue, limit=min(self._batch, MAX_BATCH), triggered_by=triggered_by)
            total = total.plus(swept)
            if not swept.full:
                break
        return total

    def start(self) -> None:
        """Run in a daemon thread until `stop`."""
        self._thread = threading.Thread(target=self.run, name="postroom-keeper", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Look again and again, until `stop` or until the engine is closed."""
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                wake = min([self.tick(only_due=True), *(chore() for chore in self._chores)])
            except Closed:
                return
            except Exception as error:  # whatever an engine raises, the keeper goes on
                log.warning("keeper failed: %s", error, extra={"event": "keeper.failed", "error": str(error)})
                wake = self._interval
            # Never in a tight circle, whatever a queue answers.
            self._stop.wait(max(0.01, wake / 1_000 - (time.monotonic() - began)))

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        try:
            self._lead.give_up()
        except PostroomError as error:
            log.info(
                "keeper could not give up its lead", extra={"event": "keeper.failed", "error": str(error)}
            )
