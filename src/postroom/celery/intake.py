"""What one connection takes in: which queues to ask and when, and handing on what they gave.

The order of things is that of the native worker: claim as much as there is room for, arm a queue's bell only
when it had nothing, and ask again when it rings or when its `next_wake` is over. Nothing is polled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from postroom.celery.bells import Bells
from postroom.celery.early import expect
from postroom.celery.presence import worker_state
from postroom.celery.undecoded import read
from postroom.celery.wrapping import Payload
from postroom.delivery import Delivery
from postroom.engine import ClaimRequest
from postroom.errors import EngineUnavailable
from postroom.limits import MAX_BATCH
from postroom.rotation import Order, Rotation

if TYPE_CHECKING:
    from postroom.celery.channel import Channel
    from postroom.celery.transport import Transport

#: A queue that gave nothing and wants to be asked again at once is left alone for this long (seconds).
_LEAST_WAIT = 0.005
#: Room that is less than half of the prefetch is used after this long anyway (seconds).
_POSTPONE = 0.05
#: How long to leave a store alone that is away (seconds), longer each time.
_AWAY = (0.05, 0.1, 0.2, 0.5)


class Intake:
    """The consuming side of one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._office = transport.office
        self._bells: Bells | None = None
        self._stale = True
        self._asleep = False
        self._rotations: dict[Channel, Rotation] = {}
        #: When to ask each queue again (monotonic seconds); which broadcasts have rung.
        self._ask_at: dict[str, float] = {}
        self._unread: set[str] = set()
        #: Topic → the queues that read it.
        self._listening: dict[str, list[str]] = {}
        self._postponed: float | None = None
        self._away_until, self._failures = 0.0, 0
        self._returns = self._office.returns
        self._loop: Any = None
        self._timer: Any = None
        self._timer_at = 0.0

    # --- Celery's event loop ----------------------------------------------------------------

    def join(self, loop: Any) -> None:
        """Take part in a hub: every tick is a round, and a ring or a timer makes it tick."""
        self._loop = loop
        loop.on_tick.add(self.tick)

    def tick(self) -> None:
        did = self._round_or_wait(None)
        # What a handler left for the hub (acks above all) must not wait for its poll to end.
        if (did or self._loop._ready) and self._bells is not None:
            self._bells.ring()  # and so there is another tick at once, which needs no timer
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        """Have the hub tick when something is due, and not only when something rings."""
        at = self._wake_at()
        if self._timer is not None:
            if self._timer_at <= at:  # it fires earlier, does nothing, and is set again
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._timer_fired)
        if self._bells is not None:
            # The hub looked at its timers before this tick: without a ring it would sleep as they said.
            self._bells.ring()

    def _timer_fired(self) -> None:
        self._timer = None

    # --- rounds -----------------------------------------------------------------------------

    def drain(self, left: float | None) -> bool:
        """Hand on one message, waiting up to `left` seconds for it; whether there was one."""
        end = None if left is None else time.monotonic() + left
        while not self._round_or_wait(1):
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            wake = self._wake_at()
            self._rest(max(0.0, (wake if end is None else min(wake, end)) - now))
        return True

    def _round_or_wait(self, limit: int | None) -> int:
        """A round. A Celery worker sits an outage out: what it holds stays its own."""
        if time.monotonic() < self._away_until:
            return 0
        patient = worker_state() is not None and not self._transport.has_alternates
        if patient and self._office.away:
            # The office looks for it. A call of ours could hold up the event loop, and a stop, for seconds.
            self._leave_alone()
            return 0
        try:
            did = self.round(limit)
        except EngineUnavailable as error:
            if not patient:
                raise
            self._office.upkeep.note_outage(error)
            self._leave_alone()
            return 0
        self._failures = 0
        return did

    def _leave_alone(self) -> None:
        self._away_until = time.monotonic() + _AWAY[min(self._failures, len(_AWAY) - 1)]
        self._failures += 1
        self._ask_all()

    def round(self, limit: int | None = None) -> int:
        """Hand on what was claimed, claim more, send what must go; how much was handed on."""
        if self._stale:
            self._rebuild()
        if self._returns != self._office.returns:
            self._returns = self._office.returns
            self._ask_all()
        channels = [channel for channel in self._rotations if not channel.closed]
        did = 0
        for channel in channels:
            if channel.qos.claimed:
                did += self._hand_on(channel, limit)
            if limit is None or did < limit:
                did += self._fetch(channel, None if limit is None else limit - did)
        if not did and self._bells is not None and not any(c.qos.space_at_all() for c in channels):
            self._bells.disarm_all()
        if (due := self._office.waits) is not None and time.monotonic() >= due:
            self._office.flush()
        return did

    def _fetch(self, channel: Channel, limit: int | None) -> int:
        did = 0
        rotation = self._rotations[channel]
        for queue in self._sequence(channel):
            if limit is not None and did >= limit:
                break
            if queue in self._unread:
                did += self._read(channel, queue)
            ask_at = self._ask_at.get(queue)
            if ask_at is None or (now := time.monotonic()) < ask_at:
                continue
            allowed = self._office.allowance.space(queue)
            if not allowed and self._bells is not None:
                self._bells.disarm(queue)  # its rings go to others
            space = self._space(channel, now) if allowed else 0
            if space and (count := self._claim(channel, queue, min(space, allowed, MAX_BATCH))):
                rotation.gave(queue, count)
                did += self._hand_on(channel, None if limit is None else limit - did)
        return did

    def _sequence(self, channel: Channel) -> list[str]:
        """The order matters only to a claim, and by priority it costs a question to every queue."""
        rotation = self._rotations[channel]
        if len(rotation.queues) == 1:
            return rotation.queues
        now = time.monotonic()
        asks = channel.qos.space_at_all() and any(
            self._ask_at.get(q, now + 1) <= now for q in rotation.queues
        )
        return rotation.sequence() if asks else list(rotation.queues)

    def _space(self, channel: Channel, now: float) -> int:
        space = channel.qos.space(looping=self._loop is not None)
        if space or not (possible := channel.qos.space_at_all()):
            self._postponed = None
            return space
        if self._postponed is None:
            self._postponed = now + _POSTPONE
        if now < self._postponed:
            return 0
        self._postponed = None
        return possible

    def _claim(self, channel: Channel, queue: str, n: int) -> int:
        """Take up to `n` of this queue; how many came."""
        assert self._bells is not None
        office, bell = self._office, self._bells.armed(queue)
        request = ClaimRequest(
            n=n,
            # A worker says when it begins; whoever else consumes has begun when it has the message.
            start=0 if worker_state() is not None and queue not in channel.no_ack_queues else None,
            lease=office.promises.of(queue).lease,
            consumer=office.room.consumer,
            waiter=bell,
        )
        tagged, claimed = office.turn(queue, request)
        channel.qos.claimed.extend((queue, tag, delivery) for tag, delivery in tagged)
        if len(tagged) == n:
            self._bells.disarm(queue)
        elif bell is None:
            self._bells.arm(queue)
        else:
            span = min(claimed.next_wake, office.options.polling_interval) / 1_000
            self._ask_at[queue] = time.monotonic() + (span or _LEAST_WAIT)
        return len(tagged)

    # --- handing on -------------------------------------------------------------------------

    def _hand_on(self, channel: Channel, limit: int | None) -> int:
        qos, did = channel.qos, 0
        while qos.claimed and (limit is None or did < limit) and qos.can_consume():
            self._deliver(channel, *qos.claimed.popleft())
            did += 1
        return did

    def _deliver(self, channel: Channel, queue: str, tag: str, delivery: Delivery) -> None:
        callback = self._transport._callbacks.get(queue)
        if callback is None:  # its consumer was cancelled meanwhile
            self._office.release([tag])
            return
        payload = read(self._office, tag, delivery)
        if payload is None:
            return
        if queue in channel.no_ack_queues:
            self._office.settle(tag, soon=True)
        else:
            task = payload["headers"].get("task")
            if isinstance(task, str):  # in a message that is no task it may be anything
                expect(task)
        callback(payload)

    def _read(self, channel: Channel, queue: str) -> int:
        """Hand on the broadcasts that a queue has not seen."""
        payloads, more = self._office.fanout.read(queue)
        if not more:
            self._unread.discard(queue)
        for payload in payloads:
            self._broadcast(queue, payload)
        return len(payloads)

    def _broadcast(self, queue: str, payload: Payload) -> None:
        # Nobody leases a broadcast: its tag is known to nobody, and an ack of it ends here.
        payload["properties"]["delivery_tag"] = f"broadcast:{uuid4()}"
        if queue in self._transport._callbacks:
            self._transport._deliver(payload, queue)

    # --- waiting ----------------------------------------------------------------------------

    def changed(self) -> None:
        """Consumers came or went."""
        self._stale = True
        self.nudge()

    def nudge(self) -> None:
        """There may be room again."""
        if self._asleep and self._bells is not None:
            self._bells.ring()

    def wake(self) -> None:
        """Have the hub tick; from any thread."""
        if (bells := self._bells) is not None:
            bells.ring()

    def _rest(self, seconds: float) -> None:
        assert self._bells is not None
        self._asleep = True
        try:
            self._bells.wait(seconds)
        finally:
            self._asleep = False

    def _heard(self, names: frozenset[str]) -> None:
        for name in names:
            if name in self._ask_at:
                self._ask_at[name] = 0.0
            for queue in self._listening.get(name, ()):
                self._unread.add(queue)

    def _ask_all(self) -> None:
        self._ask_at = dict.fromkeys(self._ask_at, 0.0)
        self._unread = {queue for queues in self._listening.values() for queue in queues}

    def _wake_at(self) -> float:
        """When to look again, on the monotonic clock."""
        wakes = [time.monotonic() + self._office.options.polling_interval / 1_000]
        if self._away_until > time.monotonic():
            return self._away_until
        wakes += self._queue_wakes()
        if self._postponed is not None:
            wakes.append(self._postponed)
        if (due := self._office.waits) is not None:
            wakes.append(due)
        return min(wakes)

    def _queue_wakes(self) -> Iterator[float]:
        """When to ask the queues that there is room for: one without must not keep the loop awake."""
        allowance, now = self._office.allowance, time.monotonic()
        for channel, rotation in self._rotations.items():
            if channel.closed or not channel.qos.space_at_all():
                continue
            # Less than half of the prefetch is not used before it was put off for a moment: see `_space`.
            least = 0.0 if channel.qos.space(looping=True) else self._postponed or 0.0
            for queue in rotation.queues:
                if queue not in self._ask_at:
                    continue
                if allowance.space(queue):
                    yield max(self._ask_at[queue], least)
                elif (soon := allowance.look_again(queue)) is not None:
                    yield now + soon

    def _rebuild(self) -> None:
        """Listen for what is consumed now."""
        self._stale = False
        self._drop_bells()
        fanout, office = self._office.fanout, self._office
        self._rotations, self._listening, asked = {}, {}, {}
        for channel in self._transport.channels:
            queues = list(dict.fromkeys(channel._active_queues))
            if not queues:
                continue
            self._rotations[channel] = self._rotation(queues)
            for queue in queues:
                for topic in fanout.topics(queue):
                    self._listening.setdefault(topic, []).append(queue)
                if queue not in fanout or queue in office.routed:
                    asked[queue] = 0.0
        self._ask_at = asked
        self._unread = {queue for queues in self._listening.values() for queue in queues}
        self._bells = Bells(office.room.engine, asked, self._listening, self._loop, self._heard)

    def _rotation(self, queues: list[str]) -> Rotation:
        options = self._office.options
        if options.order == "sorted":
            return self._office.room.rotation(sorted(queues), "listed")
        order = cast("Order", options.order)
        return self._office.room.rotation(queues, order, weights=dict(options.weights))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.on_tick.discard(self.tick)
            if self._timer is not None:
                self._timer.cancel()
        self._drop_bells()
        self._loop = self._timer = None
        self._rotations = {}

    def _drop_bells(self) -> None:
        if self._bells is not None:
            self._bells.close()
            self._bells = None
