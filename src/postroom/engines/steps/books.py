"""The books of one queue: everything that is kept beside its messages. Pure: `now` is passed in."""

from __future__ import annotations

import abc

from postroom.engine import QueueInfo
from postroom.engines.steps.pausing import plain
from postroom.limits import KEPT_IDS
from postroom.logs import Event, LogEntry
from postroom.policy import Policy, due_seq, next_seq
from postroom.stats import COUNTERS

#: A call is noted when the last noted one is older than this part of a lease.
_FRESH = 16


class Books(abc.ABC):
    """Policy, pause, sequence numbers, grace, rate, counters and history of one queue."""

    def __init__(self, name: str, policy: Policy, now: int) -> None:
        self.name = name
        self.policy: Policy = policy
        self.paused: bool = False
        self.pause_reason: str = ""
        self.paused_until: int | None = None
        self.seq: int = 0
        self.last_call: int = now
        self.grace_until: int = now
        self.bucket: int = policy.rate.full if policy.rate else 0
        self.bucket_at: int = now
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        #: How many waiters the present step gives reason to wake: for something that can be claimed,
        #: and for an earlier due time that somebody should keep. Taken by the engine.
        self.rings: int = 0
        self.alarms: int = 0
        self._news: dict[Event, list[str]] = {}
        self._told = False

    def reached(self, now: int) -> None:
        """A call came through. After a long silence nobody is taken for dead at first.

        Calls soon after another are not noted, so that asking in vain need not write anything.
        """
        if now < self.last_call:  # a clock that was far ahead for a moment has left its times behind
            self.last_call = now
            self.grace_until = min(self.grace_until, now + self.policy.lease)
            self.bucket_at = min(self.bucket_at, now)  # else nothing would be earned until then
        silence = now - self.last_call
        if grace := self.policy.grace(silence):
            self.grace_until = now + grace
        if silence >= self.policy.lease // _FRESH:
            self.last_call = now

    def adopt(self, policy: Policy, now: int) -> None:
        """Live by another policy from now on; a new rate begins with a full bucket."""
        if policy.rate != self.policy.rate:
            self.bucket, self.bucket_at = policy.rate.full if policy.rate else 0, now
        self.policy = policy

    # --- pause ------------------------------------------------------------------------------

    def pause(self, reason: str, span: int | None, now: int) -> None:
        self.paused, self.pause_reason = True, plain(reason)
        self.paused_until = None if span is None else now + span
        end = {} if span is None else {"until": now + span}
        self.tell(now, Event.PAUSE, [], {"reason": self.pause_reason, **end}, count=0)
        if span is not None:
            # Three should know of the end: one to wake for it, two to stand by.
            self.alarms = 3

    def unpause(self, now: int, info: dict[str, int | str] | None = None) -> None:
        """The caller rings."""
        self.paused, self.pause_reason, self.paused_until = False, "", None
        self.tell(now, Event.RESUME, [], info, count=0)

    def is_paused(self, now: int) -> bool:
        return self.paused and (self.paused_until is None or now < self.paused_until)

    def info(self, now: int) -> QueueInfo:
        if not self.is_paused(now):
            return QueueInfo(self.name, self.policy)
        return QueueInfo(self.name, self.policy, True, self.pause_reason, self.paused_until)

    # --- order ------------------------------------------------------------------------------

    def new_order(self, priority: int, now: int) -> int:
        """The place of a message that becomes ready now: behind all of its level."""
        self.seq = next_seq(self.seq, now)
        return self.policy.order(priority, self.seq)

    def due_order(self, priority: int, due: int, now: int) -> int:
        """The place of a message that becomes ready now but was due at `due`."""
        seq = due_seq(self.seq, now, due)
        self.seq = max(self.seq, seq)
        return self.policy.order(priority, seq)

    # --- time -------------------------------------------------------------------------------

    def wake(self, now: int, deadline: int | None, *others: int | None) -> int:
        """The span until the next deadline or the earliest of `others`, at most a third of the lease.

        Nobody waits longer than that, so that a silence always means that nobody could call.
        """
        wakes = [now + self.policy.lease // 3]
        if deadline is not None:
            wakes.append(max(deadline, self.grace_until))
        wakes += (other for other in others if other is not None)
        return max(0, min(wakes) - now)

    # --- rate -------------------------------------------------------------------------------

    def allowance(self, now: int) -> int:
        """The claims that the rate allows at this moment."""
        return self._filled(now) // self.policy.rate.per if self.policy.rate else 0

    def spend(self, claims: int, now: int) -> None:
        """Take claims from the bucket; negative: give them back."""
        if claims and (rate := self.policy.rate):
            self.bucket = min(rate.full, self._filled(now) - claims * rate.per)
            self.bucket_at = max(self.bucket_at, now)

    def _filled(self, now: int) -> int:
        """What is in the bucket by now. It is only noted when something is taken: asking changes nothing."""
        rate = self.policy.rate
        if rate is None:
            return 0
        return min(rate.full, self.bucket + max(0, now - self.bucket_at) * rate.count)

    def refill_in(self, now: int) -> int:
        """How long until one claim is allowed."""
        rate = self.policy.rate
        if rate is None or self.allowance(now) > 0:
            return 0
        return -((self._filled(now) - rate.per) // rate.count)

    # --- rings ------------------------------------------------------------------------------

    def rings_wanted(self) -> int:
        """How many waiters this step gives reason to wake; asked once."""
        count = max(self.alarms, min(2, self.rings))
        self.rings = self.alarms = 0
        return count

    # --- telling ----------------------------------------------------------------------------

    def count(self, counter: str, event: Event, id: str) -> None:
        """Count one message and have it told with the others of this step."""
        self.counters[counter] += 1
        self.note(event, id)

    def note(self, event: Event, id: str) -> None:
        self._news.setdefault(event, []).append(id)

    def announce(self, now: int) -> bool:
        """Write what happened in this step, one log entry for each kind of event; whether anything did."""
        for event, ids in self._news.items():
            self.tell(now, event, ids)
        self._news.clear()
        told, self._told = self._told, False
        return told

    def tell(
        self,
        now: int,
        event: Event,
        ids: list[str],
        info: dict[str, int | str] | None = None,
        count: int | None = None,
    ) -> None:
        """Write one log entry; `count` is the number of ids unless they are not named."""
        self._told = True
        count, kept = len(ids) if count is None else count, tuple(ids[:KEPT_IDS])
        self.write_log(
            LogEntry(id="", at=now, queue=self.name, event=event, count=count, ids=kept, info=info or {})
        )

    @abc.abstractmethod
    def write_log(self, entry: LogEntry) -> None:
        """Append to the history, under the next id; the oldest go when there are too many."""
