"""The office: all that one process holds of one room, whichever connection or channel it came through.

Connections come and go, channels are closed while tasks run; leases, acks and starts outlive them. So they
are kept here, by delivery tag: one room per URL and options, the deliveries it leased, and the acks that
wait for the next round trip. A thread of the office sends what waits too long and shows that the process
lives, whatever its main thread is doing.

A forked child has an office of its own that holds nothing: what its parent leased is the parent's.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable, Sequence, Set

import postroom
from postroom.celery.allowance import Allowance
from postroom.celery.exchanges import Exchanges
from postroom.celery.fanout import Fanout
from postroom.celery.lately import Lately
from postroom.celery.news import News
from postroom.celery.options import Options, breakers_of, config_of, is_replicated
from postroom.celery.promises import Promises
from postroom.celery.transient import Collector, TransientQueues
from postroom.celery.upkeep import Upkeep
from postroom.delivery import Delivery
from postroom.engine import ClaimRequest, Engine
from postroom.errors import EngineUnavailable, PostroomError
from postroom.keeper import Keeper
from postroom.limits import MAX_BATCH
from postroom.model import Claimed, Failure, NewMessage, Outcome, Receipt, Settlement, Verb
from postroom.policy import Policy
from postroom.queue import Queue
from postroom.recent import RecentSettles
from postroom.room import Room
from postroom.staff import Attendance, Hear, Look

log: logging.Logger = logging.getLogger(__name__)

#: So many acks that wait are sent at once; fewer after so long (seconds). What ended 25 ms before a crash
#: must not run again: the rest of these is for the way from a pool's child and for the way to the store.
MOST_WAITING = 32
PATIENCE = 0.012
#: A rejected message comes back after this long (ms): a task that rejects itself must not spin.
REJECT_DELAY = 1_000
#: So many queues are remembered as declared; reply queues come and go.
_MOST_DECLARED = 1_000
#: A flush waits this long for what another thread sends (seconds): as long as a call to a store may take.
_LONGEST_TURN = 10.0
#: A process that ends tries for so long to send what waits while its store is away (seconds); one call may
#: then still take as long as a connection to it. What is left over is delivered again when its lease is over.
CLOSING_PATIENCE = 3.0
_CLOSING_PAUSE = 0.25
#: As long as a publish may be repeated (ms).
_REMEMBER = 10 * 60_000
#: A name to ask the store about, to see whether it answers.
_ANY_QUEUE = "celery"

Pending = tuple[Delivery, Settlement]
Tagged = tuple[str, Delivery]


class Office:
    """See the module. Threads may share it."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self.options = options
        self.room: Room = postroom.open(url, config=config_of(options, url))
        #: How long a publish is known after its task is over (ms): one that a replica has not confirmed in
        #: time is repeated, and its task may be over by then.
        self.remember: int | None = _REMEMBER if is_replicated(self.room.config, url) else None
        #: Everything leased and not settled, by delivery tag.
        self.held: dict[str, Delivery] = {}
        #: Of these, what nobody is known to have begun.
        self.unstarted: set[str] = set()
        #: Delivered through connections that were lost since: Celery may have forgotten them.
        self.orphans: set[str] = set()
        #: The shortest lease that anything was claimed with (ms): a queue may have one of its own.
        self.lease: int = options.lease
        #: Bumped whenever the store came back: consumers then ask all queues again.
        self.returns: int = 0
        self._begin()
        atexit.register(_end_at_exit, weakref.ref(self))

    def _begin(self) -> None:
        self.pid: int = os.getpid()
        #: Reentrant: Celery cancels tasks inside of a signal handler, which may have interrupted any line
        #: here. So whatever is held by it must be whole, or added to, at each of them.
        self._lock = threading.RLock()
        self._pending: dict[str, list[Pending]] = {}
        #: The numbers of the turns that carry settlements and have not come back; told when one has.
        self._on_the_way: set[int] = set()
        self._turns = 0
        self._came_back = threading.Condition(self._lock)
        self._oldest = 0.0
        self._urgent = False
        self._recent = RecentSettles()
        self._declared: dict[str, Queue] = {}
        self._keeper: Keeper | None = None
        self._attendance: Attendance | None = None
        self._closed = False
        self.lately: Lately = Lately()
        self.allowance: Allowance = Allowance(self, breakers_of(self.options))
        engine = self.room.engine
        self.exchanges: Exchanges = Exchanges(engine.records)
        self.upkeep: Upkeep = Upkeep(self)
        self.transients: TransientQueues = TransientQueues(engine, self.exchanges, self.upkeep.stir)
        self.fanout: Fanout = Fanout(
            engine,
            patterns=self.options.fanout_patterns,
            keep=self.options.stream_maxlen,
            prefix=self.options.fanout_prefix,
        )
        self.news: News = News(self)
        self.promises: Promises = Promises(self)
        #: Queues that this process bound to something else than a fanout exchange.
        self.routed: set[str] = set()

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: str) -> Queue:
        """Have the queue promise what Celery needs, unless somebody gave it a policy of its own."""
        if known := self._declared.get(queue):
            return known
        policy = self.options.policy(self.room.config, queue)
        infos = self.room.engine.queues([queue])
        if not infos or (infos[0].policy != policy and _is_ours(infos[0].policy, policy)):
            self.room.engine.declare(queue, policy)
            self.room.forget_policy(queue)
        if len(self._declared) >= _MOST_DECLARED:
            self._declared.clear()
        self._declared[queue] = made = self.room.queue(queue)
        return made

    def put(self, queue: str, messages: Sequence[NewMessage]) -> None:
        """Keep these messages, in as few calls as possible; hooks and warnings as in `Queue.put`."""
        target = self.declare(queue)
        if len(messages) == 1:
            target.put(messages[0])
        else:
            target.put_many(messages)

    @property
    def away(self) -> bool:
        """Whether the store is away, as far as is known: do not wait for it where something else waits."""
        return self.upkeep.away

    def ping(self) -> None:
        """Raises EngineUnavailable unless the store answers."""
        self.room.engine.queues([_ANY_QUEUE])

    def forget(self, queue: str) -> None:
        """The queue may be gone: look again before it is used."""
        self._declared.pop(queue, None)
        self.room.forget_policy(queue)

    def keep(self) -> None:
        """Run a candidate for the keeper, as every worker does."""
        if self._keeper is None and not self._closed:
            collector = Collector(self.room.engine, self.transients, self.room.config.sweep_interval)
            self._keeper = Keeper(self.room, chores=[collector])
            self._keeper.start()

    def attend(self, look: Look, hear: Hear) -> None:
        """Have the room know of this worker until the office closes, and the worker hear what it is told."""
        if self._attendance is None and not self._closed:
            self._attendance = Attendance(self.room.engine, look, hear)
            self._attendance.start()

    # --- claiming and settling --------------------------------------------------------------

    def turn(
        self, queue: str, request: ClaimRequest | None = None
    ) -> tuple[list[tuple[str, Delivery]], Claimed]:
        """One round trip: what waits to be settled goes, what was claimed comes, each with its tag."""
        number, pending = self._take(queue)
        if request is not None and request.lease is not None:
            self.lease = min(self.lease, request.lease)
        try:
            deliveries, turned = self.room.turn(queue, [settlement for _, settlement in pending], (), request)
        except BaseException as error:
            self._put_back(queue, pending, unanswered=isinstance(error, EngineUnavailable))
            if isinstance(error, EngineUnavailable):
                self.upkeep.note_outage(error)
            raise
        finally:
            self._through(number)
        self._note(pending, turned.settled)
        tagged = [(_tag(delivery.receipt), delivery) for delivery in deliveries]
        if tagged:
            self.held.update(tagged)
            if request is not None and request.start is not None:
                self.unstarted.update(tag for tag, delivery in tagged if not delivery.suspect)
            self.upkeep.stir()
        return tagged, turned.claimed

    def settle(
        self,
        tag: str,
        verb: Verb = Verb.ACK,
        failure: Failure | None = None,
        *,
        delay: int | None = None,
        soon: bool = False,
    ) -> None:
        """Note how a delivery ended; it is sent with the next turn, or after `PATIENCE`. Twice is fine.

        What is retried or released comes back after `delay` (ms); unless given, after a second or at once.
        """
        delivery = self._let_go(tag)
        if delivery is None:
            return
        if verb is not Verb.ACK:
            self.allowance.note_failed(delivery.queue)
        if delay is None:
            delay = REJECT_DELAY if verb is Verb.RETRY else 0
        self._have_settled(delivery, Settlement(delivery.receipt, verb, delay, None, failure), soon=soon)

    def ack(self, tag: str) -> None:
        """The same of a task that went well, as most do: nothing else is to be asked."""
        if delivery := self._let_go(tag):
            self._have_settled(delivery, Settlement(delivery.receipt))

    def _let_go(self, tag: str) -> Delivery | None:
        self.unstarted.discard(tag)
        return self.held.pop(tag, None)

    def _have_settled(self, delivery: Delivery, settlement: Settlement, *, soon: bool = False) -> None:
        self.lately.end(delivery, settlement)
        with self._lock:
            pending = self._pending
            if not pending:
                self._oldest = time.monotonic()
            waiting = pending.setdefault(settlement.receipt.queue, [])
            waiting.append((delivery, settlement))
            if soon or len(waiting) >= MOST_WAITING:
                self._urgent = True
        self.upkeep.stir()

    def ack_early(self, tag: str) -> None:
        """Ack what is just beginning: at once, because a crash must not bring it back."""
        if delivery := self.held.get(tag):
            self.allowance.note_early(tag, delivery.queue)
        self.settle(tag, soon=True)

    @property
    def waits(self) -> float | None:
        """When what waits to be settled must go, on the monotonic clock; None: nothing waits."""
        if not self._pending:
            return None
        return 0.0 if self._urgent else self._oldest + PATIENCE

    def flush(self, patience: float = _LONGEST_TURN) -> None:
        """Send everything that waits to be settled. Raises when the store is away; then it is kept.

        What another thread is just sending has arrived as well when this returns, or `patience` (seconds)
        is over.
        """
        self._urgent = False
        for _ in range(2):  # again, if the other thread failed
            for queue in list(self._pending):
                while self._pending.get(queue):
                    self.turn(queue)
            with self._lock:
                # Not for those that begin from now on: a busy process always has one.
                sent = self._on_the_way.copy()
                self._came_back.wait_for(lambda: sent.isdisjoint(self._on_the_way), patience)  # noqa: B023  (ends before the next round)
                if not self._pending:
                    return

    def _take(self, queue: str) -> tuple[int, list[Pending]]:
        """What this turn is to carry, and the turn's number."""
        with self._lock:
            pending = self._pending.pop(queue, [])
            if len(pending) > MAX_BATCH:
                self._pending.setdefault(queue, [])[:0] = pending[MAX_BATCH:]
            if not self._pending:
                self._urgent = False
            self._turns += 1
            if pending:
                self._on_the_way.add(self._turns)
            return self._turns, pending[:MAX_BATCH]

    def _through(self, number: int) -> None:
        with self._lock:
            self._on_the_way.discard(number)
            self._came_back.notify_all()

    def _put_back(self, queue: str, pending: list[Pending], *, unanswered: bool) -> None:
        if not pending:
            return
        for delivery, _ in pending:
            delivery.unanswered |= unanswered
        with self._lock:
            self._pending.setdefault(queue, [])[:0] = pending
            # Not at once again: whoever tries next waits a little.
            self._oldest = time.monotonic()

    def _note(self, pending: list[Pending], outcomes: list[Outcome]) -> None:
        self._recent.note([settlement for _, settlement in pending], time.monotonic())
        for (delivery, settlement), outcome in zip(pending, outcomes, strict=True):
            if not delivery.note_settled(settlement.verb, outcome):
                if outcome is Outcome.GONE:  # done elsewhere, or the store has lost everything
                    self.promises.doubt()
                log.warning(
                    "settled too late: %r is %s",
                    delivery,
                    outcome,
                    extra={"event": "delivery.lost", "outcome": str(outcome), **delivery.log_extra},
                )

    # --- staying alive ----------------------------------------------------------------------

    def report(self, tags: Iterable[str]) -> None:
        """Tell the engine that work on these has begun: from now on it counts as an attempt."""
        starts: dict[str, dict[str, Receipt]] = {}
        for tag in tags:
            if delivery := self.held.get(tag):
                starts.setdefault(delivery.queue, {})[tag] = delivery.receipt
        for queue, begun in starts.items():
            some = list(begun)[:MAX_BATCH]  # the next look reports the others
            receipts = [begun[tag] for tag in some]
            self.lately.begin(receipts)
            self.room.turn(queue, (), receipts, None)
            self.unstarted.difference_update(some)

    def renew(self, engine: Engine | None = None) -> None:
        """Show that this process lives: all its leases are new again (gevent: through another engine)."""
        by_queue: dict[str, list[Delivery]] = {}
        for delivery in list(self.held.values()):
            by_queue.setdefault(delivery.queue, []).append(delivery)
        for queue, deliveries in by_queue.items():
            for first in range(0, len(deliveries), MAX_BATCH):
                self._renew(engine or self.room.engine, queue, deliveries[first : first + MAX_BATCH])

    def _renew(self, engine: Engine, queue: str, deliveries: list[Delivery]) -> None:
        lease = deliveries[0].lease or self.options.lease
        receipts = [delivery.receipt for delivery in deliveries]
        for delivery, outcome in zip(deliveries, engine.renew(queue, receipts, lease), strict=True):
            if outcome is Outcome.LOST and not delivery.settled:
                delivery.lost = True
                log.warning(
                    "lease lost: %r", delivery, extra={"event": "delivery.lost", **delivery.log_extra}
                )

    def show(self, engine: Engine) -> None:
        """The worker is there: for who may not use the engine of the office (gevent)."""
        if self._attendance:
            self._attendance.beat(engine)

    def came_back(self) -> None:
        """The store was away: renew what is held, and repeat the last settles, which it may have lost.

        It may have lost more than that: what queues promise is asked of it before the next claim.
        """
        self.ping()  # there may be nothing to renew or to repeat
        self.promises.doubt()
        self.renew()
        self._recent.repeat(self.room.engine)
        self.returns += 1

    # --- ending -----------------------------------------------------------------------------

    def release(self, tags: Iterable[str]) -> None:
        """Hand deliveries back that nobody began: they keep their place and lose no attempt."""
        for tag in list(tags):
            self.settle(tag, Verb.RELEASE, soon=True)

    def release_orphans(self, known: Set[str] = frozenset()) -> None:
        """Hand back what was delivered through lost connections, except what is `known` to be worked on.

        That stays an orphan until it is settled: Celery may forget it later.
        """
        gone = {tag for tag in tuple(self.orphans) if tag not in known or tag not in self.held}
        self.orphans.difference_update(gone)
        self.release(gone)

    def close(self) -> None:
        """Send and hand back everything, and give up the room; in time, whether the store is there or not."""
        if self._closed:
            return
        self._closed = True
        self.upkeep.ask_to_stop()
        if self.pid == os.getpid():
            self.release(self.held)
            if self._hand_in():
                self.transients.drop_all()
            else:
                self.room.close()  # calls under way end, and nobody below waits for the store
            for part in (self._keeper, self._attendance):
                if part:
                    part.stop()
        self.upkeep.stop()
        self.room.close()
        self._say_unsettled()

    def _hand_in(self) -> bool:
        """Send what waits to be settled, as long as there is patience; whether the store is there."""
        end, there = time.monotonic() + CLOSING_PATIENCE, not self.away
        while (self._pending or self._on_the_way) and (left := end - time.monotonic()) > 0:
            try:
                self.flush(left)
                there = True
            except PostroomError:
                there = False
                time.sleep(min(_CLOSING_PAUSE, left))
        return there

    def _say_unsettled(self) -> None:
        if count := sum(map(len, self._pending.values())):
            log.error(
                "closed with %d deliveries not settled: they come back when their leases are over",
                count,
                extra={"event": "celery.unsettled", "count": count},
            )

    def leave_to_parent(self) -> None:
        """In a forked child: nothing here is ours but the room, whose engine knows about forks."""
        self.held, self.unstarted, self.orphans = {}, set(), set()
        self._begin()

    @property
    def is_closed(self) -> bool:
        return self._closed


def _tag(receipt: Receipt) -> str:
    """The delivery tag that kombu and Celery know a delivery by."""
    return f"{receipt.id}:{receipt.token}"


def _is_ours(found: Policy, ours: Policy) -> bool:
    """Whether a policy is nobody's own: the default, or what this door gave with other options."""
    if found == Policy():
        return True
    theirs, mine = found.to_text(), ours.to_text()
    return all(theirs[name] == mine[name] for name in theirs if name not in ("lease", "max_attempts"))


def _end_at_exit(ref: weakref.ref[Office]) -> None:
    office = ref()
    if office is not None and office.pid == os.getpid():
        office.close()
